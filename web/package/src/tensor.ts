import { WarploomError } from "./errors.js";
import type { Connection } from "./connection.js";
import type { DType, TensorInfo } from "./types.js";

/** Numbers in row-major order, or nested arrays that have the shape. */
export type TensorData =
  | number | boolean | Float32Array | Int32Array | Uint32Array | NestedNumbers;
export type NestedNumbers = readonly (number | boolean | NestedNumbers)[];

/** The values of a tensor: the array type is that of the elements, `Uint8Array` for "bool". */
export type TensorValues = Float32Array | Int32Array | Uint32Array | Uint8Array;

/** Another operand: a tensor, or a scalar that is broadcast. */
export type Operand = Tensor | number | boolean;

/** Axes of a reduction; all of them if they are left out. Negative axes count from the last. */
export type Axes = number | readonly number[];

interface Arguments {
  axes?: readonly number[];
  keep?: boolean;
  sizes?: readonly number[];
  numbers?: readonly number[];
  dtype?: DType;
  pack?: number;
  values?: Readonly<Record<string, number>>;
}

/** The tensors of one engine: makes their numbers, and frees them when the page lost them. */
export class Tensors {
  readonly connection: Connection;
  readonly #lost: FinalizationRegistry<number>;
  /** Tensors that were made in the calls of `tidy` that run. */
  readonly #tidied: Tensor[][] = [];
  #next = 1;

  constructor(connection: Connection) {
    this.connection = connection;
    this.#lost = new FinalizationRegistry((id) => this.discard(id));
  }

  number(): number {
    return this.#next++;
  }

  discard(id: number): void {
    this.connection.record({ discard: [id] });
  }

  hold(tensor: Tensor, id: number): void {
    this.#lost.register(tensor, id, tensor);
    this.#tidied.at(-1)?.push(tensor);
  }

  tidy<T extends Tensor | readonly Tensor[] | void>(make: () => T): T {
    const made: Tensor[] = [];
    this.#tidied.push(made);
    let kept: readonly Tensor[] = [];
    try {
      const result = make();
      kept = result instanceof Tensor ? [result] : (result as readonly Tensor[] | undefined) ?? [];
      return result;
    } finally {
      this.#tidied.pop();
      for (const tensor of made) {
        if (kept.includes(tensor)) {
          this.#tidied.at(-1)?.push(tensor);
        } else {
          tensor.dispose();
        }
      }
    }
  }

  release(tensor: Tensor): void {
    this.#lost.unregister(tensor);
  }

  /** Records an operation with `count` results. */
  apply(op: string, of: readonly Operand[], args: Arguments = {}, count = 1): Tensor[] {
    const operands = of.map((operand) => {
      if (operand instanceof Tensor) {
        return { tensor: operand.numberIn(this) };
      }
      // JSON has no such numbers.
      return typeof operand === "number" && !Number.isFinite(operand)
        ? { float: String(operand).replace("Infinity", "inf") } : operand;
    });
    const to = Array.from({ length: count }, () => this.number());
    this.connection.record({ to, operation: JSON.stringify({ op, of: operands, ...args }) });
    return to.map((id) => new Tensor(this, id));
  }

  one(op: string, of: readonly Operand[], args: Arguments = {}): Tensor {
    const [tensor] = this.apply(op, of, args);
    return tensor as Tensor;
  }

  create(data: TensorData, shape?: readonly number[], dtype?: DType): Tensor {
    const { values, sizes } = flat(data);
    const given = dtype ?? typeOf(data, values);
    const words = toWords(values, given);
    const id = this.number();
    this.connection.record(
      { create: id, words, dtype: given === "f16" || given === "bf16" ? "f32" : given,
        shape: [...(shape ?? sizes)] }, [words.buffer]);
    const made = new Tensor(this, id);
    return given === "f16" || given === "bf16" ? made.cast(given) : made;
  }
}

/**
 * A tensor on the engine's device. Operations only record what to compute, and fail only at a
 * read: `data`, `item` or `info`. Their names and meanings are those of the Rust type.
 */
export class Tensor {
  readonly #all: Tensors;
  readonly #id: number;
  #disposed = false;

  /** @internal */
  constructor(all: Tensors, id: number) {
    this.#all = all;
    this.#id = id;
    all.hold(this, id);
  }

  /** Computes the values, in row-major order. f16 and bf16 are converted to f32. */
  async data(): Promise<TensorValues> {
    const { dtype } = await this.info();
    const { buffer, byteOffset, byteLength } =
      await this.#all.connection.call("tensorData", { id: this.#open() });
    const words = byteLength / 4;
    switch (dtype) {
      case "i32": return new Int32Array(buffer, byteOffset, words);
      case "u32": return new Uint32Array(buffer, byteOffset, words);
      case "bool": return Uint8Array.from(new Uint32Array(buffer, byteOffset, words));
      default: return new Float32Array(buffer, byteOffset, words);
    }
  }

  /** Computes the value of a tensor with one element. */
  async item(): Promise<number> {
    const values = await this.data();
    const [value] = values;
    if (value === undefined || values.length !== 1) {
      throw new WarploomError("invalid", `item: the tensor has ${values.length} elements`);
    }
    return value;
  }

  /** Shape and element type; nothing is computed. */
  info(): Promise<TensorInfo> {
    return this.#all.connection.call("tensorInfo", { id: this.#open() });
  }

  /** Frees it, at the latest when the page holds no more reference. Results made of it stay. */
  dispose(): void {
    if (!this.#disposed) {
      this.#disposed = true;
      this.#all.release(this);
      this.#all.discard(this.#id);
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** @internal */
  numberIn(all: Tensors): number {
    if (all !== this.#all) {
      throw new WarploomError("invalid", "the tensors are of different engines");
    }
    return this.#open();
  }

  #open(): number {
    if (this.#disposed) {
      throw new WarploomError("invalid", "the tensor is disposed");
    }
    return this.#id;
  }

  #apply(op: string, of: readonly Operand[] = [], args: Arguments = {}): Tensor {
    return this.#all.one(op, [this, ...of], args);
  }

  #reduce(op: string, axes: Axes | undefined, keep: boolean): Tensor {
    const list = axes === undefined ? {} : { axes: typeof axes === "number" ? [axes] : axes };
    return this.#apply(op, [], { ...list, ...(keep ? { keep } : {}) });
  }

  neg(): Tensor { return this.#apply("neg"); }
  abs(): Tensor { return this.#apply("abs"); }
  exp(): Tensor { return this.#apply("exp"); }
  log(): Tensor { return this.#apply("log"); }
  sqrt(): Tensor { return this.#apply("sqrt"); }
  rsqrt(): Tensor { return this.#apply("rsqrt"); }
  reciprocal(): Tensor { return this.#apply("reciprocal"); }
  square(): Tensor { return this.#apply("square"); }
  sin(): Tensor { return this.#apply("sin"); }
  cos(): Tensor { return this.#apply("cos"); }
  tanh(): Tensor { return this.#apply("tanh"); }
  erf(): Tensor { return this.#apply("erf"); }
  floor(): Tensor { return this.#apply("floor"); }
  ceil(): Tensor { return this.#apply("ceil"); }
  round(): Tensor { return this.#apply("round"); }
  sigmoid(): Tensor { return this.#apply("sigmoid"); }
  silu(): Tensor { return this.#apply("silu"); }
  gelu(): Tensor { return this.#apply("gelu"); }
  geluTanh(): Tensor { return this.#apply("gelu_tanh"); }
  relu(): Tensor { return this.#apply("relu"); }
  logicalNot(): Tensor { return this.#apply("logical_not"); }

  add(other: Operand): Tensor { return this.#apply("add", [other]); }
  sub(other: Operand): Tensor { return this.#apply("sub", [other]); }
  mul(other: Operand): Tensor { return this.#apply("mul", [other]); }
  div(other: Operand): Tensor { return this.#apply("div", [other]); }
  rem(other: Operand): Tensor { return this.#apply("rem", [other]); }
  pow(other: Operand): Tensor { return this.#apply("pow", [other]); }
  minimum(other: Operand): Tensor { return this.#apply("minimum", [other]); }
  maximum(other: Operand): Tensor { return this.#apply("maximum", [other]); }
  eq(other: Operand): Tensor { return this.#apply("eq", [other]); }
  ne(other: Operand): Tensor { return this.#apply("ne", [other]); }
  lt(other: Operand): Tensor { return this.#apply("lt", [other]); }
  le(other: Operand): Tensor { return this.#apply("le", [other]); }
  gt(other: Operand): Tensor { return this.#apply("gt", [other]); }
  ge(other: Operand): Tensor { return this.#apply("ge", [other]); }
  logicalAnd(other: Operand): Tensor { return this.#apply("logical_and", [other]); }
  logicalOr(other: Operand): Tensor { return this.#apply("logical_or", [other]); }
  clamp(low: Operand, high: Operand): Tensor { return this.#apply("clamp", [low, high]); }
  /** Elements of `a` where this "bool" tensor is true, else of `b`. */
  select(a: Operand, b: Operand): Tensor { return this.#apply("select", [a, b]); }
  cast(dtype: DType): Tensor { return this.#apply("cast", [], { dtype }); }

  /** Reductions remove their axes, or keep them with size 1 if `keep` is true. */
  sum(axes?: Axes, keep = false): Tensor { return this.#reduce("sum", axes, keep); }
  mean(axes?: Axes, keep = false): Tensor { return this.#reduce("mean", axes, keep); }
  prod(axes?: Axes, keep = false): Tensor { return this.#reduce("prod", axes, keep); }
  max(axes?: Axes, keep = false): Tensor { return this.#reduce("max", axes, keep); }
  min(axes?: Axes, keep = false): Tensor { return this.#reduce("min", axes, keep); }
  /** Population variance. */
  var(axes?: Axes): Tensor { return this.#reduce("var", axes, false); }
  argmax(axis: number): Tensor { return this.#apply("argmax", [], { sizes: [axis] }); }
  argmin(axis: number): Tensor { return this.#apply("argmin", [], { sizes: [axis] }); }
  softmax(axis: number): Tensor { return this.#apply("softmax", [], { sizes: [axis] }); }
  logSoftmax(axis: number): Tensor { return this.#apply("log_softmax", [], { sizes: [axis] }); }

  /** `[.., m, k]` times `[.., k, n]`. */
  matmul(other: Tensor): Tensor { return this.#apply("matmul", [other]); }
  /** `[.., k]` times the transpose of a weight `[n, k]`. */
  linear(weight: Tensor): Tensor { return this.#apply("linear", [weight]); }
  rmsNorm(weight: Tensor, eps = 1e-5): Tensor {
    return this.#apply("rms_norm", [weight], { numbers: [eps] });
  }
  layerNorm(weight: Tensor, bias: Tensor, eps = 1e-5): Tensor {
    return this.#apply("layer_norm", [weight, bias], { numbers: [eps] });
  }
  /** The rows, along an axis, that a "u32" tensor names. */
  gather(axis: number, ids: Tensor): Tensor {
    return this.#apply("gather", [ids], { sizes: [axis] });
  }

  /** One size may be -1: it follows from the others. */
  reshape(...shape: number[]): Tensor { return this.#apply("reshape", [], { sizes: shape }); }
  flatten(): Tensor { return this.#apply("flatten"); }
  squeeze(axes?: Axes): Tensor { return this.#reduce("squeeze", axes, false); }
  unsqueeze(axis: number): Tensor { return this.#apply("unsqueeze", [], { sizes: [axis] }); }
  permute(...order: number[]): Tensor { return this.#apply("permute", [], { sizes: order }); }
  transpose(a: number, b: number): Tensor {
    return this.#apply("transpose", [], { sizes: [a, b] });
  }
  /** Swaps the last two axes. */
  t(): Tensor { return this.#apply("t"); }
  expand(...shape: number[]): Tensor { return this.#apply("expand", [], { sizes: shape }); }
  /** The indices from `start` up to `end`, without it, of an axis. */
  narrow(axis: number, start: number, end: number): Tensor {
    return this.#apply("narrow", [], { sizes: [axis, start, end] });
  }
  index(axis: number, at: number): Tensor {
    return this.#apply("index", [], { sizes: [axis, at] });
  }
  concat(others: readonly Tensor[], axis: number): Tensor {
    return this.#apply("concat", others, { sizes: [axis] });
  }
  stack(others: readonly Tensor[], axis: number): Tensor {
    return this.#apply("stack", others, { sizes: [axis] });
  }
}

type Flat = Float32Array | Int32Array | Uint32Array | (number | boolean)[];

function flat(data: TensorData): { values: Flat; sizes: number[] } {
  if (typeof data === "number" || typeof data === "boolean") {
    return { values: [data], sizes: [] };
  }
  if (ArrayBuffer.isView(data)) {
    return { values: data, sizes: [data.length] };
  }
  const sizes: number[] = [];
  for (let at: unknown = data; Array.isArray(at); [at] = at) {
    sizes.push(at.length);
  }
  const values: (number | boolean)[] = [];
  const walk = (part: NestedNumbers, depth: number) => {
    if (part.length !== sizes[depth]) {
      throw new WarploomError("invalid",
        `tensor: an array of ${part.length} beside others of ${sizes[depth]} at depth ${depth}`);
    }
    for (const item of part) {
      const last = depth === sizes.length - 1;
      if (Array.isArray(item) && !last) {
        walk(item, depth + 1);
      } else if (last && (typeof item === "number" || typeof item === "boolean")) {
        values.push(item);
      } else {
        throw new WarploomError("invalid",
          `tensor: ${String(item)} at depth ${depth} of arrays that are ${sizes.length} deep`);
      }
    }
  };
  walk(data as NestedNumbers, 0);
  return { values, sizes };
}

function typeOf(data: TensorData, values: Flat): DType {
  if (data instanceof Int32Array) return "i32";
  if (data instanceof Uint32Array) return "u32";
  return typeof values[0] === "boolean" ? "bool" : "f32";
}

function toWords(values: Flat, dtype: DType): Uint32Array<ArrayBuffer> {
  switch (dtype) {
    case "i32": return new Uint32Array(Int32Array.from(values, Number).buffer);
    case "u32": return Uint32Array.from(values, Number);
    case "bool": return Uint32Array.from(values, (value) => (value ? 1 : 0));
    default: return new Uint32Array(Float32Array.from(values, Number).buffer);
  }
}
