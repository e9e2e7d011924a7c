/** What went wrong, as a word that programs can compare. */
export type ErrorKind =
  | "unsupported"
  | "bad-file"
  | "out-of-memory"
  | "device-lost"
  | "device"
  | "compile"
  | "io"
  | "invalid"
  | "cancelled"
  | "network"
  | "disk-full"
  | "checksum"
  | "in-use"
  | "closed"
  | "panic"
  | "worker"
  | "other";

/** Numbers and names that belong to an error, such as `needed` and `available` bytes of "disk-full". */
export type ErrorDetails = Readonly<Record<string, string | number>>;

/** The only error that this package throws. */
export class WarploomError extends Error {
  override readonly name = "WarploomError";
  readonly kind: ErrorKind;
  readonly details: ErrorDetails;

  constructor(kind: ErrorKind, message: string, details: ErrorDetails = {}) {
    super(message);
    this.kind = kind;
    this.details = details;
  }
}

export const cancelled = (what: string) => new WarploomError("cancelled", `${what} was cancelled`);

/** An error as the worker sends it: a class does not survive `postMessage`. */
export interface WireError {
  kind: ErrorKind;
  message: string;
  details: ErrorDetails;
}

/** Anything that was thrown, as a `WarploomError`. */
export function asError(thrown: unknown): WarploomError {
  if (thrown instanceof WarploomError) {
    return thrown;
  }
  if (thrown instanceof WebAssembly.RuntimeError) {
    return new WarploomError("panic", `the engine stopped: ${thrown.message}`);
  }
  if (thrown instanceof Error) {
    const kind = (thrown as { kind?: unknown }).kind;
    if (typeof kind === "string") {
      return new WarploomError(kind as ErrorKind, thrown.message);
    }
    if (thrown.name === "AbortError") {
      return new WarploomError("cancelled", thrown.message);
    }
    return new WarploomError("other", thrown.message || thrown.name);
  }
  return new WarploomError("other", String(thrown));
}

export function toWire(thrown: unknown): WireError {
  const { kind, message, details } = asError(thrown);
  return { kind, message, details };
}

export function fromWire(error: WireError): WarploomError {
  return new WarploomError(error.kind, error.message, error.details);
}
