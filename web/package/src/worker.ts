// The worker: holds the WebAssembly module, its device and its models, and answers the page.
import init, * as wasm from "./wasm/warploom_web.js";
import { toWire } from "./errors.js";
import type { FromWorker, ToWorker } from "./protocol.js";
import type { Backend } from "./worker/backend.js";
import { Host } from "./worker/host.js";

const host = new Host({ ...wasm, default: init } as unknown as Backend,
  new URL("./wasm/warploom_web_bg.wasm", import.meta.url));

const post = (message: FromWorker) => self.postMessage(message);
const running = new Map<number, AbortController>();

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
