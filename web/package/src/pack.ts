import { FINITE, OBJECT, check, invalid } from "./check.js";
import { TENSORS, type Tensor, type Tensors } from "./tensor.js";
import type { PackInfo } from "./types.js";

/** A kernel pack: WGSL with a manifest, as an operation on tensors. */
export class Pack {
  readonly info: PackInfo;
  readonly #all: Tensors;
  readonly #id: number;
  #disposed = false;

  /** @internal */
  constructor(all: Tensors, id: number, info: PackInfo) {
    this.#all = all;
    this.#id = id;
    this.info = info;
  }

  /**
   * Records a call; returns the pack's outputs in the order of the manifest. `values` are the sizes
   * that operands do not determine, and fields of the uniform block.
   */
  run(operands: readonly Tensor[], values: Readonly<Record<string, number>> = {}): Tensor[] {
    if (this.#disposed) {
      throw invalid(`the pack ${this.info.name} is disposed`);
    }
    const { name, outputs } = this.info;
    check(name, "operands", operands, TENSORS);
    check(name, "values", values, OBJECT);
    for (const [of, value] of Object.entries(values)) check(name, of, value, FINITE);
    const of = Object.fromEntries(operands.map((operand, i) => [`operands[${i}]`, operand]));
    return this.#all.apply("pack", of, { pack: this.#id, values }, outputs.length, name);
  }

  /** Frees it; results that are not computed yet stay valid. */
  dispose(): void {
    if (!this.#disposed) {
      this.#disposed = true;
      this.#all.connection.record({ discardPack: this.#id });
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
