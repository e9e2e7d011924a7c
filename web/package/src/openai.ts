// The shape of OpenAI's client over a loaded model, so that programs written for it move over.
import {
  OBJECT, REQUEST, SIGNAL_ONLY, STRING, check, invalid, messages as checkMessages, oneOf, options as checked, shown,
} from "./check.js";
import { WarploomError, cancelled } from "./errors.js";
import type { Generation } from "./generation.js";
import { Model } from "./model.js";
import type { GenerateOptions, Message, Result } from "./types.js";

export interface ChatCompletionRequest {
  /** A loaded model or its name; the model that was loaded last if it is left out. */
  model?: string | Model;
  messages: readonly {
    role: "system" | "developer" | "user" | "assistant";
    content: string | readonly { type: "text"; text: string }[];
  }[];
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  seed?: number | null;
  stop?: string | readonly string[] | null;
  n?: 1 | null;
}

export interface Usage {
  prompt_tokens: number;
  /** Those of them that were computed for the conversation before. */
  prompt_tokens_details: { cached_tokens: number };
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

/** The name of the call in its errors. */
const CREATE = "chat.completions.create";
const KNOWN = new Set(["model", "messages", "n", ...Object.keys(REQUEST)]);
const ROLE = oneOf("system", "developer", "user", "assistant");

export class ChatCompletions {
  readonly #models: () => Model[];

  /** @internal */
  constructor(models: () => Model[]) {
    this.#models = models;
  }

  /**
   * Answers the last message. With `stream: true` it returns chunks.
   *
   * A parameter that is not supported is refused with kind "unsupported", never ignored. If `signal`
   * aborts before the whole answer, the call rejects with kind "cancelled"; chunks just end.
   */
  create(
    request: ChatCompletionRequest & { stream: true },
    options?: { signal?: AbortSignal },
  ): Promise<AsyncIterable<ChatCompletionChunk>>;
  create(
    request: ChatCompletionRequest & { stream?: false | null },
    options?: { signal?: AbortSignal },
  ): Promise<ChatCompletion>;
  create(
    request: ChatCompletionRequest,
    options?: { signal?: AbortSignal },
  ): Promise<ChatCompletion | AsyncIterable<ChatCompletionChunk>>;
  async create(
    request: ChatCompletionRequest,
    options: { signal?: AbortSignal } = {},
  ): Promise<ChatCompletion | AsyncIterable<ChatCompletionChunk>> {
    checkRequest(request);
    const { signal } = checked(CREATE, options, SIGNAL_ONLY);
    const model = this.#find(request.model);
    if (signal?.aborted) {
      throw cancelled(CREATE);
    }
    const answer = model.chat(request.messages.map(plain), generateOptions(request, signal));
    // Not randomUUID, which pages without https lack.
    const id = crypto.getRandomValues(new Uint32Array(4));
    const head = {
      id: `chatcmpl-${Array.from(id, (word) => word.toString(16).padStart(8, "0")).join("")}`,
      created: Math.floor(Date.now() / 1000),
      model: model.info.name,
    };
    return request.stream
      ? chunks(answer, head, request.stream_options?.include_usage === true)
      : completion(await whole(answer), head);
  }

  #find(wanted: string | Model | null | undefined): Model {
    const models = this.#models();
    const found = wanted === undefined || wanted === null ? models.at(-1)
      : typeof wanted === "string" ? models.find((model) => model.info.name === wanted)
      : wanted;
    if (!found) {
      const names = models.map((model) => `"${model.info.name}"`).join(", ") || "none";
      throw invalid(
        `${CREATE}: ${wanted ? `no model ${shown(wanted)} is loaded` : "no model is loaded"}; loaded: ${names}`);
    }
    return found;
  }
}

function plain(message: ChatCompletionRequest["messages"][number]): Message {
  const role = message.role === "developer" ? "system" : message.role;
  if (typeof message.content === "string") {
    return { role, content: message.content };
  }
  return { role, content: message.content.map((part) => part.text).join("") };
}

/** Throws what is wrong with a request. */
function checkRequest(request: ChatCompletionRequest): void {
  check(CREATE, "the request", request, OBJECT);
  for (const [name, value] of Object.entries(request)) {
    if (value === undefined || value === null) continue;
    if (!KNOWN.has(name)) {
      throw new WarploomError("unsupported", `${CREATE} does not support "${name}"`);
    }
    const rule = REQUEST[name];
    if (rule) check(CREATE, name, value, rule);
  }
  if ((request.n ?? 1) !== 1) {
    throw new WarploomError("unsupported", `n is ${shown(request.n)}, only 1 answer is supported`);
  }
  check(CREATE, "model", request.model ?? "", {
    must: "a loaded model or its name", is: (value) => STRING.is(value) || value instanceof Model,
  });
  checkMessages(CREATE, request.messages, ROLE, (name, parts) => {
    for (const part of parts as unknown[]) {
      const { type, text } = Object(part) as { type: unknown; text: unknown };
      if (typeof type === "string" && type !== "text") {
        throw new WarploomError("unsupported", `${CREATE}: ${name} has a part of type "${type}"`);
      }
      check(CREATE, name, typeof text === "string" && type === "text" ? text : part,
        { ...STRING, must: "a string or parts { type: \"text\", text }" });
    }
  });
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

async function whole(answer: Generation): Promise<Result> {
  const result = await answer.result;
  if (result.finish === "cancelled") {
    throw cancelled(CREATE);
  }
  return result;
}

interface Head {
  id: string;
  created: number;
  model: string;
}

/** OpenAI has no word for chunks that were cancelled; its clients see "stop". */
function finishReason(result: Result): Finish {
  return result.finish === "length" ? "length" : "stop";
}

function usage(result: Result): Usage {
  return {
    prompt_tokens: result.promptTokens,
    prompt_tokens_details: { cached_tokens: result.cachedTokens },
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
