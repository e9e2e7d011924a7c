import { WarploomError, asError, cancelled, fromWire } from "./errors.js";
import type { CallName, Calls, FromWorker, Recording, ToWorker } from "./protocol.js";

interface Pending {
  resolve(value: unknown): void;
  reject(error: WarploomError): void;
  event(value: unknown): void;
}

export interface CallOptions<C extends CallName> {
  event?: (value: Calls[C]["event"]) => void;
  signal?: AbortSignal | undefined;
  transfer?: Transferable[];
}

/** The page's side of the worker. */
export class Connection {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #next = 1;
  #ended: WarploomError | null = null;

  constructor(full: boolean, workerUrl?: string | URL) {
    try {
      this.#worker = startWorker(full, workerUrl);
    } catch (thrown) {
      const from = workerUrl === undefined ? "" : ` of ${String(workerUrl)}`;
      throw new WarploomError("worker", `the worker${from} cannot be started: ${asError(thrown).message}`);
    }
    this.#worker.onmessage = (message: MessageEvent<FromWorker>) => this.#receive(message.data);
    this.#worker.onerror = (event) => {
      const reason = event.message ? `: ${event.message}` : ", maybe its file did not load";
      this.end(new WarploomError("worker", `the worker of warploom failed${reason}`));
    };
    this.#worker.onmessageerror = () => {
      this.end(new WarploomError("worker", "a message of the worker could not be read"));
    };
  }

  /** Throws after the end. */
  check(): void {
    if (this.#ended) {
      throw this.#ended;
    }
  }

  /** Sends a request; `signal` asks the worker to cancel it, and the worker's answer still counts. */
  call<C extends CallName>(
    call: C,
    args: Calls[C]["args"],
    { event, signal, transfer }: CallOptions<C> = {},
  ): Promise<Calls[C]["result"]> {
    if (this.#ended) {
      return Promise.reject(this.#ended);
    }
    if (signal?.aborted) {
      return Promise.reject(cancelled(call));
    }
    const id = this.#next++;
    return new Promise<Calls[C]["result"]>((resolve, reject) => {
      const cancel = () => this.#post({ id, cancel: true });
      const settle = () => {
        this.#pending.delete(id);
        signal?.removeEventListener("abort", cancel);
      };
      this.#pending.set(id, {
        resolve: (value) => { settle(); resolve(value as Calls[C]["result"]); },
        reject: (error) => { settle(); reject(error); },
        event: (value) => event?.(value as Calls[C]["event"]),
      });
      try {
        this.#post({ id, call, args } as ToWorker, transfer);
      } catch (thrown) {
        settle();
        reject(new WarploomError("invalid", `${call}: ${asError(thrown).message}`));
        return;
      }
      signal?.addEventListener("abort", cancel, { once: true });
    });
  }

  /** Sends what needs no answer. */
  record(record: Recording, transfer: Transferable[] = []): void {
    if (!this.#ended) {
      this.#worker.postMessage({ record } satisfies ToWorker, transfer);
    }
  }

  /** Stops the worker; every pending and later call fails with `error`. */
  end(error: WarploomError): void {
    if (this.#ended) {
      return;
    }
    this.#ended = error;
    this.#worker.terminate();
    for (const pending of [...this.#pending.values()]) {
      pending.reject(error);
    }
  }

  #post(message: ToWorker, transfer: Transferable[] = []): void {
    if (!this.#ended) {
      this.#worker.postMessage(message, transfer);
    }
  }

  #receive(message: FromWorker): void {
    if ("fatal" in message) {
      this.end(fromWire(message.fatal));
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) {
      return;
    }
    if ("event" in message) {
      pending.event(message.event);
    } else if ("error" in message) {
      const error = fromWire(message.error);
      pending.reject(error);
      if (error.kind === "panic") {
        // The memory of a module that panicked may be inconsistent.
        this.end(error);
      }
    } else {
      pending.resolve(message.result);
    }
  }
}

function startWorker(full: boolean, workerUrl?: string | URL): Worker {
  if (workerUrl !== undefined) {
    return crossOriginWorker(new URL(workerUrl, document.baseURI));
  }
  const here = import.meta.url;
  if (isForeign(here)) {
    return crossOriginWorker(new URL(full ? "./worker-full.js" : "./worker.js", here));
  }
  // Bundlers find the workers by these exact expressions.
  return full
    ? new Worker(new URL("./worker-full.js", import.meta.url), { type: "module", name: "warploom" })
    : new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "warploom" });
}

function isForeign(url: string | URL): boolean {
  const { protocol, origin } = new URL(url);
  return protocol.startsWith("http") && origin !== globalThis.location.origin;
}

/** A worker must be of the page's origin, but may import modules of another one, such as a CDN's. */
function crossOriginWorker(url: URL): Worker {
  if (!isForeign(url)) {
    return new Worker(url, { type: "module", name: "warploom" });
  }
  const text = `import ${JSON.stringify(url.href)};`;
  const shim = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const worker = new Worker(shim, { type: "module", name: "warploom" });
  // The address is needed until the worker has started; its first message says that.
  worker.addEventListener("message", () => URL.revokeObjectURL(shim), { once: true });
  worker.addEventListener("error", () => URL.revokeObjectURL(shim), { once: true });
  return worker;
}
