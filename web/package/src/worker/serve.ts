// Connects the page's messages with the WebAssembly module, its device and its models.
import { WarploomError, asError, toWire } from "../errors.js";
import type { FromWorker, ToWorker } from "../protocol.js";
import type { Backend } from "./backend.js";
import { type Files, Host } from "./host.js";

/** Answers the page from now on. */
export function serve(backend: Backend, files: Files): void {
  const host = new Host(backend, files);
  const post = (message: FromWorker, transfer: Transferable[] = []) =>
    self.postMessage(message, { transfer });
  const running = new Map<number, AbortController>();

  // A panic in the middle of an asynchronous call loses the promise of that call.
  const fatal = (thrown: unknown, message: string) => {
    const error = thrown === null || thrown === undefined
      ? new WarploomError("worker", message) : asError(thrown);
    post({ fatal: toWire(error) });
  };
  self.addEventListener("error", (event) => fatal(event.error, event.message));
  self.addEventListener("unhandledrejection", (event) =>
    fatal(event.reason, "a promise of the worker was rejected"));

  self.onmessage = async ({ data }: MessageEvent<ToWorker>) => {
    if ("record" in data) {
      host.record(data.record);
      return;
    }
    const { id } = data;
    if ("cancel" in data) {
      running.get(id)?.abort();
      return;
    }
    const stop = new AbortController();
    running.set(id, stop);
    try {
      const context = { signal: stop.signal, event: (event: unknown) => post({ id, event }) };
      const result: unknown = await host.call(data.call, data.args, context);
      const { bytes } = Object(result) as { bytes?: unknown };
      post({ id, result }, bytes instanceof Uint8Array ? [bytes.buffer as ArrayBuffer] : []);
    } catch (thrown) {
      post({ id, error: toWire(thrown) });
    } finally {
      running.delete(id);
    }
  };
}
