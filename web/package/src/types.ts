/** How `open` chooses the device. */
export interface OpenOptions {
  /** "auto" (the default) is WebGPU if the browser has it, else the CPU; `info.fallback` has the reason. */
  device?: "auto" | "webgpu" | "cpu";
  /** Uses no more than WebGPU's guaranteed limits, as on the weakest device. */
  floor?: boolean;
  /**
   * Loads the larger module, which also has tensors, kernel packs, checks of devices, and whole
   * tokenizer.json files in models.
   */
  full?: boolean;
  /** Address of the package's `worker.js` or `worker-full.js`, if it is not next to the package's other files. */
  workerUrl?: string | URL;
}

export interface EngineInfo {
  /** "webgpu" or "cpu". */
  provider: string;
  /** Properties and limits of the device. */
  device: Readonly<Record<string, unknown>>;
  version: string;
  /** Why the device is not the one that was asked for first; null if it is. */
  fallback: string | null;
}

export interface ModelInfo {
  name: string;
  architecture: string;
  /** The longest text, in tokens. */
  context: number;
  vocabulary: number;
  /** Bytes of the weights on the device. */
  weights: number;
  /** Bytes of the KV cache. */
  cache: number;
  /** Whether the file has a chat template, which `chat` needs. */
  template: boolean;
  readonly [more: string]: unknown;
}

export interface Estimate {
  /** Bytes of weights, KV cache and intermediates on the device. */
  weights: number;
  cache: number;
  arena: number;
  /** Bytes that the device has; null if it does not say. */
  available: number | null;
  /** Whether the model fits; null if that cannot be known. */
  fits: boolean | null;
  /** Bytes of the file. */
  size: number;
  /** Bytes of the file that are in the browser's storage already. */
  stored: number;
  readonly [more: string]: unknown;
}

export interface Progress {
  /** "waiting": another tab is downloading the same file. "check": SHA-256 of the stored file. */
  phase: "waiting" | "download" | "check" | "load";
  /** Bytes done, of `total`; `total` is null if the server does not say. */
  done: number;
  total: number | null;
}

export interface SessionOptions {
  /** Tokens of the KV cache; if it is left out, the model's own context up to a default limit. */
  context?: number;
  /** "f32" computes exact products; "int8" quantises activations, which is faster. */
  compute?: "f32" | "int8";
  /** Element type of the KV cache. */
  cache?: "f32" | "f16";
  /**
   * Options of the first text. The kernels of its prompt are compiled while the weights are uploaded,
   * and the load ends when they are ready; other options are possible then, too.
   */
  first?: Omit<GenerateOptions, "signal" | "onPrompt">;
}

/** Bytes of memory. */
export interface MemoryUse {
  /** Buffers on the device: those in use, those kept for later, and all of them. */
  used: number;
  idle: number;
  allocated: number;
  /** The memory of the WebAssembly module, which never shrinks. */
  wasm: number;
}

export interface LoadOptions extends SessionOptions {
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
  /** SHA-256 of the file in hexadecimal; another file is refused and deleted. */
  sha256?: string;
}

export interface GenerateOptions {
  maxTokens?: number;
  /** 0 is greedy. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repeatPenalty?: number;
  seed?: number;
  /** Texts that end the answer. */
  stop?: readonly string[];
  /** As in `LoadOptions`; another one than the model was loaded with uploads the weights again. */
  compute?: "f32" | "int8";
  /** Ends the answer; what was written stays, with `finish: "cancelled"`. */
  signal?: AbortSignal;
  /** Tokens of the prompt that are done. */
  onPrompt?: (progress: { done: number; total: number }) => void;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface Result {
  text: string;
  /** Why the answer ended. */
  finish: "stop" | "length" | "cancelled";
  /** Tokens of the whole prompt. */
  promptTokens: number;
  /** Those of them that were in the cache already, from the conversation before. */
  cachedTokens: number;
  tokens: number;
  promptSeconds: number;
  seconds: number;
}

/** A lost device that was opened again, in the middle of an answer that went on. */
export interface Recovered {
  /** Why the device was lost. */
  lost: string;
  /** The device now. */
  device: string;
  /** Tokens that were computed again. */
  tokens: number;
  /** From the report of the loss until the answer went on. */
  seconds: number;
}

/** How one token of a model is computed. */
export interface Explanation {
  /** For people: every kernel, its estimate or time, and why it was chosen. */
  text: string;
  /** The same as data, with the names of the Rust library's report. */
  report: {
    steps: readonly {
      label: string;
      engine: string;
      kernel: string;
      /** Seconds, estimated. */
      seconds: number;
      bytes: number;
      flops: number;
      /** Seconds that were measured, and the share of the memory's speed; absent without runs. */
      measured?: { median: number; min: number; max: number; roof: number };
      readonly [more: string]: unknown;
    }[];
    readonly [more: string]: unknown;
  };
}

export type DType = "f32" | "f16" | "bf16" | "i32" | "u32" | "bool";

export interface TensorInfo {
  shape: number[];
  dtype: DType;
}

export interface PackInfo {
  name: string;
  inputs: { name: string; dtype: DType }[];
  outputs: { name: string; dtype: DType }[];
  /** Names of the sizes and numbers that a call may pass. */
  values: string[];
}

/** A model in the browser's storage. */
export interface StoredModel {
  /** The name for `remove`, unique in this origin. */
  name: string;
  url: string;
  size: number;
  /** Bytes that are stored; less than `size` after a download that was cut. */
  stored: number;
  complete: boolean;
}

/** A case of the conformance table that did not pass. */
export interface ConformanceCase {
  case: string;
  sizes: unknown;
  why: string;
}

export interface ConformanceReport {
  cases: number;
  /** Cases with a tensor of more elements than asked for, or of another name. */
  left_out: number;
  passed: number;
  failed: ConformanceCase[];
  unsupported: ConformanceCase[];
  /** What is wrong with the run itself. */
  problems: unknown[];
  seconds: number;
}

export interface ShaderText {
  name: string;
  wgsl: string;
}
