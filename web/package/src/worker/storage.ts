// Models in the origin private file system (OPFS). For each model there is the data file KEY, and
// one record: KEY.part while the download is incomplete, KEY.json afterwards. A record that cannot
// be read counts as absent.
import { WarploomError } from "../errors.js";
import type { StoredModel } from "../types.js";

const FOLDER = "warploom-models";

export interface PartRecord {
  url: string;
  size: number | null;
  /** ETag or Last-Modified of the server's file; without one a download is not resumed. */
  validator: string | null;
  /** Bytes that are written and flushed. */
  verified: number;
}

export interface CompleteRecord {
  url: string;
  size: number;
  /** In hexadecimal, if it was checked. */
  sha256: string | null;
}

/** The folder, or null if this browser has no such storage, as in some private windows. */
export async function openFolder(): Promise<FileSystemDirectoryHandle | null> {
  try {
    const root = await navigator.storage.getDirectory();
    return await root.getDirectoryHandle(FOLDER, { create: true });
  } catch (thrown) {
    if (thrown instanceof DOMException || thrown instanceof TypeError) {
      return null;
    }
    throw thrown;
  }
}

/** A file name for an address: readable, and different for different addresses. */
export async function keyOf(url: string): Promise<string> {
  const digest = new Uint8Array(
    await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url)));
  const hash = [...digest.subarray(0, 6)].map((b) => b.toString(16).padStart(2, "0")).join("");
  return `${nameOf(url).replace(/\.gguf$/i, "").slice(0, 80)}-${hash}.gguf`;
}

/** The last part of an address, as far as it can be in a file name. */
export function nameOf(url: string): string {
  const last = new URL(url).pathname.split("/").findLast((part) => part !== "") ?? "";
  let name = last;
  try {
    name = decodeURIComponent(last);
  } catch {
    // A name with a stray percent sign stays as it is.
  }
  return name.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^\.+/, "") || "model.gguf";
}

export async function fileIn(
  folder: FileSystemDirectoryHandle,
  name: string,
): Promise<FileSystemFileHandle | null> {
  try {
    return await folder.getFileHandle(name);
  } catch (thrown) {
    if (thrown instanceof DOMException && thrown.name === "NotFoundError") {
      return null;
    }
    throw thrown;
  }
}

async function readRecord(
  folder: FileSystemDirectoryHandle,
  name: string,
): Promise<Record<string, unknown> | null> {
  const handle = await fileIn(folder, name);
  if (!handle) {
    return null;
  }
  try {
    const record: unknown = JSON.parse(await (await handle.getFile()).text());
    return typeof record === "object" && record !== null
      ? record as Record<string, unknown> : null;
  } catch (thrown) {
    if (thrown instanceof SyntaxError) {
      return null;
    }
    throw thrown;
  }
}

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;
const textOr = (value: unknown): string | null => typeof value === "string" ? value : null;

export async function readPart(
  folder: FileSystemDirectoryHandle,
  key: string,
): Promise<PartRecord | null> {
  const record = await readRecord(folder, `${key}.part`);
  if (!record || typeof record.url !== "string" || !isSize(record.verified)) {
    return null;
  }
  return {
    url: record.url,
    size: isSize(record.size) ? record.size : null,
    validator: textOr(record.validator),
    verified: record.verified,
  };
}

/** The record of a complete model whose data file has the recorded size. */
export async function readComplete(
  folder: FileSystemDirectoryHandle,
  key: string,
): Promise<CompleteRecord | null> {
  const record = await readRecord(folder, `${key}.json`);
  const data = await fileIn(folder, key);
  if (!record || !data || typeof record.url !== "string" || !isSize(record.size)
    || (await data.getFile()).size !== record.size) {
    return null;
  }
  return { url: record.url, size: record.size, sha256: textOr(record.sha256) };
}

export async function writeRecord(
  folder: FileSystemDirectoryHandle,
  name: string,
  record: PartRecord | CompleteRecord,
): Promise<void> {
  const handle = await folder.getFileHandle(name, { create: true });
  const access = await handle.createSyncAccessHandle();
  try {
    access.truncate(0);
    writeAll(access, new TextEncoder().encode(JSON.stringify(record)), 0);
    access.flush();
  } finally {
    access.close();
  }
}

/** Writes all of `bytes` at `offset`; a short write means that the disk is full. */
export function writeAll(
  access: FileSystemSyncAccessHandle,
  bytes: Uint8Array<ArrayBuffer>,
  offset: number,
): void {
  let written = 0;
  while (written < bytes.length) {
    const now = access.write(bytes.subarray(written), { at: offset + written });
    if (now <= 0) {
      throw new DOMException("a write stored no byte", "QuotaExceededError");
    }
    written += now;
  }
}

/** Removes a file if it is there; true if it was. */
export async function removeFile(
  folder: FileSystemDirectoryHandle,
  name: string,
): Promise<boolean> {
  try {
    await folder.removeEntry(name);
    return true;
  } catch (thrown) {
    if (thrown instanceof DOMException && thrown.name === "NotFoundError") {
      return false;
    }
    if (thrown instanceof DOMException && thrown.name === "NoModificationAllowedError") {
      throw new WarploomError(
        "in-use", `${name} is in use; close the model in every tab first`, { name });
    }
    throw thrown;
  }
}

/** One download or deletion of a file at a time, over all tabs. */
export async function locked<T>(
  key: string,
  signal: AbortSignal,
  waiting: () => void,
  run: () => Promise<T>,
): Promise<T> {
  const name = `${FOLDER}/${key}`;
  const busy = Symbol();
  const done = await navigator.locks.request(name, { ifAvailable: true },
    async (lock) => lock ? await run() : busy);
  if (done !== busy) {
    return done as T;
  }
  waiting();
  return await navigator.locks.request(name, { signal }, run);
}

export async function listModels(): Promise<StoredModel[]> {
  const folder = await openFolder();
  const found: StoredModel[] = [];
  if (!folder) {
    return found;
  }
  for await (const [name, handle] of folder.entries()) {
    if (handle.kind !== "file" || name.endsWith(".part") || name.endsWith(".json")) {
      continue;
    }
    const complete = await readComplete(folder, name);
    if (complete) {
      const { url, size } = complete;
      found.push({ name, url, size, stored: size, complete: true });
      continue;
    }
    const part = await readPart(folder, name);
    const size = part?.size ?? (await (handle as FileSystemFileHandle).getFile()).size;
    found.push({
      name, url: part?.url ?? "", size, stored: part?.verified ?? 0, complete: false,
    });
  }
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Deletes a model; true if it was there. */
export async function removeModel(name: string): Promise<boolean> {
  const folder = await openFolder();
  if (!folder || name.includes("/")) {
    return false;
  }
  return await navigator.locks.request(`${FOLDER}/${name}`, { ifAvailable: true }, async (lock) => {
    if (!lock) {
      throw new WarploomError("in-use",
        `${name} is being downloaded; cancel the load in every tab first`, { name });
    }
    // The data goes first: it is what another tab may hold open.
    const removed = await removeFile(folder, name);
    const part = await removeFile(folder, `${name}.part`);
    const complete = await removeFile(folder, `${name}.json`);
    return removed || part || complete;
  });
}
