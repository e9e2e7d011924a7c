// The calls of the page, executed on the WebAssembly module.
import { text } from "../check.js";
import { WarploomError, asError, cancelled } from "../errors.js";
import type { CallName, Calls, FileFrom, OpenedModel, Recording } from "../protocol.js";
import type { Progress, SessionOptions, TensorInfo } from "../types.js";
import type { Backend, BackendEngine, BackendModel, BackendTensors } from "./backend.js";
import { type Wanted, digest, stored, storedPart } from "./download.js";
import { fileAddress } from "./http.js";
import {
  BlobSource, type OpenSource, downloadBlob, openStored, withParts,
} from "./sources.js";
import { Surface } from "./surface.js";
import { keyOf, listModels, nameOf, openFolder, removeModel } from "./storage.js";

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

/** Addresses of the package's files. */
export interface Files {
  wasm: URL;
  /** The embedded model. */
  model: URL;
}

export class Host {
  readonly #backend: Backend;
  readonly #files: Files;
  readonly #models = new Map<number, Held>();
  #engine: BackendEngine | null = null;
  #tensors: BackendTensors | null = null;
  #memory: WebAssembly.Memory | null = null;
  readonly #surfaces = new Map<number, Surface>();
  #opening: Promise<unknown> = Promise.resolve();
  #next = 1;

  constructor(backend: Backend, files: Files) {
    this.#backend = backend;
    this.#files = files;
  }

  /** Executes what needs no answer; the module keeps its errors for the reads. */
  record(record: Recording): void {
    const tensors = this.#tensors;
    if (!tensors) {
      // Every read and every call of a pack says why.
      return;
    }
    if ("create" in record) {
      // An error here would be that of no call, so that what is no text becomes one that is refused.
      tensors.create(
        record.create, record.words, String(record.dtype), Float64Array.from(record.shape));
    } else if ("to" in record) {
      tensors.record(Uint32Array.from(record.to), String(record.operation));
    } else if ("discard" in record) {
      tensors.discard(Uint32Array.from(record.discard));
    } else if ("discardSurface" in record) {
      this.#surfaces.delete(record.discardSurface);
    } else {
      tensors.discardPack(record.discardPack);
    }
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
      const { memory } = await this.#backend.default({ module_or_path: this.#files.wasm });
      this.#memory = memory;
      this.#engine = await this.#backend.Engine.open(json(args));
      this.#tensors = this.#engine.tensors?.() ?? null;
      return JSON.parse(this.#engine.info());
    },
    embedded: async ({ options }, context) =>
      this.#openFrom(await this.#embedded(context), options, context),
    load: async ({ from, options, sha256 }, context) => {
      const source = await this.#fetch(from, sha256?.toLowerCase() ?? null, context);
      return await withoutBad(from, () => this.#openFrom(source, options, context));
    },
    estimate: ({ from, options }, { signal }) => this.#estimate(from, options, signal),
    generate: ({ handle, prompt, options }, context) =>
      this.#text(handle, context, (model, event) =>
        model.generate(text("generate", "prompt", prompt), json(options), event)),
    chat: ({ handle, messages, options }, context) =>
      this.#text(handle, context, (model, event) =>
        model.chat(json(messages), json(options), event)),
    tokenize: ({ handle, text: words }) => this.#queued(handle,
      async ({ model }) => model.tokenize(text("tokenize", "text", words))),
    detokenize: ({ handle, ids }) =>
      this.#queued(handle, async ({ model }) => model.detokenize(Uint32Array.from(ids))),
    explain: ({ handle, runs }) => this.#queued(handle, async ({ model }) =>
      JSON.parse(await model.explain(json({ runs })))),
    tensorInfo: async ({ id }) => JSON.parse(present(this.#tensors, "tensors").info(id)),
    tensorData: async ({ id }) => {
      const tensors = present(this.#tensors, "tensors");
      const { dtype } = JSON.parse(tensors.info(id)) as TensorInfo;
      return { dtype, bytes: await tensors.read(id) };
    },
    eval: async ({ ids }) => {
      await present(this.#tensors, "tensors").eval(Uint32Array.from(ids));
      return null;
    },
    surface: async ({ to, canvas }) => {
      present(this.#tensors, "surfaces");
      const readback = JSON.parse(this.#opened().info()).provider !== "webgpu";
      this.#surfaces.set(to, new Surface(canvas, readback));
      return { readback };
    },
    draw: async ({ surface, id }) => {
      const found = this.#surfaces.get(surface);
      if (!found) {
        throw new WarploomError("invalid", "draw: the surface is disposed");
      }
      await found.draw(present(this.#tensors, "surfaces"), id);
      return null;
    },
    pack: async ({ to, manifest, files }) => JSON.parse(
      present(this.#tensors, "kernel packs").pack(to, text("pack", "manifest", manifest), json(files))),
    closeModel: ({ handle }) => this.#queued(handle, async (held) => {
      this.#models.delete(handle);
      held.model.free();
      held.source?.close();
      return null;
    }),
    close: async () => null,
    memory: async () => ({
      ...JSON.parse(this.#opened().memory()),
      wasm: this.#memory?.buffer.byteLength ?? 0,
    }),
    models: () => listModels(),
    remove: ({ name }) => removeModel(name),
    conformance: async ({ device, elements, cases }, { event }) => JSON.parse(
      await present(this.#backend.conformance, "checks of devices")(
        text("conformance", "device", device), elements,
        cases === undefined ? undefined : text("conformance", "name of the cases", cases),
        (done, total, name) => event({ done, total, name }))),
    shaders: async (_, context) => JSON.parse(
      present(this.#backend.shaders, "checks of devices")(await this.#embedded(context))),
  };

  #opened(): BackendEngine {
    if (!this.#engine) {
      throw new WarploomError("closed", "the engine is not open");
    }
    return this.#engine;
  }

  /** The file of the embedded model, from where the package is. */
  async #embedded({ signal, event }: Context): Promise<BlobSource> {
    return await downloadBlob(this.#files.model.href, signal,
      (done, total) => event({ phase: "download", done, total } satisfies Progress), {});
  }

  async #openFrom(
    source: OpenSource,
    options: SessionOptions,
    context: Context,
  ): Promise<OpenedModel> {
    try {
      return await this.#open(context, async (engine) => ({
        model: await this.#load(engine, source, options, context),
        source,
      }));
    } catch (thrown) {
      source.close();
      throw thrown;
    }
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
      return await engine.load(checked, json(options), progress);
    } catch (thrown) {
      throw signal.aborted ? cancelled("loading the model") : withSizes(thrown, engine, source, options);
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
      return await stored(folder, { url, sha256, signal, progress },
        (file) => openStored(file, nameOf(url)));
    }
    const blob = await downloadBlob(url, signal,
      (done, total) => progress({ phase: "download", done, total }));
    return await checkedBlob(blob, blob.blob, { sha256, signal, progress });
  }

  async #estimate(from: FileFrom, options: SessionOptions, signal: AbortSignal) {
    const engine = this.#opened();
    const wanted = json(options);
    if (from instanceof Blob) {
      const found = JSON.parse(engine.estimate(new BlobSource(from), wanted));
      return { ...found, size: from.size, stored: from.size };
    }
    const url = fileAddress(from);
    const folder = await openFolder();
    const part = folder ? await storedPart(folder, url) : { bytes: 0, file: null };
    const { file } = part;
    if (file) {
      return await withoutBad(from, async () => {
        const source = await openStored(file, nameOf(url));
        try {
          const found = JSON.parse(engine.estimate(source, wanted));
          return { ...found, size: source.size, stored: part.bytes };
        } finally {
          source.close();
        }
      });
    }
    return await withParts(url, signal, (source) => ({
      ...JSON.parse(engine.estimate(source, wanted)),
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
          text: "", finish: "cancelled", promptTokens: 0, cachedTokens: 0, tokens: 0, promptSeconds: 0,
          seconds: 0,
        };
      }
      const result = run(model, (json) => {
        event(JSON.parse(json));
        return !signal.aborted;
      });
      return JSON.parse(await result.catch((thrown: unknown) => { throw withTokens(thrown); }));
    });
  }
}

/** The module counts tokens with 32 bits. More than it can count is no limit. */
const MOST_TOKENS = 0x7fff_ffff;

/** Always a text, as the module expects: an absent value is an empty one. */
function json(value: unknown): string {
  return JSON.stringify(value, (key, field: unknown) =>
    (key === "maxTokens" || key === "topK") && Number(field) > MOST_TOKENS ? MOST_TOKENS : field) ?? "";
}

/**
 * Runs what reads a complete file. A stored one that is no model, such as the page of a login, is
 * deleted: it would be in the way of every later load.
 */
async function withoutBad<T>(from: FileFrom, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (thrown) {
    const { kind, message, details } = asError(thrown);
    if (kind !== "bad-file" || typeof from !== "string" || !await openFolder()) {
      throw thrown;
    }
    const name = await keyOf(fileAddress(from));
    // Another tab may have it open.
    const deleted = await removeModel(name).catch(() => false);
    throw new WarploomError(
      kind, deleted ? `${message}; the stored file was deleted` : message, { ...details, name });
  }
}

/** An error of a text that is too long, with the numbers that are in its message. */
function withTokens(thrown: unknown): unknown {
  const { kind, message } = asError(thrown);
  const [, tokens, context] =
    /(?:takes|has) (\d+) tokens.* context (?:has|of) (\d+) positions/s.exec(message) ?? [];
  return kind === "invalid" && tokens !== undefined
    ? new WarploomError(kind, message, { tokens: Number(tokens), context: Number(context) }) : thrown;
}

/** An error of too little memory with what the model needs: browsers do not say what was refused. */
function withSizes(
  thrown: unknown,
  engine: BackendEngine,
  source: OpenSource,
  options: SessionOptions,
): unknown {
  const error = asError(thrown);
  if (error.kind !== "out-of-memory") {
    return thrown;
  }
  const { weights, cache, arena } = JSON.parse(engine.estimate(source, json(options)));
  return new WarploomError("out-of-memory",
    `${source.name} needs ${weights} bytes for weights, ${cache} for the KV cache of its context and `
    + `${arena} for intermediates: ${error.message}`, { weights, cache, arena });
}

/** A part that only the larger module has. */
function present<T>(part: T | null | undefined, what: string): T {
  if (part === null || part === undefined) {
    throw new WarploomError("unsupported",
      `${what} are in the larger module: open the engine with open({ full: true })`);
  }
  return part;
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
