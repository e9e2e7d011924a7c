// Files that can be read synchronously.
import { WarploomError } from "../errors.js";
import type { Source } from "./backend.js";
import { type Answer, cancelled, head, request, within } from "./http.js";
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
): Promise<BlobSource> {
  const { response, size } = await request(url, 0, null, signal);
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

/** A read beyond the bytes that are there; more of them must be requested. */
class Beyond extends WarploomError {
  constructor(name: string, readonly end: number) {
    super("io", `${name}: ${end} bytes of its beginning are needed`);
  }
}

/** The beginning of a remote file. */
class PrefixSource implements Source {
  /** The read that failed; an error may lose its class on its way through the engine. */
  beyond: Beyond | null = null;

  constructor(
    readonly name: string,
    readonly size: number,
    readonly bytes: Uint8Array,
  ) {}

  read(offset: number, into: Uint8Array): void {
    const end = offset + into.length;
    if (end > this.bytes.length) {
      this.beyond = new Beyond(this.name, end);
      throw this.beyond;
    }
    into.set(this.bytes.subarray(offset, end));
  }
}

const FIRST_PREFIX = 2 << 20;
const LARGEST_PREFIX = 256 << 20;

/** Runs `use` on the beginning of a remote file, with more of it until that is enough. */
export async function withPrefix<T>(
  url: string,
  signal: AbortSignal,
  use: (source: Source) => T,
): Promise<T> {
  const name = nameOf(url);
  for (let length = FIRST_PREFIX; ;) {
    const answer = await request(url, 0, length, signal);
    const size = answer.size ?? await head(url, signal);
    if (size === null) {
      void answer.response.body?.cancel();
      throw new WarploomError("network", `${url}: the server does not say how large the file is`);
    }
    const source = new PrefixSource(name, size, await prefix(url, answer, length, signal));
    try {
      return use(source);
    } catch (thrown) {
      const needed = source.beyond?.end ?? 0;
      if (!source.beyond || source.bytes.length >= size || needed > LARGEST_PREFIX
        || source.bytes.length < Math.min(length, size)) {
        throw thrown;
      }
      length = Math.min(LARGEST_PREFIX, Math.max(4 * length, needed));
    }
  }
}

async function prefix(
  url: string,
  answer: Answer,
  length: number,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let got = 0;
  await eachChunk(url, answer.response, signal, (bytes) => {
    parts.push(bytes);
    got += bytes.length;
    return got < length;
  });
  const all = new Uint8Array(got);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.subarray(0, length);
}
