// What the worker uses of the WebAssembly module.

import type { Gpu } from "./surface.js";

/** A file, read synchronously. */
export interface Source {
  readonly name: string;
  readonly size: number;
  /** Fills `into` from `offset` on, or throws. */
  read(offset: number, into: Uint8Array): void;
}

export interface BackendModel {
  info(): string;
  generate(prompt: string, options: string, event: (json: string) => boolean): Promise<string>;
  chat(messages: string, options: string, event: (json: string) => boolean): Promise<string>;
  tokenize(text: string): Uint32Array;
  detokenize(ids: Uint32Array): string;
  explain(options: string): Promise<string>;
  free(): void;
}

/** Elements in a buffer of WebGPU. */
export interface Place {
  device: Gpu;
  buffer: object;
  /** In bytes. */
  offset: number;
  size: number;
}

export interface BackendTensors {
  create(to: number, words: Uint32Array, dtype: string, shape: Float64Array): void;
  record(to: Uint32Array, operation: string): void;
  info(id: number): string;
  read(id: number): Promise<Uint8Array<ArrayBuffer>>;
  eval(ids: Uint32Array): Promise<void>;
  /** Where the elements of a tensor are on WebGPU; null on another device. */
  place(id: number): Promise<Place | null>;
  discard(ids: Uint32Array): void;
  pack(to: number, manifest: string, files: string): string;
  discardPack(id: number): void;
}

export interface BackendEngine {
  info(): string;
  load(
    source: Source,
    options: string,
    progress: (done: number, total: number) => void,
  ): Promise<BackendModel>;
  estimate(source: Source, options: string): string;
  memory(): string;
  /** Absent in the module of language models. */
  tensors?(): BackendTensors;
}

export interface Backend {
  default(options: { module_or_path: URL }): Promise<{ memory: WebAssembly.Memory }>;
  Engine: { open(options: string): Promise<BackendEngine> };
  /** Absent in the module of language models, as is `shaders`. */
  conformance?(
    device: string,
    elements: number | undefined,
    cases: string | undefined,
    progress: (done: number, total: number, name: string) => void,
  ): Promise<string>;
  shaders?(model: Source): string;
}
