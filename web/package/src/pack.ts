import { WarploomError } from "./errors.js";
import type { Tensor, Tensors } from "./tensor.js";
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
      throw new WarploomError("invalid", `the pack ${this.info.name} is disposed`);
    }
    const bad = Object.entries(values).find(([, value]) => !Number.isFinite(value));
    if (bad) {
      throw new WarploomError("invalid", `${this.info.name}: ${bad[0]} is ${bad[1]}`);
    }
    return this.#all.apply("pack", operands, { pack: this.#id, values }, this.info.outputs.length);
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
