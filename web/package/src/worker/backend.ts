// What the worker uses of the WebAssembly module.

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
  free(): void;
}

export interface BackendEngine {
  info(): string;
  embedded(options: string): Promise<BackendModel>;
  load(
    source: Source,
    options: string,
    progress: (done: number, total: number) => void,
  ): Promise<BackendModel>;
  estimate(source: Source, options: string): string;
}

export interface Backend {
  default(options: { module_or_path: URL }): Promise<unknown>;
  Engine: { open(options: string): Promise<BackendEngine> };
  /** Absent if the module was built without its checks, as is `shaders`. */
  conformance?(
    device: string,
    progress: (done: number, total: number, name: string) => void,
  ): Promise<string>;
  shaders?(): string;
}
