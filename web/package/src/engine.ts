import "./dispose.js";
import { type CallOptions, Connection } from "./connection.js";
import { WarploomError } from "./errors.js";
import { Model } from "./model.js";
import { Chat } from "./openai.js";
import type { CallName, ConformanceProgress, FileFrom, OpenedModel } from "./protocol.js";
import type {
  ConformanceReport, EngineInfo, Estimate, LoadOptions, OpenOptions, SessionOptions, ShaderText,
  StoredModel,
} from "./types.js";

/** Starts a worker and opens a device in it. */
export async function open(options: OpenOptions = {}): Promise<Engine> {
  const { workerUrl, ...rest } = options;
  const connection = new Connection(workerUrl);
  try {
    return new Engine(connection, await connection.call("open", rest));
  } catch (error) {
    connection.end(new WarploomError("closed", "the engine did not open"));
    throw error;
  }
}

/** An open device, in a worker of its own. */
export class Engine {
  readonly info: EngineInfo;
  /** The shape of OpenAI's client: `engine.chat.completions.create(..)`. */
  readonly chat: Chat;
  readonly #connection: Connection;
  readonly #models = new Set<Model>();

  /** @internal */
  constructor(connection: Connection, info: EngineInfo) {
    this.#connection = connection;
    this.info = info;
    this.chat = new Chat(() => [...this.#models]);
  }

  /** The small model that is part of the package: for tests and demos, offline at once. */
  async embedded(options: Omit<LoadOptions, "sha256"> = {}): Promise<Model> {
    const { onProgress, signal, ...session } = options;
    return this.#add(await this.#connection.call(
      "embedded", { options: session }, listeners<"embedded">(onProgress, signal)));
  }

  /**
   * Loads a GGUF file. A URL is downloaded into the browser's storage first, resumed where an
   * earlier download was cut, and not requested again once it is complete.
   */
  async load(from: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
    const { onProgress, signal, sha256, ...session } = options;
    const args = { from: fileFrom(from), options: session, ...(sha256 ? { sha256 } : {}) };
    return this.#add(await this.#connection.call(
      "load", args, listeners<"load">(onProgress, signal)));
  }

  /** Reads the head of a file and says what the model needs, before it is loaded. */
  estimate(
    from: string | URL | Blob,
    options: SessionOptions & { signal?: AbortSignal } = {},
  ): Promise<Estimate> {
    const { signal, ...session } = options;
    return this.#connection.call(
      "estimate", { from: fileFrom(from), options: session }, { signal });
  }

  /** The models in the browser's storage, also incomplete ones. */
  models(): Promise<StoredModel[]> {
    return this.#connection.call("models", null);
  }

  /** Deletes a stored model; false if there is none of that name. */
  remove(name: string): Promise<boolean> {
    return this.#connection.call("remove", { name });
  }

  /** Runs the conformance table on a device of this browser. */
  conformance(options: {
    device?: string;
    onProgress?: (progress: ConformanceProgress) => void;
  } = {}): Promise<ConformanceReport> {
    const { device = this.info.provider, onProgress } = options;
    return this.#connection.call(
      "conformance", { device }, onProgress ? { event: onProgress } : {});
  }

  /** Every shader text that a device of a browser can get. */
  shaders(): Promise<ShaderText[]> {
    return this.#connection.call("shaders", null);
  }

  /** Frees the device and ends the worker. Calls that run fail with kind "closed". */
  async close(): Promise<void> {
    this.#models.clear();
    this.#connection.end(new WarploomError("closed", "the engine is closed"));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #add(opened: OpenedModel): Model {
    const model = new Model(this.#connection, opened, (closed) => this.#models.delete(closed));
    this.#models.add(model);
    return model;
  }
}

function fileFrom(from: string | URL | Blob): FileFrom {
  if (from instanceof Blob) {
    return from;
  }
  try {
    return new URL(from, document.baseURI).href;
  } catch {
    throw new WarploomError("invalid", `"${String(from)}" is no address`);
  }
}

function listeners<C extends CallName>(
  event: LoadOptions["onProgress"],
  signal: AbortSignal | undefined,
) {
  return { signal, ...(event ? { event } : {}) } as CallOptions<C>;
}
