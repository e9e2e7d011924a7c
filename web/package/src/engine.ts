/// <reference lib="esnext.disposable" preserve="true" />
import "./dispose.js";
import {
  ADDRESS, BOOLEAN, CONFORMANCE, DTYPE, EMBEDDED, ESTIMATE, FINITE, LOAD, OBJECT, OPEN, SHAPE, STRING, check,
  invalid, options as checked, shown, text as checkText, whole,
} from "./check.js";
import { type CallOptions, Connection } from "./connection.js";
import { WarploomError, cancelled } from "./errors.js";
import { Model } from "./model.js";
import { Chat } from "./openai.js";
import { Pack } from "./pack.js";
import type { CallName, ConformanceProgress, FileFrom, OpenedModel } from "./protocol.js";
import { Surface } from "./surface.js";
import { type Tensor, type TensorData, Tensors } from "./tensor.js";
import { representable } from "./values.js";
import type {
  ConformanceReport, DType, EngineInfo, Estimate, LoadOptions, MemoryUse, OpenOptions, Recovered,
  SessionOptions, ShaderText, StoredModel,
} from "./types.js";

/** Starts a worker and opens a device in it. */
export async function open(options: OpenOptions = {}): Promise<Engine> {
  const { workerUrl, full = false, ...rest } = checked("open", options, OPEN);
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

/** The events of an engine by their names. */
export interface EngineEvents {
  recovered: RecoveredEvent;
}

/** A function or an object that gets events. */
type Listener<E> =
  | ((this: Engine, event: E) => unknown) | { handleEvent(event: E): unknown } | null;

/** The listeners of an engine's events get them with their types. */
export interface Engine {
  addEventListener<K extends keyof EngineEvents>(
    type: K, listener: Listener<EngineEvents[K]>, options?: boolean | AddEventListenerOptions): void;
  addEventListener(
    type: string, listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions): void;
  removeEventListener<K extends keyof EngineEvents>(
    type: K, listener: Listener<EngineEvents[K]>, options?: boolean | EventListenerOptions): void;
  removeEventListener(
    type: string, listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions): void;
}

/** The largest number of values of four bytes that WebAssembly can hold in one place. */
const MOST = 0x1fff_ffff;

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
    this.chat = new Chat(() => {
      connection.check();
      return [...this.#models];
    });
  }

  /** The small model that is part of the package: for tests and demos, offline at once. */
  async embedded(options: Omit<LoadOptions, "sha256"> = {}): Promise<Model> {
    const { onProgress, signal, ...session } = checked("embedded", options, EMBEDDED);
    return await this.#add(await this.#connection.call(
      "embedded", { options: session }, listeners<"embedded">(onProgress, signal)), signal);
  }

  /**
   * Loads a GGUF file. A URL is downloaded into the browser's storage first, resumed where an
   * earlier download was cut, and not requested again once it is complete.
   */
  async load(from: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
    const { onProgress, signal, sha256, ...session } = checked("load", options, LOAD);
    const args = { from: fileFrom("load", from), options: session, ...(sha256 ? { sha256 } : {}) };
    return await this.#add(await this.#connection.call(
      "load", args, listeners<"load">(onProgress, signal)), signal);
  }

  /** Reads the head of a file and says what the model needs, before it is loaded. */
  async estimate(
    from: string | URL | Blob,
    options: SessionOptions & { signal?: AbortSignal } = {},
  ): Promise<Estimate> {
    const { signal, ...session } = checked("estimate", options, ESTIMATE);
    return await this.#connection.call(
      "estimate", { from: fileFrom("estimate", from), options: session }, { signal });
  }

  /** The models in the browser's storage, also incomplete ones. */
  models(): Promise<StoredModel[]> {
    return this.#connection.call("models", null);
  }

  /**
   * Deletes a stored model; false if there is none of that name. One that is being downloaded, or
   * that a tab has open, is refused with kind "in-use".
   */
  async remove(name: string): Promise<boolean> {
    check("remove", "name", name, {
      must: "the name of a stored model",
      is: (value) => STRING.is(value) && value !== "" && !/\.(json|part)$/.test(name),
    });
    return await this.#connection.call("remove", { name });
  }

  /** A tensor of values in row-major order; needs `open({ full: true })`, as all tensors do. */
  tensor(data: TensorData, shape?: readonly number[], dtype?: DType): Tensor {
    return this.#tensors.create(data, shape, dtype);
  }

  zeros(shape: readonly number[], dtype: DType = "f32"): Tensor {
    return this.#full("zeros", shape, 0, dtype);
  }

  ones(shape: readonly number[], dtype: DType = "f32"): Tensor {
    return this.#full("ones", shape, 1, dtype);
  }

  full(shape: readonly number[], value: number | boolean, dtype: DType = "f32"): Tensor {
    return this.#full("full", shape, value, dtype);
  }

  /** Uniform values in [0, 1), the same for a seed on every device. */
  rand(shape: readonly number[], seed = 0): Tensor {
    return this.#random("rand", shape, seed);
  }

  /** Normally distributed values with mean 0 and variance 1. */
  randn(shape: readonly number[], seed = 0): Tensor {
    return this.#random("randn", shape, seed);
  }

  arange(start: number, end: number, step = 1): Tensor {
    for (const [name, value] of Object.entries({ start, end, step })) check("arange", name, value, FINITE);
    if ((end - start) / step > MOST) {
      throw invalid(`arange: from ${start} to ${end} by ${step} are over ${MOST} values`);
    }
    return this.#tensors.one("arange", {}, { numbers: { start, end, step } });
  }

  linspace(start: number, end: number, count: number): Tensor {
    check("linspace", "count", count, whole(0, MOST));
    return this.#tensors.one("linspace", {}, { numbers: { start, end, count } });
  }

  eye(n: number): Tensor {
    check("eye", "n", n, whole(0, Math.floor(Math.sqrt(MOST))));
    return this.#tensors.one("eye", {}, { numbers: { n } });
  }

  /**
   * Computes tensors together, without a read; their values stay on the device. What is computed
   * from them later starts there, and does not compute them again.
   */
  async eval(...tensors: readonly Tensor[]): Promise<void> {
    const ids = tensors.map((tensor, i) => this.#tensors.idOf("eval", `argument ${i + 1}`, tensor));
    await this.#connection.call("eval", { ids });
  }

  /**
   * Runs `make`, and frees the tensors that it made but those that it returns, alone or in an array.
   * It cannot be async.
   */
  tidy<T extends Tensor | readonly Tensor[] | void>(make: () => T): T {
    return this.#tensors.tidy(make);
  }

  /** Reads and checks a kernel pack: the text of its pack.toml, and its files by name. */
  async pack(pack: { manifest: string; files: Readonly<Record<string, string>> }): Promise<Pack> {
    check("pack", "its argument", pack, { ...OBJECT, must: "{ manifest, files }" });
    checkText("pack", "manifest", pack.manifest);
    check("pack", "files", pack.files, { ...OBJECT, must: "an object with texts by their names" });
    for (const [name, content] of Object.entries(pack.files)) check("pack", shown(name), content, STRING);
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
    check("surface", "canvas", canvas, {
      must: "a canvas of the page", is: (value) => value instanceof HTMLCanvasElement,
    });
    const to = this.#tensors.number();
    let offscreen: OffscreenCanvas;
    try {
      offscreen = canvas.transferControlToOffscreen();
    } catch (thrown) {
      throw invalid(`surface: ${(thrown as Error).message}`);
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
  async conformance(options: {
    device?: string;
    elements?: number;
    cases?: string;
    onProgress?: (progress: ConformanceProgress) => void;
  } = {}): Promise<ConformanceReport> {
    const { device = this.info.provider, elements, cases, onProgress } =
      checked("conformance", options, CONFORMANCE);
    const limit = {
      ...(elements === undefined ? {} : { elements }), ...(cases === undefined ? {} : { cases }),
    };
    return await this.#connection.call(
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

  #full(call: string, shape: readonly number[], value: number | boolean, dtype: DType): Tensor {
    check(call, "shape", shape, SHAPE);
    check(call, "dtype", dtype, DTYPE);
    check(call, "value", value, {
      must: "a number or a boolean", is: (it) => typeof it === "number" || BOOLEAN.is(it),
    });
    representable(call, value, dtype);
    // The module takes integers of 32 bits with a sign, and greater ones as f32, which rounds them.
    return dtype === "u32" && Number(value) > 0x7fff_ffff
      ? this.#tensors.create(value, [], dtype).expand(...shape)
      : this.#tensors.one("full", { value }, { sizes: { shape }, dtype }, call);
  }

  #random(op: "rand" | "randn", shape: readonly number[], seed: number): Tensor {
    check(op, "shape", shape, SHAPE);
    check(op, "seed", seed, whole(0));
    return this.#tensors.one(op, {}, { sizes: { shape }, numbers: { seed } });
  }

  /** The model of a call that succeeded; one whose signal was aborted is closed again. */
  async #add(opened: OpenedModel, signal: AbortSignal | undefined): Promise<Model> {
    const model = new Model(this.#connection, opened, {
      closed: (closed) => this.#models.delete(closed),
      recovered: (of, recovered) => this.dispatchEvent(new RecoveredEvent(of, recovered)),
    });
    if (signal?.aborted) {
      // The worker had answered before it heard of that.
      await model.close();
      throw cancelled("loading the model");
    }
    this.#models.add(model);
    return model;
  }
}

function fileFrom(call: string, from: string | URL | Blob): FileFrom {
  if (from instanceof Blob) {
    return from;
  }
  check(call, "the file", from, { ...ADDRESS, must: "an address, a File or a Blob" });
  try {
    return new URL(from, document.baseURI).href;
  } catch {
    throw invalid(`${call}: ${shown(from)} is no address`);
  }
}

function listeners<C extends CallName>(
  event: LoadOptions["onProgress"],
  signal: AbortSignal | undefined,
) {
  return { signal, ...(event ? { event } : {}) } as CallOptions<C>;
}
