export { open, Engine, RecoveredEvent } from "./engine.js";
export { Model } from "./model.js";
export { Generation } from "./generation.js";
export { Pack } from "./pack.js";
export { Surface } from "./surface.js";
export { Tensor } from "./tensor.js";
export type { Axes, NestedNumbers, Operand, TensorData, TensorValues } from "./tensor.js";
export { WarploomError } from "./errors.js";
export type { ErrorDetails, ErrorKind } from "./errors.js";
export type {
  Chat, ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, ChatCompletions,
} from "./openai.js";
export type { ConformanceProgress } from "./protocol.js";
export type * from "./types.js";
