import "./dispose.js";
import {
  EXPLAIN, TEXT, arrayOf, check, messages as checkMessages, options as checked, text as checkText, whole,
} from "./check.js";
import type { CallOptions, Connection } from "./connection.js";
import { WarploomError } from "./errors.js";
import { Generation } from "./generation.js";
import type { OpenedModel, WireGenerateOptions } from "./protocol.js";
import type {
  Explanation, GenerateOptions, Message, ModelInfo, Recovered, Result,
} from "./types.js";

interface Listeners {
  closed(model: Model): void;
  recovered(model: Model, recovered: Recovered): void;
}

/** The options of a running text's call. */
type TextCall = CallOptions<"generate" | "chat"> & { signal: AbortSignal };

/** The result of a text that was cancelled before it began. */
const NOTHING: Result = {
  text: "", finish: "cancelled", promptTokens: 0, cachedTokens: 0, tokens: 0, promptSeconds: 0, seconds: 0,
};

/** Tokens, as far as they do not depend on the vocabulary. */
const IDS = arrayOf(whole(0, 0xffff_ffff), "an array of tokens, which are whole numbers from 0 on");

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
    return this.#text("generate", options, () => {
      checkText("generate", "prompt", prompt);
      return (wire, call) => this.#connection.call(
        "generate", { handle: this.#handle, prompt, options: wire }, call);
    });
  }

  /** Answers the last message, by the chat template of the model. */
  chat(messages: readonly Message[], options: GenerateOptions = {}): Generation {
    return this.#text("chat", options, () => {
      checkMessages("chat", messages);
      return (wire, call) => this.#connection.call(
        "chat", { handle: this.#handle, messages, options: wire }, call);
    });
  }

  async tokenize(text: string): Promise<Uint32Array> {
    checkText("tokenize", "text", text);
    return await this.#checked(() =>
      this.#connection.call("tokenize", { handle: this.#handle, text }));
  }

  async detokenize(ids: Uint32Array | readonly number[]): Promise<string> {
    if (!(ids instanceof Uint32Array)) {
      check("detokenize", "ids", ids, IDS);
    }
    return await this.#checked(() =>
      this.#connection.call("detokenize", { handle: this.#handle, ids: Uint32Array.from(ids) }));
  }

  /**
   * How one token is computed: kernels, sizes, estimates. With `runs`, each kernel is timed on the
   * device, which takes a moment; the next answer then computes its conversation again.
   */
  async explain(options: { runs?: number } = {}): Promise<Explanation> {
    const { runs = 0 } = checked("explain", options, EXPLAIN);
    return await this.#checked(() =>
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

  /** An answer; wrong arguments are its error. `ready` checks those before the options. */
  #text(
    name: string,
    options: GenerateOptions,
    ready: () => (wire: WireGenerateOptions, call: TextCall) => Promise<Result>,
  ): Generation {
    let given: GenerateOptions = {};
    let run: (wire: WireGenerateOptions, call: TextCall) => Promise<Result>;
    try {
      run = ready();
      given = checked(name, options, TEXT);
    } catch (thrown) {
      run = () => Promise.reject(thrown as Error);
    }
    const { signal, onPrompt, ...wire } = given;
    return new Generation(
      (call) => this.#checked(() => call.signal.aborted
        ? Promise.resolve({ ...NOTHING }) : run(wire, call)),
      signal, onPrompt, (recovered) => this.#on.recovered(this, recovered));
  }

  #checked<T>(run: () => Promise<T>): Promise<T> {
    if (this.#closed) {
      return Promise.reject(new WarploomError("closed", `the model ${this.info.name} is closed`));
    }
    return run();
  }
}
