import "./dispose.js";
import { type CallOptions, Connection } from "./connection.js";
import { WarploomError } from "./errors.js";
import { Model } from "./model.js";
import { Chat } from "./openai.js";
import { Pack } from "./pack.js";
import type { CallName, ConformanceProgress, FileFrom, OpenedModel } from "./protocol.js";
import { Surface } from "./surface.js";
import { type Tensor, type TensorData, Tensors } from "./tensor.js";
import type {
  ConformanceReport, DType, EngineInfo, Estimate, LoadOptions, MemoryUse, OpenOptions, Recovered,
  SessionOptions, ShaderText, StoredModel,
} from "./types.js";

/** Starts a worker and opens a device in it. */
export async function open(options: OpenOptions = {}): Promise<Engine> {
  const { workerUrl, full = false, ...rest } = options;
  const connection = new Connection(full, workerUrl);
  try {
    return new Engine(connection, await connection.call("open", rest));
  } catch (error) {
    connection.end(new WarploomError("closed", "the engine did not open"));
    throw error;
  }
}

/** The event "recovered": a lost device was opened again, and the answer goes on. */
export class RecoveredEvent extends Event {
  readonly recovered: Recovered;
  readonly model: Model;

  constructor(model: Model, recovered: Recovered) {
    super("recovered");
    this.model = model;
    this.recovered = recovered;
  }
}

/** An open device, in a worker of its own. It has the event "recovered". */
export class Engine extends EventTarget {
  readonly info: EngineInfo;
  /** The shape of OpenAI's client: `engine.chat.completions.create(..)`. */
  readonly chat: Chat;
  readonly #connection: Connection;
  readonly #models = new Set<Model>();
  readonly #tensors: Tensors;

  /** @internal */
  constructor(connection: Connection, info: EngineInfo) {
    super();
    this.#tensors = new Tensors(connection);
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

  /** A tensor of values in row-major order; needs `open({ full: true })`, as all tensors do. */
  tensor(data: TensorData, shape?: readonly number[], dtype?: DType): Tensor {
    return this.#tensors.create(data, shape, dtype);
  }

  zeros(shape: readonly number[], dtype: DType = "f32"): Tensor {
    return this.full(shape, 0, dtype);
  }

  ones(shape: readonly number[], dtype: DType = "f32"): Tensor {
    return this.full(shape, 1, dtype);
  }

  full(shape: readonly number[], value: number | boolean, dtype: DType = "f32"): Tensor {
    return this.#tensors.one("full", [value], { sizes: shape, dtype });
  }

  /** Uniform values in [0, 1), the same for a seed on every device. */
  rand(shape: readonly number[], seed = 0): Tensor {
    return this.#tensors.one("rand", [], { sizes: shape, numbers: [seed] });
  }

  /** Normally distributed values with mean 0 and variance 1. */
  randn(shape: readonly number[], seed = 0): Tensor {
    return this.#tensors.one("randn", [], { sizes: shape, numbers: [seed] });
  }

  arange(start: number, end: number, step = 1): Tensor {
    return this.#tensors.one("arange", [], { numbers: [start, end, step] });
  }

  linspace(start: number, end: number, count: number): Tensor {
    return this.#tensors.one("linspace", [], { numbers: [start, end, count] });
  }

  eye(n: number): Tensor {
    return this.#tensors.one("eye", [], { numbers: [n] });
  }

  /**
   * Computes tensors together, without a read; their values stay on the device. What is computed
   * from them later starts there, and does not compute them again.
   */
  async eval(...tensors: readonly Tensor[]): Promise<void> {
    const ids = tensors.map((tensor) => tensor.numberIn(this.#tensors));
    await this.#connection.call("eval", { ids });
  }

  /** Runs `make`, and frees the tensors that it made but those that it returns, alone or in an array. */
  tidy<T extends Tensor | readonly Tensor[] | void>(make: () => T): T {
    return this.#tensors.tidy(make);
  }

  /** Reads and checks a kernel pack: the text of its pack.toml, and its files by name. */
  async pack(pack: { manifest: string; files: Readonly<Record<string, string>> }): Promise<Pack> {
    const to = this.#tensors.number();
    const info = await this.#connection.call(
      "pack", { to, manifest: pack.manifest, files: Object.entries(pack.files) });
    return new Pack(this.#tensors, to, info);
  }

  /**
   * Takes a canvas, on which nothing has been drawn yet, to draw tensors on it. On WebGPU the canvas
   * reads the memory in which they were computed.
   */
  async surface(canvas: HTMLCanvasElement): Promise<Surface> {
    const to = this.#tensors.number();
    let offscreen: OffscreenCanvas;
    try {
      offscreen = canvas.transferControlToOffscreen();
    } catch (thrown) {
      throw new WarploomError("invalid", `surface: ${(thrown as Error).message}`);
    }
    const { readback } = await this.#connection.call(
      "surface", { to, canvas: offscreen }, { transfer: [offscreen] });
    return new Surface(this.#tensors, to, readback);
  }

  /** How much memory the engine takes now, of the device and of its worker. */
  memory(): Promise<MemoryUse> {
    return this.#connection.call("memory", null);
  }

  /** Runs the conformance table on a device of this browser. With `elements`, cases in which a
   * tensor has more elements are left out; with `cases`, those whose name does not contain it. */
  conformance(options: {
    device?: string;
    elements?: number;
    cases?: string;
    onProgress?: (progress: ConformanceProgress) => void;
  } = {}): Promise<ConformanceReport> {
    const { device = this.info.provider, elements, cases, onProgress } = options;
    const limit = {
      ...(elements === undefined ? {} : { elements }), ...(cases === undefined ? {} : { cases }),
    };
    return this.#connection.call(
      "conformance", { device, ...limit }, onProgress ? { event: onProgress } : {});
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
    const model = new Model(this.#connection, opened, {
      closed: (closed) => this.#models.delete(closed),
      recovered: (of, recovered) => this.dispatchEvent(new RecoveredEvent(of, recovered)),
    });
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
