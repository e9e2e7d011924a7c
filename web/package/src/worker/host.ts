// The calls of the page, executed on the WebAssembly module.
import { WarploomError } from "../errors.js";
import type { CallName, Calls, FileFrom, OpenedModel } from "../protocol.js";
import type { Progress, SessionOptions } from "../types.js";
import type { Backend, BackendEngine, BackendModel } from "./backend.js";
import { type Wanted, digest, stored, storedPart } from "./download.js";
import { cancelled, fileAddress } from "./http.js";
import {
  BlobSource, type OpenSource, downloadBlob, openStored, withParts,
} from "./sources.js";
import { listModels, nameOf, openFolder, removeModel } from "./storage.js";

export interface Context {
  signal: AbortSignal;
  event: (event: unknown) => void;
}

type Handlers = {
  [C in CallName]: (args: Calls[C]["args"], context: Context) => Promise<Calls[C]["result"]>;
};

interface Held {
  model: BackendModel;
  source: OpenSource | null;
  /** The calls of a model run one after the other. */
  last: Promise<unknown>;
}

export class Host {
  readonly #backend: Backend;
  readonly #wasmUrl: URL;
  readonly #models = new Map<number, Held>();
  #engine: BackendEngine | null = null;
  #opening: Promise<unknown> = Promise.resolve();
  #next = 1;

  constructor(backend: Backend, wasmUrl: URL) {
    this.#backend = backend;
    this.#wasmUrl = wasmUrl;
  }

  call<C extends CallName>(
    call: C,
    args: Calls[C]["args"],
    context: Context,
  ): Promise<Calls[C]["result"]> {
    return this.#handlers[call](args, context);
  }

  readonly #handlers: Handlers = {
    open: async (args) => {
      await this.#backend.default({ module_or_path: this.#wasmUrl });
      this.#engine = await this.#backend.Engine.open(JSON.stringify(args));
      return JSON.parse(this.#engine.info());
    },
    embedded: ({ options }, context) => this.#open(context, async (engine) => ({
      model: await engine.embedded(JSON.stringify(options)),
      source: null,
    })),
    load: async ({ from, options, sha256 }, context) => {
      const source = await this.#fetch(from, sha256?.toLowerCase() ?? null, context);
      try {
        return await this.#open(context, async (engine) => ({
          model: await this.#load(engine, source, options, context),
          source,
        }));
      } catch (thrown) {
        source.close();
        throw thrown;
      }
    },
    estimate: ({ from, options }, { signal }) => this.#estimate(from, options, signal),
    generate: ({ handle, prompt, options }, context) =>
      this.#text(handle, context, (model, event) =>
        model.generate(prompt, JSON.stringify(options), event)),
    chat: ({ handle, messages, options }, context) =>
      this.#text(handle, context, (model, event) =>
        model.chat(JSON.stringify(messages), JSON.stringify(options), event)),
    tokenize: ({ handle, text }) => this.#queued(handle, async ({ model }) => model.tokenize(text)),
    detokenize: ({ handle, ids }) =>
      this.#queued(handle, async ({ model }) => model.detokenize(ids)),
    closeModel: ({ handle }) => this.#queued(handle, async (held) => {
      this.#models.delete(handle);
      held.model.free();
      held.source?.close();
      return null;
    }),
    close: async () => null,
    models: () => listModels(),
    remove: ({ name }, { signal }) => removeModel(name, signal),
    conformance: async ({ device }, { event }) => JSON.parse(
      await present(this.#backend.conformance)(device,
        (done, total, name) => event({ done, total, name }))),
    shaders: async () => JSON.parse(present(this.#backend.shaders)()),
  };

  #opened(): BackendEngine {
    if (!this.#engine) {
      throw new WarploomError("closed", "the engine is not open");
    }
    return this.#engine;
  }

  /** Opens a model; one at a time, since each takes all of the memory that it can get. */
  #open(
    { signal }: Context,
    open: (engine: BackendEngine) => Promise<Omit<Held, "last">>,
  ): Promise<OpenedModel> {
    const run = this.#opening.then(async () => {
      if (signal.aborted) {
        throw cancelled("loading the model");
      }
      const held = { ...await open(this.#opened()), last: Promise.resolve() };
      if (signal.aborted) {
        held.model.free();
        throw cancelled("loading the model");
      }
      const handle = this.#next++;
      this.#models.set(handle, held);
      return { handle, info: JSON.parse(held.model.info()) };
    });
    this.#opening = run.catch(() => undefined);
    return run;
  }

  async #load(
    engine: BackendEngine,
    source: OpenSource,
    options: SessionOptions,
    { signal, event }: Context,
  ): Promise<BackendModel> {
    const checked = {
      name: source.name,
      size: source.size,
      read(offset: number, into: Uint8Array) {
        if (signal.aborted) {
          throw cancelled("loading the model");
        }
        source.read(offset, into);
      },
    };
    const progress = (done: number, total: number) =>
      event({ phase: "load", done, total } satisfies Progress);
    try {
      return await engine.load(checked, JSON.stringify(options), progress);
    } catch (thrown) {
      throw signal.aborted ? cancelled("loading the model") : thrown;
    }
  }

  /** The file, on this machine. */
  async #fetch(
    from: FileFrom,
    sha256: string | null,
    { signal, event }: Context,
  ): Promise<OpenSource> {
    const progress = (now: Progress) => event(now);
    if (from instanceof Blob) {
      return await checkedBlob(new BlobSource(from), from, { sha256, signal, progress });
    }
    const url = fileAddress(from);
    const folder = await openFolder();
    if (folder) {
      const file = await stored(folder, { url, sha256, signal, progress });
      return await openStored(file, nameOf(url));
    }
    const blob = await downloadBlob(url, signal,
      (done, total) => progress({ phase: "download", done, total }));
    return await checkedBlob(blob, blob.blob, { sha256, signal, progress });
  }

  async #estimate(from: FileFrom, options: SessionOptions, signal: AbortSignal) {
    const engine = this.#opened();
    const text = JSON.stringify(options);
    if (from instanceof Blob) {
      const found = JSON.parse(engine.estimate(new BlobSource(from), text));
      return { ...found, size: from.size, stored: from.size };
    }
    const url = fileAddress(from);
    const folder = await openFolder();
    const part = folder ? await storedPart(folder, url) : { bytes: 0, file: null };
    if (part.file) {
      const source = await openStored(part.file, nameOf(url));
      try {
        const found = JSON.parse(engine.estimate(source, text));
        return { ...found, size: source.size, stored: part.bytes };
      } finally {
        source.close();
      }
    }
    return await withParts(url, signal, (source) => ({
      ...JSON.parse(engine.estimate(source, text)),
      size: source.size,
      stored: part.bytes,
    }));
  }

  async #queued<T>(handle: number, run: (held: Held) => Promise<T>): Promise<T> {
    const held = this.#models.get(handle);
    if (!held) {
      throw new WarploomError("closed", "the model is closed");
    }
    const next = held.last.then(() => {
      if (!this.#models.has(handle)) {
        throw new WarploomError("closed", "the model is closed");
      }
      return run(held);
    });
    held.last = next.catch(() => undefined);
    return await next;
  }

  #text(
    handle: number,
    { signal, event }: Context,
    run: (model: BackendModel, event: (json: string) => boolean) => Promise<string>,
  ): Promise<Calls["generate"]["result"]> {
    return this.#queued(handle, async ({ model }) => {
      if (signal.aborted) {
        // Cancelled while it waited for its turn.
        return {
          text: "", finish: "cancelled", promptTokens: 0, tokens: 0, promptSeconds: 0, seconds: 0,
        };
      }
      return JSON.parse(await run(model, (json) => {
        event(JSON.parse(json));
        return !signal.aborted;
      }));
    });
  }
}

/** A function of the module's checks. */
function present<T>(check: T | undefined): T {
  if (check === undefined) {
    throw new WarploomError("unsupported", "this build of the module has no checks");
  }
  return check;
}

/** The file if its SHA-256 is the wanted one. */
async function checkedBlob(
  source: BlobSource,
  blob: Blob,
  wanted: Omit<Wanted, "url">,
): Promise<BlobSource> {
  if (wanted.sha256 !== null) {
    const is = await digest(blob, wanted);
    if (is !== wanted.sha256) {
      throw new WarploomError("checksum",
        `${source.name}: SHA-256 of the ${blob.size} bytes is ${is}, not ${wanted.sha256}`,
        { is, wanted: wanted.sha256, size: blob.size });
    }
  }
  return source;
}
