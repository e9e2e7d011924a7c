import {
  BOOLEAN, DTYPE, FINITE, INTEGER, type Rule, arrayOf, check, invalid,
} from "./check.js";
import type { Connection } from "./connection.js";
import type { DType, TensorInfo } from "./types.js";
import { wordsOf } from "./values.js";

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

/** Arguments by their names, in the order in which the module takes them. */
type Named<T> = Readonly<Record<string, T>>;

interface Arguments {
  axes?: Axes | undefined;
  keep?: boolean;
  sizes?: Named<number | readonly number[]>;
  numbers?: Named<number>;
  dtype?: DType;
  pack?: number;
  values?: Named<number>;
}

const TENSOR: Rule = { must: "a tensor", is: (value) => value instanceof Tensor };
const OPERAND: Rule = {
  must: "a tensor, a number or a boolean",
  is: (value) => TENSOR.is(value) || typeof value === "number" || typeof value === "boolean",
};
/** @internal */
export const TENSORS = arrayOf(TENSOR, "an array of tensors");
/** Operations that take no scalars. */
const TENSORS_ONLY = new Set([
  "matmul", "linear", "rms_norm", "layer_norm", "gather", "concat", "stack", "pack",
]);

/** The operations' names in errors are those of the methods. */
const method = (op: string) => op.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/** Integers that are arguments: sizes, axes, places. */
function integers(call: string, named: Named<number | readonly number[]>): number[] {
  return Object.entries(named).flatMap(([name, value]) => {
    for (const one of Array.isArray(value) ? value : [value]) {
      check(call, name, one,
        Array.isArray(one) ? { ...INTEGER, must: "whole numbers, each an argument" } : INTEGER);
    }
    return value;
  });
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
    if (typeof make !== "function") {
      throw invalid("tidy: its argument must be a function");
    }
    const made: Tensor[] = [];
    this.#tidied.push(made);
    let kept: readonly Tensor[] = [];
    try {
      const result: unknown = make();
      if (TENSORS.is(result)) {
        kept = result as Tensor[];
      } else if (result instanceof Tensor) {
        kept = [result];
      } else if (typeof result === "object" && result !== null) {
        // The tensors of an async function are freed here, and what it does with them fails later.
        if (result instanceof Promise) result.catch(() => undefined);
        throw invalid("tidy: its function must return a tensor or an array of tensors, and not be async");
      }
      return result as T;
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

  /** The number of a tensor that a call takes. */
  idOf(call: string, name: string, tensor: Tensor): number {
    check(call, name, tensor, TENSOR);
    return tensor.numberIn(this);
  }

  /** Records an operation with `count` results; `call` is its name in errors. */
  apply(
    op: string,
    of: Named<Operand>,
    { axes, keep, sizes, numbers, dtype, ...rest }: Arguments = {},
    count = 1,
    call = method(op),
  ): Tensor[] {
    const operands = Object.entries(of).map(([name, operand]) => {
      check(call, name, operand, TENSORS_ONLY.has(op) ? TENSOR : OPERAND);
      if (operand instanceof Tensor) {
        return { tensor: operand.numberIn(this) };
      }
      // JSON has no such numbers.
      return typeof operand === "number" && !Number.isFinite(operand)
        ? { float: String(operand).replace("Infinity", "inf") } : operand;
    });
    for (const [name, value] of Object.entries(numbers ?? {})) check(call, name, value, FINITE);
    if (dtype !== undefined) check(call, "dtype", dtype, DTYPE);
    if (keep !== undefined) check(call, "keep", keep, BOOLEAN);
    const operation = {
      op, of: operands, keep, dtype, ...rest,
      axes: axes === undefined ? undefined : integers(call, { axes }),
      sizes: sizes && integers(call, sizes),
      numbers: numbers && Object.values(numbers),
    };
    const to = Array.from({ length: count }, () => this.number());
    this.connection.record({ to, operation: JSON.stringify(operation) });
    return to.map((id) => new Tensor(this, id));
  }

  one(op: string, of: Named<Operand>, args: Arguments = {}, call?: string): Tensor {
    const [tensor] = this.apply(op, of, args, 1, call);
    return tensor as Tensor;
  }

  create(data: TensorData, shape?: readonly number[], dtype?: DType): Tensor {
    const { words, shape: sizes, dtype: given } = wordsOf(data, shape, dtype);
    const half = given === "f16" || given === "bf16";
    const id = this.number();
    this.connection.record(
      { create: id, words, dtype: half ? "f32" : given, shape: sizes }, [words.buffer]);
    const made = new Tensor(this, id);
    return half ? made.cast(given) : made;
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
    // One call, so that a tensor that is disposed behind it is still read.
    const { dtype, bytes: { buffer, byteOffset, byteLength } } =
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
      throw invalid(`item: the tensor has ${values.length} elements`);
    }
    return value;
  }

  /** Shape and element type; nothing is computed. */
  async info(): Promise<TensorInfo> {
    return await this.#all.connection.call("tensorInfo", { id: this.#open() });
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
      throw invalid("the tensors are of different engines");
    }
    return this.#open();
  }

  #open(): number {
    if (this.#disposed) {
      throw invalid("the tensor is disposed");
    }
    return this.#id;
  }

  #apply(op: string, of: Named<Operand> = {}, args: Arguments = {}): Tensor {
    return this.#all.one(op, { this: this, ...of }, args);
  }

  /** An operation with sizes, axes or places. */
  #sized(op: string, sizes: Named<number | readonly number[]>, of: Named<Operand> = {}): Tensor {
    return this.#apply(op, of, { sizes });
  }

  #joined(op: string, others: readonly Tensor[], axis: number): Tensor {
    check(op, "others", others, TENSORS);
    return this.#sized(op, { axis },
      Object.fromEntries(others.map((other, i) => [`others[${i}]`, other])));
  }

  #reduce(op: string, axes: Axes | undefined, keep: boolean): Tensor {
    return this.#apply(op, {}, { axes, keep });
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

  add(other: Operand): Tensor { return this.#apply("add", { other }); }
  sub(other: Operand): Tensor { return this.#apply("sub", { other }); }
  mul(other: Operand): Tensor { return this.#apply("mul", { other }); }
  div(other: Operand): Tensor { return this.#apply("div", { other }); }
  rem(other: Operand): Tensor { return this.#apply("rem", { other }); }
  pow(other: Operand): Tensor { return this.#apply("pow", { other }); }
  minimum(other: Operand): Tensor { return this.#apply("minimum", { other }); }
  maximum(other: Operand): Tensor { return this.#apply("maximum", { other }); }
  eq(other: Operand): Tensor { return this.#apply("eq", { other }); }
  ne(other: Operand): Tensor { return this.#apply("ne", { other }); }
  lt(other: Operand): Tensor { return this.#apply("lt", { other }); }
  le(other: Operand): Tensor { return this.#apply("le", { other }); }
  gt(other: Operand): Tensor { return this.#apply("gt", { other }); }
  ge(other: Operand): Tensor { return this.#apply("ge", { other }); }
  logicalAnd(other: Operand): Tensor { return this.#apply("logical_and", { other }); }
  logicalOr(other: Operand): Tensor { return this.#apply("logical_or", { other }); }
  clamp(low: Operand, high: Operand): Tensor { return this.#apply("clamp", { low, high }); }
  /** Elements of `a` where this "bool" tensor is true, else of `b`. */
  select(a: Operand, b: Operand): Tensor { return this.#apply("select", { a, b }); }
  cast(dtype: DType): Tensor { return this.#apply("cast", {}, { dtype: dtype ?? "" as DType }); }

  /** Reductions remove their axes, or keep them with size 1 if `keep` is true. */
  sum(axes?: Axes, keep = false): Tensor { return this.#reduce("sum", axes, keep); }
  mean(axes?: Axes, keep = false): Tensor { return this.#reduce("mean", axes, keep); }
  prod(axes?: Axes, keep = false): Tensor { return this.#reduce("prod", axes, keep); }
  max(axes?: Axes, keep = false): Tensor { return this.#reduce("max", axes, keep); }
  min(axes?: Axes, keep = false): Tensor { return this.#reduce("min", axes, keep); }
  /** Population variance. */
  var(axes?: Axes): Tensor { return this.#reduce("var", axes, false); }
  argmax(axis: number): Tensor { return this.#sized("argmax", { axis }); }
  argmin(axis: number): Tensor { return this.#sized("argmin", { axis }); }
  softmax(axis: number): Tensor { return this.#sized("softmax", { axis }); }
  logSoftmax(axis: number): Tensor { return this.#sized("log_softmax", { axis }); }

  /** `[.., m, k]` times `[.., k, n]`. */
  matmul(other: Tensor): Tensor { return this.#apply("matmul", { other }); }
  /** `[.., k]` times the transpose of a weight `[n, k]`. */
  linear(weight: Tensor): Tensor { return this.#apply("linear", { weight }); }
  rmsNorm(weight: Tensor, eps = 1e-5): Tensor {
    return this.#apply("rms_norm", { weight }, { numbers: { eps } });
  }
  layerNorm(weight: Tensor, bias: Tensor, eps = 1e-5): Tensor {
    return this.#apply("layer_norm", { weight, bias }, { numbers: { eps } });
  }
  /** The rows, along an axis, that a "u32" tensor names. */
  gather(axis: number, ids: Tensor): Tensor {
    return this.#sized("gather", { axis }, { ids });
  }

  /** One size may be -1: it follows from the others. */
  reshape(...shape: number[]): Tensor { return this.#sized("reshape", { shape }); }
  flatten(): Tensor { return this.#apply("flatten"); }
  squeeze(axes?: Axes): Tensor { return this.#reduce("squeeze", axes, false); }
  unsqueeze(axis: number): Tensor { return this.#sized("unsqueeze", { axis }); }
  permute(...order: number[]): Tensor { return this.#sized("permute", { order }); }
  transpose(a: number, b: number): Tensor { return this.#sized("transpose", { a, b }); }
  /** Swaps the last two axes. */
  t(): Tensor { return this.#apply("t"); }
  expand(...shape: number[]): Tensor { return this.#sized("expand", { shape }); }
  /** The indices from `start` up to `end`, without it, of an axis. */
  narrow(axis: number, start: number, end: number): Tensor {
    return this.#sized("narrow", { axis, start, end });
  }
  index(axis: number, at: number): Tensor {
    return this.#sized("index", { axis, at });
  }
  concat(others: readonly Tensor[], axis: number): Tensor {
    return this.#joined("concat", others, axis);
  }
  stack(others: readonly Tensor[], axis: number): Tensor {
    return this.#joined("stack", others, axis);
  }
}
