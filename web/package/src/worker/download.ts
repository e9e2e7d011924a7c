// Downloads a file into OPFS, resuming where an earlier download was cut.
import { WarploomError, cancelled } from "../errors.js";
import type { Progress } from "../types.js";
import { sha256 } from "../vendor/sha2.js";
import { type Answer, head, request, within } from "./http.js";
import {
  type PartRecord, fileIn, keyOf, locked, readComplete, readPart, removeFile, writeAll, writeRecord,
} from "./storage.js";

/** Bytes between two records of what is verified. */
const FLUSH = 8 << 20;
/** Attempts in a row that bring no byte. */
const ATTEMPTS = 5;
const SILENCE_SECONDS = 30;

export interface Wanted {
  url: string;
  sha256: string | null;
  signal: AbortSignal;
  progress: (progress: Progress) => void;
}

/**
 * Opens the complete data file of an address with `open`, before the file can be deleted; no request
 * is made if it is stored already.
 */
export async function stored<T>(
  folder: FileSystemDirectoryHandle,
  wanted: Wanted,
  open: (file: FileSystemFileHandle) => Promise<T>,
): Promise<T> {
  const key = await keyOf(wanted.url);
  try {
    return await locked(key, wanted.signal,
      () => wanted.progress({ phase: "waiting", done: 0, total: null }),
      async () => await open(await storedLocked(folder, key, wanted)));
  } catch (thrown) {
    if (wanted.signal.aborted) {
      throw cancelled(wanted.url);
    }
    if (isQuota(thrown)) {
      // Not even an empty file could be made, so that no answer was asked for yet.
      const part = await readPart(folder, key).catch(() => null);
      const size = part?.size ?? await head(wanted.url, wanted.signal);
      throw diskFull(wanted.url, size, part?.verified ?? 0, null, 1);
    }
    throw thrown;
  }
}

const isQuota = (thrown: unknown): boolean =>
  thrown instanceof DOMException && thrown.name === "QuotaExceededError";

/** Bytes that this origin may still store, if the browser says it. */
async function available(): Promise<number | null> {
  const { quota, usage } = await navigator.storage.estimate();
  return quota === undefined || usage === undefined ? null : Math.max(0, quota - usage);
}

async function storedLocked(
  folder: FileSystemDirectoryHandle,
  key: string,
  wanted: Wanted,
): Promise<FileSystemFileHandle> {
  let record = await readComplete(folder, key);
  let changed = false;
  if (!record) {
    await removeFile(folder, `${key}.json`);
    const size = await download(folder, key, wanted);
    record = { url: wanted.url, size, sha256: null };
    changed = true;
  }
  const handle = await folder.getFileHandle(key);
  if (wanted.sha256 !== null && record.sha256 !== wanted.sha256) {
    const is = await digest(await handle.getFile(), wanted);
    if (is !== wanted.sha256) {
      for (const name of [`${key}.json`, `${key}.part`, key]) {
        await removeFile(folder, name);
      }
      throw new WarploomError("checksum",
        `${wanted.url}: SHA-256 of the ${record.size} bytes is ${is}, not ${wanted.sha256}; `
        + "the file was deleted", { is, wanted: wanted.sha256, size: record.size });
    }
    record = { ...record, sha256: is };
    changed = true;
  }
  if (changed) {
    await writeRecord(folder, `${key}.json`, record);
    await removeFile(folder, `${key}.part`);
  }
  return handle;
}

/** Downloads what is missing; returns the file's size. */
async function download(
  folder: FileSystemDirectoryHandle,
  key: string,
  wanted: Wanted,
): Promise<number> {
  const data = await folder.getFileHandle(key, { create: true });
  const part = await readPart(folder, key);
  const access = await data.createSyncAccessHandle();
  const file = new Part(folder, key, access, wanted,
    part && part.validator !== null && part.verified <= access.getSize()
      ? part : { url: wanted.url, size: null, validator: null, verified: 0 });
  try {
    for (let failures = 0; ;) {
      const before = file.written;
      try {
        await file.receive();
        return file.written;
      } catch (thrown) {
        if (isQuota(thrown)) {
          // What was flushed last stays recorded; a new record would need space too.
          throw diskFull(wanted.url, file.size, file.written, null, file.refused);
        }
        await file.save();
        failures = file.written > before ? 1 : failures + 1;
        if (failures >= ATTEMPTS || !isTransient(thrown) || wanted.signal.aborted) {
          throw thrown;
        }
        await pause(250 * 2 ** failures, wanted.signal);
      }
    }
  } finally {
    access.close();
    if (file.written === 0) {
      // A refused or empty answer leaves nothing that could be resumed.
      await removeFile(folder, key);
      await removeFile(folder, `${key}.part`);
    }
  }
}

function isTransient(thrown: unknown): boolean {
  if (!(thrown instanceof WarploomError) || thrown.kind !== "network") {
    return false;
  }
  const { status } = thrown.details;
  return typeof status !== "number" || status >= 500 || status === 429 || status === 408;
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(cancelled("the download"));
    }, { once: true });
  });
}

/** The data file of a download with its record. */
class Part {
  written: number;
  /** Bytes of the last write, which are more than fit if it failed. */
  refused = 1;
  readonly #folder: FileSystemDirectoryHandle;
  readonly #key: string;
  readonly #access: FileSystemSyncAccessHandle;
  readonly #wanted: Wanted;
  readonly #record: PartRecord;

  constructor(
    folder: FileSystemDirectoryHandle,
    key: string,
    access: FileSystemSyncAccessHandle,
    wanted: Wanted,
    record: PartRecord,
  ) {
    this.#folder = folder;
    this.#key = key;
    this.#access = access;
    this.#wanted = wanted;
    this.#record = record;
    this.written = record.verified;
  }

  get size(): number | null {
    return this.#record.size;
  }

  /** One request, until the file is complete; throws if it ends early. */
  async receive(): Promise<void> {
    const { url, signal } = this.#wanted;
    if (this.#record.size !== null && this.written === this.#record.size && this.written > 0) {
      return;
    }
    let answer = await request(url, this.written, null, signal);
    if (answer.offset > 0 && !this.#continues(answer)) {
      void answer.response.body?.cancel();
      answer = await request(url, 0, null, signal);
    }
    this.#record.size = answer.size;
    this.#record.validator = answer.validator;
    this.written = answer.offset;
    this.#record.verified = answer.offset;
    this.#access.truncate(answer.offset);
    await this.#requireSpace();
    await this.save();
    await this.#body(answer);
    if (this.#record.size !== null && this.written !== this.#record.size) {
      throw new WarploomError("network",
        `${url}: the answer ended after ${this.written} of ${this.#record.size} bytes`);
    }
    if (this.written === 0) {
      throw new WarploomError("bad-file", `${url}: the server's answer is empty`);
    }
    this.#record.size = this.written;
    await this.save();
  }

  #continues(answer: Answer): boolean {
    const { validator, size } = this.#record;
    return validator !== null && answer.validator === validator
      && (size === null || answer.size === null || answer.size === size);
  }

  async #body(answer: Answer): Promise<void> {
    const { url, signal } = this.#wanted;
    const reader = answer.response.body?.getReader();
    if (!reader) {
      throw new WarploomError("network", `${url}: an answer without a body`);
    }
    let last = -Infinity;
    const report = (always: boolean) => {
      // Messages for each chunk would keep the page busy.
      if (always || performance.now() - last > 100) {
        last = performance.now();
        this.#wanted.progress(
          { phase: "download", done: this.written, total: this.#record.size });
      }
    };
    report(true);
    try {
      for (;;) {
        const { done, value } = await within(reader.read(), SILENCE_SECONDS, url);
        if (done) {
          break;
        }
        this.#write(value as Uint8Array<ArrayBuffer>);
        if (this.written - this.#record.verified >= FLUSH) {
          await this.save();
        }
        report(false);
      }
    } catch (thrown) {
      void reader.cancel().catch(() => undefined);
      if (signal.aborted) {
        throw cancelled(url);
      }
      if (thrown instanceof WarploomError || isQuota(thrown)) {
        throw thrown;
      }
      throw new WarploomError("network",
        `${url}: cut after ${this.written} bytes: ${(thrown as Error).message}`);
    }
    report(true);
  }

  #write(bytes: Uint8Array<ArrayBuffer>): void {
    this.refused = bytes.length;
    writeAll(this.#access, bytes, this.written);
    this.written += bytes.length;
  }

  /** Flushes, and records how far the data can be relied on. */
  async save(): Promise<void> {
    this.#access.flush();
    this.#record.verified = this.written;
    await writeRecord(this.#folder, `${this.#key}.part`, this.#record);
  }

  /** Says before the download that it cannot fit, if the browser knows. */
  async #requireSpace(): Promise<void> {
    const { size } = this.#record;
    if (size === null) {
      return;
    }
    const room = await available();
    if (room !== null && size - this.written > room) {
      throw diskFull(this.#wanted.url, size, this.written, room, 1);
    }
  }
}

/** `refused` are the bytes that did not fit: what is needed at least, if the server names no size. */
function diskFull(
  url: string,
  size: number | null,
  written: number,
  room: number | null,
  refused: number,
): WarploomError {
  const needed = size === null ? refused : Math.max(1, size - written);
  return new WarploomError("disk-full",
    `${url}: ${written} bytes are stored, ${needed} more are needed${size === null ? " at least" : ""}`
    + (room === null ? "" : `, ${room} are available`)
    + ": the browser's storage for this site is full",
    {
      stored: written,
      needed,
      ...(room === null ? {} : { available: room }),
    });
}

/** SHA-256 of a file by parts. */
export async function digest(
  file: Blob,
  { signal, progress }: Pick<Wanted, "signal" | "progress">,
): Promise<string> {
  const hash = sha256.create();
  const step = 4 << 20;
  for (let at = 0; at < file.size; at += step) {
    if (signal.aborted) {
      throw cancelled("the check of the file");
    }
    hash.update(new Uint8Array(await file.slice(at, at + step).arrayBuffer()));
    progress({ phase: "check", done: Math.min(at + step, file.size), total: file.size });
  }
  return [...hash.digest()].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Bytes of an address that are stored, and its complete file. */
export async function storedPart(
  folder: FileSystemDirectoryHandle,
  url: string,
): Promise<{ bytes: number; file: FileSystemFileHandle | null }> {
  const key = await keyOf(url);
  const complete = await readComplete(folder, key);
  if (complete) {
    return { bytes: complete.size, file: await fileIn(folder, key) };
  }
  return { bytes: (await readPart(folder, key))?.verified ?? 0, file: null };
}
