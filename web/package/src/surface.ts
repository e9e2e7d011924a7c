import type { Tensor, Tensors } from "./tensor.js";

/** A canvas that shows tensors, made by `engine.surface(canvas)`. */
export class Surface {
  /** Whether frames are read back and copied to the canvas, as without WebGPU. */
  readonly readback: boolean;
  readonly #all: Tensors;
  readonly #id: number;

  /** @internal */
  constructor(all: Tensors, id: number, readback: boolean) {
    this.#all = all;
    this.#id = id;
    this.readback = readback;
  }

  /**
   * Draws a "u32" tensor `[height, width]`: a pixel for each element, with red in the lowest byte.
   * The canvas gets that size. On WebGPU, resolves when the frame is submitted and the third before
   * it is done; awaiting it before the next frame keeps the device from falling behind.
   */
  async draw(pixels: Tensor): Promise<void> {
    const id = this.#all.idOf("draw", "pixels", pixels);
    await this.#all.connection.call("draw", { surface: this.#id, id });
  }

  /** Frees it. The canvas keeps its last frame. */
  dispose(): void {
    this.#all.connection.record({ discardSurface: this.#id });
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
