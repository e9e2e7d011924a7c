// The shape of OpenAI's client over a loaded model, so that programs written for it move over.
import { WarploomError } from "./errors.js";
import type { Generation } from "./generation.js";
import type { Model } from "./model.js";
import type { GenerateOptions, Message, Result } from "./types.js";

export interface ChatCompletionRequest {
  /** A loaded model or its name; the model that was loaded last if it is left out. */
  model?: string | Model;
  messages: {
    role: "system" | "developer" | "user" | "assistant";
    content: string | { type: "text"; text: string }[];
  }[];
  stream?: boolean;
  stream_options?: { include_usage?: boolean } | null;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  seed?: number | null;
  stop?: string | string[] | null;
  n?: 1 | null;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

type Finish = "stop" | "length";

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: [{
    index: 0;
    message: { role: "assistant"; content: string };
    finish_reason: Finish;
    logprobs: null;
  }];
  usage: Usage;
}

export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: 0;
    delta: { role?: "assistant"; content?: string };
    finish_reason: Finish | null;
    logprobs: null;
  }[];
  usage?: Usage;
}

export class Chat {
  readonly completions: ChatCompletions;

  /** @internal */
  constructor(models: () => Model[]) {
    this.completions = new ChatCompletions(models);
  }
}

const KNOWN = new Set([
  "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
  "temperature", "top_p", "seed", "stop", "n",
]);

export class ChatCompletions {
  readonly #models: () => Model[];

  /** @internal */
  constructor(models: () => Model[]) {
    this.#models = models;
  }

  /**
   * Answers the last message. With `stream: true` it returns chunks.
   *
   * A parameter that is not supported is refused with kind "unsupported", never ignored.
   */
  create(
    request: ChatCompletionRequest & { stream: true },
    options?: { signal?: AbortSignal },
  ): Promise<AsyncIterable<ChatCompletionChunk>>;
  create(
    request: ChatCompletionRequest & { stream?: false },
    options?: { signal?: AbortSignal },
  ): Promise<ChatCompletion>;
  async create(
    request: ChatCompletionRequest,
    options: { signal?: AbortSignal } = {},
  ): Promise<ChatCompletion | AsyncIterable<ChatCompletionChunk>> {
    for (const [name, value] of Object.entries(request)) {
      if (!KNOWN.has(name) && value !== undefined && value !== null) {
        throw new WarploomError("unsupported", `chat.completions.create does not support "${name}"`);
      }
    }
    if ((request.n ?? 1) !== 1) {
      throw new WarploomError("unsupported", `n is ${request.n}, only 1 answer is supported`);
    }
    const model = this.#find(request.model);
    const messages = request.messages.map(plain);
    const answer = model.chat(messages, generateOptions(request, options.signal));
    const head = {
      id: `chatcmpl-${crypto.randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      model: model.info.name,
    };
    return request.stream
      ? chunks(answer, head, request.stream_options?.include_usage === true)
      : completion(await answer.result, head);
  }

  #find(wanted: string | Model | undefined): Model {
    const models = this.#models();
    const found = wanted === undefined ? models.at(-1)
      : typeof wanted === "string" ? models.find((model) => model.info.name === wanted)
      : wanted;
    if (!found) {
      const names = models.map((model) => `"${model.info.name}"`).join(", ") || "none";
      throw new WarploomError("invalid",
        `${wanted === undefined ? "no model is loaded" : `no model "${String(wanted)}" is loaded`}; `
        + `loaded: ${names}`);
    }
    return found;
  }
}

function plain(message: ChatCompletionRequest["messages"][number]): Message {
  const role = message.role === "developer" ? "system" : message.role;
  if (typeof message.content === "string") {
    return { role, content: message.content };
  }
  const content = message.content.map((part) => {
    if (part.type !== "text") {
      throw new WarploomError("unsupported", `a message has a part of type "${String(part.type)}"`);
    }
    return part.text;
  });
  return { role, content: content.join("") };
}

function generateOptions(
  request: ChatCompletionRequest,
  signal: AbortSignal | undefined,
): GenerateOptions {
  const options: GenerateOptions = {};
  const maxTokens = request.max_completion_tokens ?? request.max_tokens;
  if (maxTokens != null) options.maxTokens = maxTokens;
  if (request.temperature != null) options.temperature = request.temperature;
  if (request.top_p != null) options.topP = request.top_p;
  if (request.seed != null) options.seed = request.seed;
  if (request.stop != null) options.stop = [request.stop].flat();
  if (signal) options.signal = signal;
  return options;
}

interface Head {
  id: string;
  created: number;
  model: string;
}

/** OpenAI has no word for a cancelled answer; its clients see "stop". */
function finishReason(result: Result): Finish {
  return result.finish === "length" ? "length" : "stop";
}

function usage(result: Result): Usage {
  return {
    prompt_tokens: result.promptTokens,
    completion_tokens: result.tokens,
    total_tokens: result.promptTokens + result.tokens,
  };
}

function completion(result: Result, head: Head): ChatCompletion {
  return {
    ...head,
    object: "chat.completion",
    choices: [{
      index: 0,
      message: { role: "assistant", content: result.text },
      finish_reason: finishReason(result),
      logprobs: null,
    }],
    usage: usage(result),
  };
}

async function* chunks(
  answer: Generation,
  head: Head,
  withUsage: boolean,
): AsyncGenerator<ChatCompletionChunk, void, undefined> {
  const chunk = (
    delta: ChatCompletionChunk["choices"][number]["delta"],
    finish: Finish | null,
  ): ChatCompletionChunk => ({
    ...head,
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: finish, logprobs: null }],
  });
  yield chunk({ role: "assistant", content: "" }, null);
  for await (const content of answer) {
    yield chunk({ content }, null);
  }
  const result = await answer.result;
  yield chunk({}, finishReason(result));
  if (withUsage) {
    yield { ...head, object: "chat.completion.chunk", choices: [], usage: usage(result) };
  }
}
