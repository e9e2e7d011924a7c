// Requests for a part of a file, and what the answers say about the whole.
import { WarploomError, cancelled } from "../errors.js";

export interface Answer {
  response: Response;
  /** Where the body begins; 0 if the server ignores ranges. */
  offset: number;
  /** Size of the whole file, if the server says it. */
  size: number | null;
  validator: string | null;
}

/** A page of a model on Hugging Face, as the address of its file. */
export function fileAddress(url: string): string {
  const address = new URL(url);
  if (address.protocol !== "https:" && address.protocol !== "http:") {
    throw new WarploomError("invalid", `${url}: only http and https addresses can be loaded`);
  }
  if (address.hostname === "huggingface.co") {
    address.pathname = address.pathname.replace(/^(\/[^/]+\/[^/]+)\/blob\//, "$1/resolve/");
  }
  address.hash = "";
  return address.href;
}

/** Models are stored once, in OPFS, and their servers learn nothing about the user. */
const FOREIGN: RequestInit = { cache: "no-store", credentials: "omit" };

/** Asks for the bytes from `offset` on, or for [offset, end). */
export async function request(
  url: string,
  offset: number,
  end: number | null,
  signal: AbortSignal,
  how: RequestInit = FOREIGN,
): Promise<Answer> {
  const headers: Record<string, string> = offset === 0 && end === null
    ? {} : { range: `bytes=${offset}-${end === null ? "" : end - 1}` };
  let response: Response;
  try {
    response = await fetch(url, { ...how, headers, signal });
  } catch (thrown) {
    if (signal.aborted) {
      throw cancelled(url);
    }
    throw new WarploomError("network",
      `${url}: no answer (${(thrown as Error).message}); the server is not reachable, or it does `
      + "not allow pages of other origins (CORS)");
  }
  if (response.status === 416 && headers.range) {
    // The stored part is not a beginning of what the server has now.
    void response.body?.cancel();
    return await request(url, 0, null, signal, how);
  }
  if (!response.ok) {
    void response.body?.cancel();
    throw new WarploomError("network", `${url}: the server answers ${response.status} `
      + response.statusText, { status: response.status });
  }
  const validator = response.headers.get("etag") ?? response.headers.get("last-modified");
  const encoded = response.headers.get("content-encoding") !== null;
  const length = encoded ? null : sizeFrom(response.headers.get("content-length"));
  if (response.status !== 206) {
    return { response, offset: 0, size: length, validator };
  }
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
  const start = range ? Number(range[1]) : offset;
  if (start !== offset) {
    void response.body?.cancel();
    throw new WarploomError("network",
      `${url}: the server sends bytes from ${start} on, not from ${offset} on`);
  }
  // Pages of other origins see Content-Range only if the server exposes it.
  const size = range ? sizeFrom(range[2] ?? null)
    : length !== null && end === null ? offset + length : null;
  return { response, offset, size, validator };
}

/** Size and validator of a file without its bytes; null if the server does not answer HEAD. */
export async function head(url: string, signal: AbortSignal): Promise<number | null> {
  try {
    const response = await fetch(url,
      { ...FOREIGN, method: "HEAD", signal });
    return response.ok && response.headers.get("content-encoding") === null
      ? sizeFrom(response.headers.get("content-length")) : null;
  } catch {
    return null;
  }
}

function sizeFrom(text: string | null): number | null {
  const size = text === null || !/^\d+$/.test(text) ? NaN : Number(text);
  return Number.isSafeInteger(size) ? size : null;
}

/** Rejects if `next` takes longer than `seconds`: a connection can be cut without an error. */
export async function within<T>(next: Promise<T>, seconds: number, what: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(
      new WarploomError("network", `${what}: no byte for ${seconds} s`)), seconds * 1000);
  });
  try {
    return await Promise.race([next, late]);
  } finally {
    clearTimeout(timer);
  }
}
