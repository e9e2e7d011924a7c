import "./dispose.js";
import type { Connection } from "./connection.js";
import { WarploomError } from "./errors.js";
import { Generation } from "./generation.js";
import type { OpenedModel } from "./protocol.js";
import type { GenerateOptions, Message, ModelInfo } from "./types.js";

/** A model on the device. Calls of one model run one after the other. */
export class Model {
  readonly info: ModelInfo;
  readonly #connection: Connection;
  readonly #handle: number;
  readonly #onClose: (model: Model) => void;
  #closed = false;

  /** @internal */
  constructor(connection: Connection, opened: OpenedModel, onClose: (model: Model) => void) {
    this.#connection = connection;
    this.#handle = opened.handle;
    this.#onClose = onClose;
    this.info = opened.info;
  }

  /** Continues a text. */
  generate(prompt: string, options: GenerateOptions = {}): Generation {
    const { signal, onPrompt, ...wire } = options;
    return new Generation(
      (call) => this.#checked(() => this.#connection.call(
        "generate", { handle: this.#handle, prompt, options: wire }, call)),
      signal, onPrompt);
  }

  /** Answers the last message, by the chat template of the model. */
  chat(messages: Message[], options: GenerateOptions = {}): Generation {
    const { signal, onPrompt, ...wire } = options;
    return new Generation(
      (call) => this.#checked(() => this.#connection.call(
        "chat", { handle: this.#handle, messages, options: wire }, call)),
      signal, onPrompt);
  }

  tokenize(text: string): Promise<Uint32Array> {
    return this.#checked(() =>
      this.#connection.call("tokenize", { handle: this.#handle, text }));
  }

  detokenize(ids: Uint32Array): Promise<string> {
    return this.#checked(() =>
      this.#connection.call("detokenize", { handle: this.#handle, ids }));
  }

  /** Frees the device's memory, after the calls that run. */
  async close(): Promise<void> {
    if (this.#closed) {
      return;
    }
    this.#closed = true;
    this.#onClose(this);
    await this.#connection.call("closeModel", { handle: this.#handle });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #checked<T>(run: () => Promise<T>): Promise<T> {
    if (this.#closed) {
      return Promise.reject(new WarploomError("closed", `the model ${this.info.name} is closed`));
    }
    return run();
  }
}
