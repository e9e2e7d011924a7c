// Draws tensors of pixels on a canvas.
import { WarploomError } from "../errors.js";
import type { TensorInfo } from "../types.js";
import type { BackendTensors, Place } from "./backend.js";

/** What is used of a GPUDevice. */
export interface Gpu {
  readonly queue: { submit(commands: object[]): void; onSubmittedWorkDone(): Promise<undefined> };
  createShaderModule(descriptor: { code: string }): object;
  createRenderPipeline(descriptor: object): { getBindGroupLayout(index: number): object };
  createBindGroup(descriptor: object): object;
  createCommandEncoder(): {
    beginRenderPass(descriptor: object): {
      setPipeline(pipeline: object): void;
      setBindGroup(index: number, group: object): void;
      draw(vertices: number): void;
      end(): void;
    };
    finish(): object;
  };
}

/** What is used of a GPUCanvasContext. */
interface GpuContext {
  configure(configuration: object): void;
  getCurrentTexture(): { createView(): object };
}

/** One triangle covers the canvas, which has a pixel for each element. */
const SHADER = `
override WIDTH: u32;
@group(0) @binding(0) var<storage, read> pixels: array<u32>;

@vertex
fn whole(@builtin(vertex_index) index: u32) -> @builtin(position) vec4<f32> {
    let corner = vec2<f32>(f32((index << 1u) & 2u), f32(index & 2u));
    return vec4<f32>(corner * 2.0 - 1.0, 0.0, 1.0);
}

@fragment
fn pixel(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    let color = unpack4x8unorm(pixels[u32(at.y) * WIDTH + u32(at.x)]);
    return vec4<f32>(color.rgb, 1.0);
}
`;

/** Frames that are submitted and not done. More hide nothing, and the picture falls behind. */
const FRAMES = 3;

export class Surface {
  readonly #canvas: OffscreenCanvas;
  readonly #readback: boolean;
  #context: GpuContext | null = null;
  #device: Gpu | null = null;
  #pipeline: { width: number; pipeline: ReturnType<Gpu["createRenderPipeline"]> } | null = null;
  #running: Promise<unknown>[] = [];

  constructor(canvas: OffscreenCanvas, readback: boolean) {
    this.#canvas = canvas;
    this.#readback = readback;
  }

  async draw(tensors: BackendTensors, id: number): Promise<void> {
    const { shape, dtype } = JSON.parse(tensors.info(id)) as TensorInfo;
    const [height = 0, width = 0] = shape;
    if (dtype !== "u32" || shape.length !== 2 || width < 1 || height < 1) {
      throw new WarploomError("invalid",
        `draw: a tensor of ${dtype} with the shape [${shape.join(", ")}], pixels are u32[height, width]`);
    }
    if (this.#readback) {
      const bytes = await tensors.read(id);
      this.#copy(bytes, width, height);
      return;
    }
    while (this.#running.length >= FRAMES) {
      await this.#running.shift();
    }
    const place = await tensors.place(id);
    if (!place) {
      throw new WarploomError("device", "draw: the device of the surface is not one of WebGPU");
    }
    this.#resize(width, height);
    this.#submit(place, width);
    this.#running.push(place.device.queue.onSubmittedWorkDone().catch(() => undefined));
  }

  #resize(width: number, height: number): void {
    if (this.#canvas.width !== width || this.#canvas.height !== height) {
      this.#canvas.width = width;
      this.#canvas.height = height;
    }
  }

  #copy(bytes: Uint8Array<ArrayBuffer>, width: number, height: number): void {
    const context = this.#canvas.getContext("2d");
    if (!context) {
      throw new WarploomError("unsupported", "draw: the canvas has no 2D context");
    }
    this.#resize(width, height);
    const colors = new Uint8ClampedArray(bytes.buffer, bytes.byteOffset, 4 * width * height);
    for (let alpha = 3; alpha < colors.length; alpha += 4) {
      colors[alpha] = 255;
    }
    context.putImageData(new ImageData(colors, width, height), 0, 0);
  }

  #submit({ device, buffer, offset, size }: Place, width: number): void {
    const format = (navigator as unknown as { gpu: { getPreferredCanvasFormat(): string } })
      .gpu.getPreferredCanvasFormat();
    // A device that was lost is another one now.
    if (this.#device !== device) {
      this.#context ??= this.#canvas.getContext("webgpu" as "2d") as unknown as GpuContext | null;
      if (!this.#context) {
        throw new WarploomError("unsupported", "draw: the canvas has no WebGPU context");
      }
      this.#context.configure({ device, format, alphaMode: "opaque" });
      this.#device = device;
      this.#pipeline = null;
      this.#running = [];
    }
    if (this.#pipeline?.width !== width) {
      const module = device.createShaderModule({ code: SHADER });
      this.#pipeline = {
        width,
        pipeline: device.createRenderPipeline({
          layout: "auto",
          vertex: { module, entryPoint: "whole" },
          fragment: {
            module, entryPoint: "pixel", constants: { WIDTH: width }, targets: [{ format }],
          },
        }),
      };
    }
    const { pipeline } = this.#pipeline;
    const group = device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: { buffer, offset, size } }],
    });
    const encoder = device.createCommandEncoder();
    const view = (this.#context as GpuContext).getCurrentTexture().createView();
    const pass = encoder.beginRenderPass({
      colorAttachments: [{ view, loadOp: "clear", storeOp: "store" }],
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.draw(3);
    pass.end();
    device.queue.submit([encoder.finish()]);
  }
}
