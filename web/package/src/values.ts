// The numbers of a tensor as the module takes them.
import { DTYPE, SHAPE, check, invalid, shown } from "./check.js";
import type { NestedNumbers, TensorData } from "./tensor.js";
import type { DType } from "./types.js";

/** Any typed array: its elements convert by `Number`. */
type Flat = Float32Array | Int32Array | Uint32Array | (number | boolean)[];

/** Nested arrays may be this deep; deeper ones are a mistake, or contain themselves. */
const DEPTH = 64;

export interface Words {
  words: Uint32Array<ArrayBuffer>;
  shape: number[];
  dtype: DType;
}

/** Values in row-major order with their shape and type. */
export function wordsOf(data: TensorData, shape?: readonly number[], dtype?: DType): Words {
  if (shape !== undefined) check("tensor", "shape", shape, SHAPE);
  if (dtype !== undefined) check("tensor", "dtype", dtype, DTYPE);
  const { values, sizes } = flat(data);
  const given = shape ?? sizes;
  const count = given.reduce((product, size) => product * size, 1);
  if (count !== values.length) {
    throw invalid(`tensor: ${values.length} values for the shape [${given.join(", ")}] of ${count}`);
  }
  const type = dtype ?? typeOf(data, values);
  return { words: toWords(values, type), shape: [...given], dtype: type };
}

const RANGES: Partial<Record<DType, readonly [number, number]>> =
  { i32: [-0x8000_0000, 0x7fff_ffff], u32: [0, 0xffff_ffff] };

/** Throws if an integer type lacks the value. */
export function representable(call: string, value: number | boolean, dtype: DType): void {
  const range = RANGES[dtype];
  if (range && typeof value === "number"
    && !(Number.isInteger(value) && value >= range[0] && value <= range[1])) {
    throw invalid(`${call}: ${value} is not a value of ${dtype}`);
  }
}

function flat(data: TensorData): { values: Flat; sizes: number[] } {
  if (typeof data === "number" || typeof data === "boolean") {
    return { values: [data], sizes: [] };
  }
  if (ArrayBuffer.isView(data) && !((data as unknown) instanceof DataView)) {
    return { values: data, sizes: [data.length] };
  }
  if (!Array.isArray(data)) {
    throw invalid(`tensor: data: ${shown(data)}, must be a number, a typed array or nested arrays of numbers`);
  }
  const sizes: number[] = [];
  for (let at: unknown = data; Array.isArray(at); [at] = at) {
    sizes.push(at.length);
    if (sizes.length > DEPTH) {
      throw invalid(`tensor: data: arrays that are over ${DEPTH} deep`);
    }
  }
  const values: (number | boolean)[] = [];
  const walk = (part: NestedNumbers, depth: number) => {
    if (part.length !== sizes[depth]) {
      throw invalid(`tensor: an array of ${part.length} beside others of ${sizes[depth]} at depth ${depth}`);
    }
    for (const item of part) {
      const last = depth === sizes.length - 1;
      if (Array.isArray(item) && !last) {
        walk(item, depth + 1);
      } else if (last && (typeof item === "number" || typeof item === "boolean")) {
        values.push(item);
      } else {
        throw invalid(`tensor: ${shown(item)} at depth ${depth} of arrays that are ${sizes.length} deep`);
      }
    }
  };
  walk(data, 0);
  return { values, sizes };
}

function typeOf(data: TensorData, values: Flat): DType {
  if (data instanceof Int32Array) return "i32";
  if (data instanceof Uint32Array) return "u32";
  return typeof values[0] === "boolean" ? "bool" : "f32";
}

function toWords(values: Flat, dtype: DType): Uint32Array<ArrayBuffer> {
  const checked = (value: number | boolean) => {
    const converted = Number(value);
    representable("tensor", converted, dtype);
    return converted;
  };
  switch (dtype) {
    case "i32": return new Uint32Array((values instanceof Int32Array
      ? Int32Array.from(values) : Int32Array.from(values, checked)).buffer);
    case "u32": return values instanceof Uint32Array
      ? Uint32Array.from(values) : Uint32Array.from(values, checked);
    case "bool": return Uint32Array.from(values, (value) => (value ? 1 : 0));
    default: return new Uint32Array(Float32Array.from(values, Number).buffer);
  }
}
