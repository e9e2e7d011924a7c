// The worker: holds the WebAssembly module, its device and its models, and answers the page.
import init, * as wasm from "./wasm/warploom_web.js";
import { WarploomError, asError, toWire } from "./errors.js";
import type { FromWorker, ToWorker } from "./protocol.js";
import type { Backend } from "./worker/backend.js";
import { Host } from "./worker/host.js";

const host = new Host({ ...wasm, default: init } as unknown as Backend,
  new URL("./wasm/warploom_web_bg.wasm", import.meta.url));

const post = (message: FromWorker) => self.postMessage(message);
const running = new Map<number, AbortController>();

// A panic in the middle of an asynchronous call loses the promise of that call.
function fatal(thrown: unknown, message: string): void {
  const error = thrown === null || thrown === undefined
    ? new WarploomError("worker", message) : asError(thrown);
  post({ fatal: toWire(error) });
}
self.addEventListener("error", (event) => fatal(event.error, event.message));
self.addEventListener("unhandledrejection", (event) =>
  fatal(event.reason, "a promise of the worker was rejected"));

self.onmessage = async ({ data }: MessageEvent<ToWorker>) => {
  const { id } = data;
  if ("cancel" in data) {
    running.get(id)?.abort();
    return;
  }
  const stop = new AbortController();
  running.set(id, stop);
  try {
    const context = { signal: stop.signal, event: (event: unknown) => post({ id, event }) };
    post({ id, result: await host.call(data.call, data.args, context) });
  } catch (thrown) {
    post({ id, error: toWire(thrown) });
  } finally {
    running.delete(id);
  }
};
