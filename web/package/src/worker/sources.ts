// Files that can be read synchronously.
import { WarploomError, cancelled } from "../errors.js";
import type { Source } from "./backend.js";
import { head, request, within } from "./http.js";
import { nameOf } from "./storage.js";

/** A source that may hold a file open. */
export interface OpenSource extends Source {
  close(): void;
}

function short(name: string, offset: number, wanted: number, got: number): WarploomError {
  return new WarploomError("io",
    `${name}: ${got} of ${wanted} bytes could be read at offset ${offset}`);
}

/** A file that the user picked, or a downloaded one where there is no storage. */
export class BlobSource implements OpenSource {
  readonly name: string;
  readonly size: number;
  readonly blob: Blob;
  readonly #reader = new FileReaderSync();

  constructor(blob: Blob, name?: string) {
    this.blob = blob;
    this.name = name ?? (blob instanceof File ? blob.name : "blob");
    this.size = blob.size;
  }

  read(offset: number, into: Uint8Array): void {
    let bytes: ArrayBuffer;
    try {
      bytes = this.#reader.readAsArrayBuffer(this.blob.slice(offset, offset + into.length));
    } catch (thrown) {
      // Also if the file was changed on the disk after it was picked.
      throw new WarploomError("io", `${this.name}: ${(thrown as Error).message}`);
    }
    if (bytes.byteLength !== into.length) {
      throw short(this.name, offset, into.length, bytes.byteLength);
    }
    into.set(new Uint8Array(bytes));
  }

  close(): void {}
}

/** A file in OPFS. */
class AccessSource implements OpenSource {
  readonly name: string;
  readonly size: number;
  readonly #access: FileSystemSyncAccessHandle;
  /** The engine's memory may be of a kind that the browser does not read into. */
  #through: Uint8Array<ArrayBuffer> | null = null;

  constructor(access: FileSystemSyncAccessHandle, name: string) {
    this.#access = access;
    this.name = name;
    this.size = access.getSize();
  }

  read(offset: number, into: Uint8Array): void {
    let got = 0;
    while (got < into.length) {
      const now = this.#readSome(into.subarray(got), offset + got);
      if (now <= 0) {
        throw short(this.name, offset, into.length, got);
      }
      got += now;
    }
  }

  #readSome(into: Uint8Array, at: number): number {
    if (into.buffer instanceof ArrayBuffer) {
      return this.#access.read(into as Uint8Array<ArrayBuffer>, { at });
    }
    this.#through ??= new Uint8Array(1 << 20);
    const part = this.#through.subarray(0, Math.min(into.length, this.#through.length));
    const got = this.#access.read(part, { at });
    into.set(part.subarray(0, got));
    return got;
  }

  close(): void {
    this.#access.close();
  }
}

/** Opens a file of OPFS so that other tabs can read it at the same time. */
export async function openStored(
  handle: FileSystemFileHandle,
  name: string,
): Promise<OpenSource> {
  // TypeScript's library lacks the argument. Browsers that ignore it open exclusively.
  const shared = handle as unknown as {
    createSyncAccessHandle(options: { mode: string }): Promise<FileSystemSyncAccessHandle>;
  };
  try {
    return new AccessSource(await shared.createSyncAccessHandle({ mode: "read-only" }), name);
  } catch (thrown) {
    if (thrown instanceof DOMException && thrown.name === "NoModificationAllowedError") {
      return new BlobSource(await handle.getFile(), name);
    }
    throw thrown;
  }
}

/** Where this browser stores nothing: the whole file as a blob, which browsers keep on disk. */
export async function downloadBlob(
  url: string,
  signal: AbortSignal,
  progress: (done: number, total: number | null) => void,
  how?: RequestInit,
): Promise<BlobSource> {
  const { response, size } = await request(url, 0, null, signal, how);
  const parts: BlobPart[] = [];
  let done = 0;
  await eachChunk(url, response, signal, (bytes) => {
    parts.push(new Blob([bytes]));
    done += bytes.length;
    progress(done, size);
    return true;
  });
  if (size !== null && done !== size) {
    throw new WarploomError("network", `${url}: the answer ended after ${done} of ${size} bytes`);
  }
  return new BlobSource(new Blob(parts), nameOf(url));
}

/** Calls `use` with each chunk of a body until it returns false. */
async function eachChunk(
  url: string,
  response: Response,
  signal: AbortSignal,
  use: (bytes: Uint8Array<ArrayBuffer>) => boolean,
): Promise<void> {
  const reader = response.body?.getReader();
  try {
    while (reader) {
      const { done, value } = await within(reader.read(), 30, url);
      if (done || !use(value as Uint8Array<ArrayBuffer>)) {
        break;
      }
    }
  } catch (thrown) {
    if (signal.aborted) {
      throw cancelled(url);
    }
    throw thrown instanceof WarploomError ? thrown
      : new WarploomError("network", `${url}: ${(thrown as Error).message}`);
  } finally {
    void reader?.cancel().catch(() => undefined);
  }
}

/** The parts of a remote file that were requested so far. */
class PartialSource implements Source {
  /** The read that failed last; an error loses its class on its way through the engine. */
  missing: { start: number; end: number } | null = null;
  readonly parts: { start: number; bytes: Uint8Array }[] = [];

  constructor(readonly name: string, readonly size: number) {}

  read(offset: number, into: Uint8Array): void {
    const end = offset + into.length;
    if (end > this.size) {
      throw short(this.name, offset, into.length, Math.max(0, this.size - offset));
    }
    if (into.length === 0) {
      return;
    }
    const part = this.parts.find(({ start, bytes }) =>
      start <= offset && end <= start + bytes.length);
    if (!part) {
      this.missing = { start: offset, end };
      throw new WarploomError("io", `${this.name}: bytes ${offset} to ${end} are not here yet`);
    }
    into.set(part.bytes.subarray(offset - part.start, end - part.start));
  }
}

/** Bytes of a request for a part; the head of a file with a large vocabulary has some megabytes. */
const PART = 2 << 20;
/** What an estimate may request in all, and in how many parts. */
const MOST_BYTES = 256 << 20;
const MOST_PARTS = 64;

/** Runs `use` on a remote file, again with more of it as long as it reads what is not here. */
export async function withParts<T>(
  url: string,
  signal: AbortSignal,
  use: (source: Source) => T,
): Promise<T> {
  const first = await fetchPart(url, 0, PART, signal);
  const size = first.size ?? await head(url, signal);
  if (size === null) {
    throw new WarploomError("network", `${url}: the server does not say how large the file is`);
  }
  const source = new PartialSource(nameOf(url), size);
  source.parts.push({ start: 0, bytes: first.bytes });
  for (let total = first.bytes.length; ;) {
    source.missing = null;
    try {
      return use(source);
    } catch (thrown) {
      // Assigned in `use`, which the compiler does not see.
      const missing = source.missing as { start: number; end: number } | null;
      if (!missing) {
        throw thrown;
      }
      const end = Math.min(size, Math.max(missing.end, missing.start + PART));
      total += end - missing.start;
      if (total > MOST_BYTES || source.parts.length >= MOST_PARTS) {
        throw new WarploomError("unsupported",
          `${url}: an estimate would read more than ${MOST_BYTES} bytes of the file`);
      }
      const { bytes } = await fetchPart(url, missing.start, end, signal);
      if (bytes.length < missing.end - missing.start) {
        throw short(source.name, missing.start, missing.end - missing.start, bytes.length);
      }
      source.parts.push({ start: missing.start, bytes });
    }
  }
}

async function fetchPart(
  url: string,
  start: number,
  end: number,
  signal: AbortSignal,
): Promise<{ bytes: Uint8Array; size: number | null }> {
  const { response, offset, size } = await request(url, start, end, signal);
  if (offset !== start) {
    void response.body?.cancel();
    throw new WarploomError("unsupported",
      `${url}: an estimate needs bytes from ${start} on, and the server sends only whole files`,
      { ranges: "none" });
  }
  const bytes = new Uint8Array(end - start);
  let got = 0;
  await eachChunk(url, response, signal, (chunk) => {
    const part = chunk.subarray(0, bytes.length - got);
    bytes.set(part, got);
    got += part.length;
    return got < bytes.length;
  });
  return { bytes: bytes.subarray(0, got), size };
}
