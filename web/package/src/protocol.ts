// Messages between the page and the worker. Each request has an id; its events and its one answer
// carry the same id.
import type { WireError } from "./errors.js";
import type {
  ConformanceReport, EngineInfo, Estimate, GenerateOptions, Message, ModelInfo, OpenOptions,
  Progress, Result, SessionOptions, ShaderText, StoredModel,
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
}

export interface ConformanceProgress {
  done: number;
  total: number;
  name: string;
}

/** A file's address or the file itself. */
export type FileFrom = string | Blob;

/** Each call: what is sent, the events that come before the answer, the answer. */
export interface Calls {
  open: { args: Omit<OpenOptions, "workerUrl">; event: never; result: EngineInfo };
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
    args: { handle: number; messages: Message[]; options: WireGenerateOptions };
    event: TextEvent;
    result: Result;
  };
  tokenize: { args: { handle: number; text: string }; event: never; result: Uint32Array };
  detokenize: { args: { handle: number; ids: Uint32Array }; event: never; result: string };
  closeModel: { args: { handle: number }; event: never; result: null };
  close: { args: null; event: never; result: null };
  models: { args: null; event: never; result: StoredModel[] };
  remove: { args: { name: string }; event: never; result: boolean };
  conformance: {
    args: { device: string };
    event: ConformanceProgress;
    result: ConformanceReport;
  };
  shaders: { args: null; event: never; result: ShaderText[] };
}

export type CallName = keyof Calls;

export type ToWorker =
  | { [C in CallName]: { id: number; call: C; args: Calls[C]["args"] } }[CallName]
  | { id: number; cancel: true };

export type FromWorker =
  | { id: number; event: unknown }
  | { id: number; result: unknown }
  | { id: number; error: WireError }
  /** The worker cannot go on: no call will be answered. */
  | { fatal: WireError };
