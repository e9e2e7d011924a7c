import "./dispose.js";
import type { Connection } from "./connection.js";
import { WarploomError } from "./errors.js";
import { Generation } from "./generation.js";
import type { OpenedModel } from "./protocol.js";
import type { Explanation, GenerateOptions, Message, ModelInfo, Recovered } from "./types.js";

interface Listeners {
  closed(model: Model): void;
  recovered(model: Model, recovered: Recovered): void;
}

/** A model on the device. Calls of one model run one after the other. */
export class Model {
  readonly info: ModelInfo;
  readonly #connection: Connection;
  readonly #handle: number;
  readonly #on: Listeners;
  #closed = false;

  /** @internal */
  constructor(connection: Connection, opened: OpenedModel, on: Listeners) {
    this.#connection = connection;
    this.#handle = opened.handle;
    this.#on = on;
    this.info = opened.info;
  }

  /** Continues a text. */
  generate(prompt: string, options: GenerateOptions = {}): Generation {
    const { signal, onPrompt, ...wire } = options;
    return new Generation(
      (call) => this.#checked(() => this.#connection.call(
        "generate", { handle: this.#handle, prompt, options: wire }, call)),
      signal, onPrompt, (recovered) => this.#on.recovered(this, recovered));
  }

  /** Answers the last message, by the chat template of the model. */
  chat(messages: Message[], options: GenerateOptions = {}): Generation {
    const { signal, onPrompt, ...wire } = options;
    return new Generation(
      (call) => this.#checked(() => this.#connection.call(
        "chat", { handle: this.#handle, messages, options: wire }, call)),
      signal, onPrompt, (recovered) => this.#on.recovered(this, recovered));
  }

  tokenize(text: string): Promise<Uint32Array> {
    return this.#checked(() =>
      this.#connection.call("tokenize", { handle: this.#handle, text }));
  }

  detokenize(ids: Uint32Array): Promise<string> {
    return this.#checked(() =>
      this.#connection.call("detokenize", { handle: this.#handle, ids }));
  }

  /**
   * How one token is computed: kernels, sizes, estimates. With `runs`, each kernel is timed on the
   * device, which takes a moment; the next answer then computes its conversation again.
   */
  explain({ runs = 0 }: { runs?: number } = {}): Promise<Explanation> {
    return this.#checked(() =>
      this.#connection.call("explain", { handle: this.#handle, runs }));
  }

  /** Frees the device's memory, after the calls that run. */
  async close(): Promise<void> {
    if (this.#closed) {
      return;
    }
    this.#closed = true;
    this.#on.closed(this);
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
