// Messages between the page and the worker. Each request has an id; its events and its one answer
// carry the same id.
import type { WireError } from "./errors.js";
import type {
  ConformanceReport, DType, EngineInfo, Estimate, Explanation, GenerateOptions, MemoryUse, Message,
  ModelInfo, OpenOptions, PackInfo, Progress, Recovered, Result, SessionOptions, ShaderText,
  StoredModel, TensorInfo,
} from "./types.js";

/** Options of `generate` and `chat` that can be sent. */
export type WireGenerateOptions = Omit<GenerateOptions, "signal" | "onPrompt">;

export interface OpenedModel {
  handle: number;
  info: ModelInfo;
}

/** Events of `generate` and `chat`. */
export interface TextEvent {
  text?: string;
  tokens?: number;
  prompt?: { done: number; total: number };
  recovered?: Recovered;
}

/** What needs no answer: an error is that of a later read. */
export type Recording =
  | { create: number; words: Uint32Array<ArrayBuffer>; dtype: DType; shape: number[] }
  | { to: number[]; operation: string }
  | { discard: number[] }
  | { discardSurface: number }
  | { discardPack: number };

export interface ConformanceProgress {
  done: number;
  total: number;
  name: string;
}

/** A file's address or the file itself. */
export type FileFrom = string | Blob;

/** Each call: what is sent, the events that come before the answer, the answer. */
export interface Calls {
  open: { args: Omit<OpenOptions, "workerUrl" | "full">; event: never; result: EngineInfo };
  embedded: { args: { options: SessionOptions }; event: Progress; result: OpenedModel };
  load: {
    args: { from: FileFrom; options: SessionOptions; sha256?: string };
    event: Progress;
    result: OpenedModel;
  };
  estimate: { args: { from: FileFrom; options: SessionOptions }; event: never; result: Estimate };
  generate: {
    args: { handle: number; prompt: string; options: WireGenerateOptions };
    event: TextEvent;
    result: Result;
  };
  chat: {
    args: { handle: number; messages: readonly Message[]; options: WireGenerateOptions };
    event: TextEvent;
    result: Result;
  };
  tokenize: { args: { handle: number; text: string }; event: never; result: Uint32Array };
  detokenize: { args: { handle: number; ids: Uint32Array }; event: never; result: string };
  explain: { args: { handle: number; runs: number }; event: never; result: Explanation };
  tensorInfo: { args: { id: number }; event: never; result: TensorInfo };
  tensorData: {
    args: { id: number };
    event: never;
    result: { dtype: DType; bytes: Uint8Array<ArrayBuffer> };
  };
  eval: { args: { ids: number[] }; event: never; result: null };
  /** Takes the canvas; `readback` says whether frames are copied through memory. */
  surface: { args: { to: number; canvas: OffscreenCanvas }; event: never; result: { readback: boolean } };
  draw: { args: { surface: number; id: number }; event: never; result: null };
  pack: {
    args: { to: number; manifest: string; files: [string, string][] };
    event: never;
    result: PackInfo;
  };
  closeModel: { args: { handle: number }; event: never; result: null };
  close: { args: null; event: never; result: null };
  memory: { args: null; event: never; result: MemoryUse };
  models: { args: null; event: never; result: StoredModel[] };
  remove: { args: { name: string }; event: never; result: boolean };
  conformance: {
    args: { device: string; elements?: number; cases?: string };
    event: ConformanceProgress;
    result: ConformanceReport;
  };
  shaders: { args: null; event: never; result: ShaderText[] };
}

export type CallName = keyof Calls;

export type ToWorker =
  | { [C in CallName]: { id: number; call: C; args: Calls[C]["args"] } }[CallName]
  | { id: number; cancel: true }
  | { record: Recording };

export type FromWorker =
  | { id: number; event: unknown }
  | { id: number; result: unknown }
  | { id: number; error: WireError }
  /** The worker cannot go on: no call will be answered. */
  | { fatal: WireError };
