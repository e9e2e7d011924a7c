// Checks of arguments. JavaScript has no types at run time, and the WebAssembly module trusts what it
// gets: a number in the place of a string would be read as a place in its memory.
import { WarploomError } from "./errors.js";

/** A condition on a value, and how an error words it behind "must be". */
export interface Rule {
  readonly must: string;
  is(value: unknown): boolean;
  /** The rules of an object's fields. */
  readonly fields?: Rules;
}

export type Rules = Readonly<Record<string, Rule>>;

export const invalid = (message: string) => new WarploomError("invalid", message);

/** The kind of a value in words: "a number", "an array", "null". */
function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? "an array" : typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** A value in an error, short and on one line. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case "string": return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
    case "bigint": return `${value}n`;
    case "function": case "symbol": return kindOf(value);
    case "object": {
      if (Array.isArray(value)) {
        const short = value.length <= 8 && value.every((item) => typeof item !== "object" || item === null);
        return short ? `[${value.map(shown).join(", ")}]` : `an array of ${value.length}`;
      }
      const name: unknown = value?.constructor?.name;
      return typeof name === "string" && name !== "Object" && name !== "" ? name : kindOf(value);
    }
    default: return String(value);
  }
}

/** Throws unless `value` fits the rule; the error names the call, the argument and the value. */
export function check(call: string, name: string, value: unknown, rule: Rule): void {
  if (!rule.is(value)) {
    throw invalid(`${call}: ${name}: ${shown(value)}, must be ${rule.must}`);
  }
  if (rule.fields) {
    options(`${call}: ${name}`, value as object, rule.fields);
  }
}

/** The options of a call, whose fields fit their rules. */
export function options<T extends object>(call: string, value: T, rules: Rules): T {
  if (!OBJECT.is(value)) {
    throw invalid(`${call}: the options are ${kindOf(value)}, not an object`);
  }
  for (const [name, field] of Object.entries(value)) {
    if (field === undefined) continue;
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (!rule) {
      throw invalid(`${call}: no option ${shown(name)}; there are ${Object.keys(rules).join(", ")}`);
    }
    check(call, name, field, rule);
  }
  return value;
}

/** A text that goes to the module. */
export function text(call: string, what: string, value: unknown): string {
  if (typeof value !== "string") {
    throw invalid(`${call}: the ${what} is ${kindOf(value)}, not a string`);
  }
  return value;
}

export const whole = (low: number, high = Number.MAX_SAFE_INTEGER): Rule => ({
  must: `a whole number from ${low} ${high === Number.MAX_SAFE_INTEGER ? "on" : `to ${high}`}`,
  is: (value) => Number.isSafeInteger(value) && Number(value) >= low && Number(value) <= high,
});
const number = (low: number, high: number, must: string): Rule =>
  ({ must, is: (value) => typeof value === "number" && value >= low && value <= high });
const typed = (type: string, must: string): Rule => ({ must, is: (value) => typeof value === type });
export const oneOf = (...names: readonly string[]): Rule => ({
  must: names.map((name) => `"${name}"`).join(", ").replace(/, ([^,]*)$/, " or $1"),
  is: (value) => names.includes(value as string),
});
export const arrayOf = (item: Rule, must: string): Rule =>
  ({ must, is: (value) => Array.isArray(value) && value.every((one) => item.is(one)) });

export const OBJECT: Rule = {
  must: "an object",
  is: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};
export const STRING = typed("string", "a string");
export const BOOLEAN = typed("boolean", "true or false");
export const FINITE: Rule = { must: "a finite number", is: Number.isFinite };
export const INTEGER: Rule = { must: "a whole number", is: Number.isSafeInteger };
export const DTYPE = oneOf("f32", "f16", "bf16", "i32", "u32", "bool");
export const SHAPE = arrayOf(whole(0), "an array of whole numbers from 0 on");
export const ADDRESS: Rule = {
  must: "an address",
  is: (value) => value instanceof URL || (typeof value === "string" && value !== ""),
};
const FUNCTION = typed("function", "a function");
/** Also one of another window; null is none, as for `fetch`. */
const SIGNAL: Rule = {
  must: "an AbortSignal",
  is: (value) => value === null || (typeof (value as AbortSignal).aborted === "boolean"
    && typeof (value as AbortSignal).addEventListener === "function"),
};
export const SIGNAL_ONLY: Rules = { signal: SIGNAL };

const COMPUTE = oneOf("f32", "int8");
/** The largest number of 32-bit floats. */
const MOST = 3.4e38;
const SAMPLING: Rules = {
  maxTokens: whole(0),
  temperature: number(0, MOST, "a finite number from 0 on"),
  topK: whole(0),
  topP: number(0, 1, "a number from 0 to 1"),
  minP: number(0, 1, "a number from 0 to 1"),
  repeatPenalty: number(1.2e-38, MOST, "a finite number above 0"),
  seed: whole(0),
  stop: arrayOf({ must: "", is: (value) => STRING.is(value) && value !== "" },
    "an array of strings that are not empty"),
  compute: COMPUTE,
};
/** Options of `generate` and `chat`. */
export const TEXT: Rules = { ...SAMPLING, ...SIGNAL_ONLY, onPrompt: FUNCTION };
const SESSION: Rules = {
  context: whole(1, 0x7fff_ffff),
  compute: COMPUTE,
  cache: oneOf("f32", "f16"),
  first: { ...OBJECT, fields: SAMPLING },
};
export const ESTIMATE: Rules = { ...SESSION, ...SIGNAL_ONLY };
export const EMBEDDED: Rules = { ...ESTIMATE, onProgress: FUNCTION };
export const LOAD: Rules = {
  ...EMBEDDED,
  sha256: {
    must: "64 hexadecimal digits",
    is: (value) => typeof value === "string" && /^[\da-f]{64}$/i.test(value),
  },
};
export const OPEN: Rules = {
  device: oneOf("auto", "webgpu", "cpu"), floor: BOOLEAN, full: BOOLEAN, workerUrl: ADDRESS,
};
export const CONFORMANCE: Rules = {
  device: STRING,
  elements: number(0, Number.MAX_VALUE, "a finite number from 0 on"),
  cases: STRING,
  onProgress: FUNCTION,
};
export const EXPLAIN: Rules = { runs: whole(0, 1000) };
/** Parameters of `chat.completions.create` but its messages. */
export const REQUEST: Rules = {
  stream: BOOLEAN,
  stream_options: { ...OBJECT, fields: { include_usage: BOOLEAN } },
  max_tokens: whole(0),
  max_completion_tokens: whole(0),
  temperature: SAMPLING.temperature as Rule,
  top_p: SAMPLING.topP as Rule,
  seed: whole(0),
  stop: {
    must: "a string or an array of strings, none of them empty",
    is: (value) => (SAMPLING.stop as Rule).is([value].flat()),
  },
};

const ROLE = oneOf("system", "user", "assistant", "tool");

/** The messages of a conversation; `content` checks one that is no string. */
export function messages(
  call: string,
  value: unknown,
  roles: Rule = ROLE,
  content?: (name: string, value: unknown) => void,
): void {
  if (!Array.isArray(value) || value.length === 0) {
    throw invalid(`${call}: messages: ${shown(value)}, must be an array of at least one message`);
  }
  // Not with forEach, which leaves holes out.
  for (const [i, message] of (value as unknown[]).entries()) {
    const name = `messages[${i}]`;
    check(call, name, message, OBJECT);
    const { role, content: words } = message as { role: unknown; content: unknown };
    check(call, `${name}.role`, role, roles);
    if (content && Array.isArray(words)) content(`${name}.content`, words);
    else check(call, `${name}.content`, words, STRING);
  }
}
