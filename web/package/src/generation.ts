import { invalid } from "./check.js";
import { type WarploomError, asError } from "./errors.js";
import type { TextEvent } from "./protocol.js";
import type { Recovered, Result } from "./types.js";

type Run = (options: {
  signal: AbortSignal;
  event: (event: TextEvent) => void;
}) => Promise<Result>;

/**
 * An answer while it is written: iterate over its pieces of text, or await `result`.
 *
 * Leaving the loop early cancels the answer. It is written at the model's speed, whether or not it
 * is read. Iterate only once.
 */
export class Generation implements AsyncIterable<string> {
  /** The whole answer with its statistics. */
  readonly result: Promise<Result>;
  readonly #stop = new AbortController();
  readonly #pieces: string[] = [];
  #finished = false;
  #failure: WarploomError | null = null;
  #wake: (() => void) | null = null;
  #read = false;

  constructor(
    run: Run,
    signal: AbortSignal | undefined,
    onPrompt: ((progress: { done: number; total: number }) => void) | undefined,
    onRecovered: (recovered: Recovered) => void,
  ) {
    const stop = () => this.#stop.abort();
    if (signal?.aborted) {
      stop();
    } else {
      signal?.addEventListener("abort", stop, { once: true });
    }
    this.result = run({
      signal: this.#stop.signal,
      event: ({ text, prompt, recovered }) => {
        if (recovered) {
          onRecovered(recovered);
        }
        if (prompt) {
          onPrompt?.(prompt);
        }
        if (text) {
          this.#pieces.push(text);
          this.#notify();
        }
      },
    });
    const end = (failure: WarploomError | null) => {
      signal?.removeEventListener("abort", stop);
      this.#finished = true;
      this.#failure = failure;
      this.#notify();
    };
    // Also marks the promise as handled: a caller that only iterates gets the error from the loop.
    this.result.then(() => end(null), (error: unknown) => end(asError(error)));
  }

  /** Ends the answer; `result` then has `finish: "cancelled"`. */
  cancel(): void {
    this.#stop.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, Result, undefined> {
    if (this.#read) {
      throw invalid("an answer can be iterated only once");
    }
    this.#read = true;
    try {
      for (;;) {
        const piece = this.#pieces.shift();
        if (piece !== undefined) {
          yield piece;
        } else if (this.#failure) {
          throw this.#failure;
        } else if (this.#finished) {
          return await this.result;
        } else {
          await new Promise<void>((resolve) => { this.#wake = resolve; });
        }
      }
    } finally {
      this.cancel();
    }
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = null;
  }
}
