// Wrong arguments: each is an error that names it, and the engine goes on.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, refuses, serveFolders, watchWorker, web } from "./lib.mjs";

let site, browser;

before(async () => {
  site = await serveFolders({ "/package/": join(web, "package", "dist") });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await site?.close();
});

async function tab(t) {
  const page = await browser.page(`${site.origin}/blank.html`);
  t.after(() => page.close());
  return page;
}

/** Opens the CPU in the page. */
const open = (page, options = {}) => page.evaluate(async (options) => {
  window.engine = await window.warploom.open(options);
}, { device: "cpu", ...options });

test("wrong arguments are named, and the engine goes on", async (t) => {
  const page = await tab(t);
  await open(page);
  await page.evaluate(async () => { window.model = await window.engine.embedded(); });
  const options = (call) => `${call}: the options are`;
  const whole = (low, high) => `must be a whole number from ${low} ${high ? `to ${high}` : "on"}`;
  await refuses(page, {
    "model.generate(5).result": "generate: the prompt is a number, not a string",
    "model.generate({ prompt: 'x' }).result": "generate: the prompt is an object, not a string",
    "model.generate([]).result": "generate: the prompt is an array, not a string",
    "model.generate().result": "generate: the prompt is undefined, not a string",
    "model.generate('x', null).result": `${options("generate")} null, not an object`,
    "model.generate('x', { maxTokens: -1 }).result": `generate: maxTokens: -1, ${whole(0)}`,
    "model.generate('x', { maxTokens: NaN }).result": `generate: maxTokens: NaN, ${whole(0)}`,
    "model.generate('x', { maxTokens: 3n }).result": `generate: maxTokens: 3n, ${whole(0)}`,
    "model.generate('x', { seed: 1.5 }).result": `generate: seed: 1.5, ${whole(0)}`,
    "model.generate('x', { topK: '1' }).result": `generate: topK: "1", ${whole(0)}`,
    "model.generate('x', { temperature: Infinity }).result":
      "generate: temperature: Infinity, must be a finite number from 0 on",
    "model.generate('x', { topP: NaN }).result": "generate: topP: NaN, must be a number from 0 to 1",
    "model.generate('x', { repeatPenalty: 0 }).result":
      "generate: repeatPenalty: 0, must be a finite number above 0",
    "model.generate('x', { stop: 'x' }).result":
      'generate: stop: "x", must be an array of strings that are not empty',
    "model.generate('x', { signal: {} }).result": "generate: signal: an object, must be an AbortSignal",
    "model.generate('x', { onPrompt: 5 }).result": "generate: onPrompt: 5, must be a function",
    "model.chat([]).result": "chat: messages: [], must be an array of at least one message",
    "model.chat([{ role: 'user', content: 5 }]).result": "chat: messages[0].content: 5, must be a string",
    "model.chat([{ role: 'bot', content: '' }]).result":
      'chat: messages[0].role: "bot", must be "system", "user", "assistant" or "tool"',
    "model.tokenize(5)": "tokenize: the text is a number, not a string",
    "model.tokenize(null)": "tokenize: the text is null, not a string",
    "model.detokenize([1.5])":
      "detokenize: ids: [1.5], must be an array of tokens, which are whole numbers from 0 on",
    "model.detokenize()":
      "detokenize: ids: undefined, must be an array of tokens, which are whole numbers from 0 on",
    "model.explain({ runs: 1e9 })": `explain: runs: 1000000000, ${whole(0, 1000)}`,
    "model.explain(null)": `${options("explain")} null, not an object`,
    "engine.embedded({ first: { maxTokens: -1 } })": `embedded: first: maxTokens: -1, ${whole(0)}`,
    "engine.load()": "load: the file: undefined, must be an address, a File or a Blob",
    "engine.load('')": 'load: the file: "", must be an address, a File or a Blob',
    "engine.load('/x.gguf', null)": `${options("load")} null, not an object`,
    "engine.load('/x.gguf', { sha256: 123 })": "load: sha256: 123, must be 64 hexadecimal digits",
    "engine.load('/x.gguf', { context: NaN })": `load: context: NaN, ${whole(1, 0x7fffffff)}`,
    "engine.load('/x.gguf', { cache: 1 })": 'load: cache: 1, must be "f32" or "f16"',
    "engine.load('/x.gguf', { onProgress: 5 })": "load: onProgress: 5, must be a function",
    "engine.remove('')": 'remove: name: "", must be the name of a stored model',
    "engine.remove('x.gguf.json')": 'remove: name: "x.gguf.json", must be the name of a stored model',
    "window.warploom.open(null)": `${options("open")} null, not an object`,
    "window.warploom.open({ device: 'gpu' })": 'open: device: "gpu", must be "auto", "webgpu" or "cpu"',
    "engine.chat.completions.create()":
      "chat.completions.create: the request: undefined, must be an object",
    "engine.chat.completions.create({})":
      "chat.completions.create: messages: undefined, must be an array of at least one message",
    "engine.chat.completions.create({ messages: [null] })":
      "chat.completions.create: messages[0]: null, must be an object",
    "engine.chat.completions.create({ messages: [{ role: 'user', content: [null] }] })":
      'chat.completions.create: messages[0].content: null, must be a string or parts { type: "text", text }',
    "engine.chat.completions.create({ messages: [{ role: 'user', content: '' }], max_tokens: '3' })":
      `chat.completions.create: max_tokens: "3", ${whole(0)}`,
  });
  const { most, long } = await page.evaluate(async () => ({
    most: await window.model.generate("Once", { maxTokens: Number.MAX_SAFE_INTEGER, stop: ["."] }).result,
    long: await window.model.generate("word ".repeat(2000)).result.catch(({ kind, details }) => ({ kind, details })),
  }));
  assert.ok(most.tokens > 0, "more tokens than the module can count are no limit");
  assert.equal(long.kind, "invalid");
  assert.ok(long.details.tokens > 2000 && long.details.context === 512, JSON.stringify(long));
});

test("the worker refuses what is no text, whatever the page sends", async (t) => {
  const page = await tab(t);
  await watchWorker(page);
  await open(page);
  const { kinds, tokens } = await page.evaluate(async () => {
    const model = await window.engine.embedded();
    const kinds = [];
    const calls = { generate: { prompt: 5, options: {} }, tokenize: { text: {} }, chat: {} };
    for (const [call, args] of Object.entries(calls)) {
      const answer = new Promise((resolve) => window.worker.addEventListener("message",
        ({ data }) => { if (data.id === call) resolve(data.error?.kind ?? null); }));
      window.worker.postMessage({ id: call, call, args: { handle: 1, ...args } });
      kinds.push(await answer);
    }
    return { kinds, tokens: (await model.generate("Once", { maxTokens: 2 }).result).tokens };
  });
  // Absent messages are an empty conversation.
  assert.deepEqual(kinds, ["invalid", "invalid", null]);
  assert.equal(tokens, 2);
});

test("wrong arguments of tensors and packs are named at the call, and the engine goes on", async (t) => {
  const page = await tab(t);
  await open(page, { full: true });
  const dtypes = 'must be "f32", "f16", "bf16", "i32", "u32" or "bool"';
  const shapes = "must be an array of whole numbers from 0 on";
  const operand = "must be a tensor, a number or a boolean";
  const data = "must be a number, a typed array or nested arrays of numbers";
  const tidy = "tidy: its function must return a tensor or an array of tensors, and not be async";
  await refuses(page, {
    "engine.tensor()": `tensor: data: undefined, ${data}`,
    "engine.tensor(null)": `tensor: data: null, ${data}`,
    "engine.tensor(new DataView(new ArrayBuffer(8)))": `tensor: data: DataView, ${data}`,
    "engine.tensor([1], [1], 5)": `tensor: dtype: 5, ${dtypes}`,
    "engine.tensor([1, 2], [NaN])": `tensor: shape: [NaN], ${shapes}`,
    "engine.tensor([1, 2, 3], [1.5, 2])": `tensor: shape: [1.5, 2], ${shapes}`,
    "engine.tensor([1, 2, 3], [2, 2])": "tensor: 3 values for the shape [2, 2] of 4",
    "engine.tensor([-1], undefined, 'u32')": "tensor: -1 is not a value of u32",
    "engine.tensor([5e9], undefined, 'u32')": "tensor: 5000000000 is not a value of u32",
    "engine.tensor([1.5], undefined, 'i32')": "tensor: 1.5 is not a value of i32",
    "engine.tensor(JSON.parse('['.repeat(2000) + ']'.repeat(2000)))":
      "tensor: data: arrays that are over 64 deep",
    "engine.zeros(5)": `zeros: shape: 5, ${shapes}`,
    "engine.ones([-1])": `ones: shape: [-1], ${shapes}`,
    "engine.full([2], Infinity, 'u32')": "full: Infinity is not a value of u32",
    "engine.rand([2], NaN)": "rand: seed: NaN, must be a whole number from 0 on",
    "engine.arange(5)": "arange: end: undefined, must be a finite number",
    "engine.arange(0, 1e12)": "arange: from 0 to 1000000000000 by 1 are over 536870911 values",
    "engine.linspace(0, 1, -1)": "linspace: count: -1, must be a whole number from 0 to 536870911",
    "engine.linspace(0, 1, 1.5)": "linspace: count: 1.5, must be a whole number from 0 to 536870911",
    "engine.linspace(0, 1, 1e9)": "linspace: count: 1000000000, must be a whole number from 0 to 536870911",
    "engine.linspace(0, 1, 1e12)":
      "linspace: count: 1000000000000, must be a whole number from 0 to 536870911",
    "engine.eye(-1)": "eye: n: -1, must be a whole number from 0 to 23170",
    "engine.ones([2]).add()": `add: other: undefined, ${operand}`,
    "engine.ones([2]).add(1n)": `add: other: 1n, ${operand}`,
    "engine.ones([2]).matmul(5)": "matmul: other: 5, must be a tensor",
    "engine.ones([2]).rmsNorm()": "rmsNorm: weight: undefined, must be a tensor",
    "engine.ones([4]).reshape([2, 2])": "reshape: shape: [2, 2], must be whole numbers, each an argument",
    "engine.ones([4]).reshape(2, NaN)": "reshape: shape: NaN, must be a whole number",
    "engine.ones([4]).softmax()": "softmax: axis: undefined, must be a whole number",
    "engine.ones([4]).sum('0')": 'sum: axes: "0", must be a whole number',
    "engine.ones([4]).cast()": `cast: dtype: "", ${dtypes}`,
    "engine.ones([4]).concat(engine.ones([4]), 0)": "concat: others: Tensor, must be an array of tensors",
    "engine.eval(5)": "eval: argument 1: 5, must be a tensor",
    "engine.eval([engine.ones([1])])": "eval: argument 1: an array of 1, must be a tensor",
    "engine.tidy(async () => engine.ones([1]))": tidy,
    "engine.tidy(() => ({ a: engine.ones([1]) }))": tidy,
    "engine.surface(document.createElement('canvas')).then((surface) => surface.draw(5))":
      "draw: pixels: 5, must be a tensor",
    "engine.surface(null)": "surface: canvas: null, must be a canvas of the page",
    "engine.pack()": "pack: its argument: undefined, must be { manifest, files }",
    "engine.pack({ manifest: 5, files: {} })": "pack: the manifest is a number, not a string",
    "engine.pack({ manifest: '' })": "pack: files: undefined, must be an object with texts by their names",
    "engine.pack({ manifest: '', files: { 'a.wgsl': 5 } })": 'pack: "a.wgsl": 5, must be a string',
    "engine.conformance(null)": "conformance: the options are null, not an object",
    "engine.conformance({ device: 'cpu', cases: 5 })": "conformance: cases: 5, must be a string",
  });
  const found = await page.evaluate(async () => {
    const { engine } = window;
    const pack = await engine.pack({
      manifest: 'name = "copy"\ninputs = ["a: [n]"]\noutputs = ["b: [n]"]\nthreads = "n"',
      files: { "copy.wgsl": `
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&a)) { b[id.x] = a[id.x]; }
}` } });
    const calls = [() => pack.run(), () => pack.run(engine.ones([1])), () => pack.run([5])].map((run) => {
      try { return run(); } catch ({ kind, message }) { return `${kind}: ${message}`; }
    });
    const x = engine.ones([2]).add(1);
    const read = x.data();
    x.dispose();
    return { calls, read: [...await read], large: [...await engine.full([2], 4_000_000_001, "u32").data()] };
  });
  assert.deepEqual(found.calls, [
    "invalid: copy: operands: undefined, must be an array of tensors",
    "invalid: copy: operands: Tensor, must be an array of tensors",
    "invalid: copy: operands: [5], must be an array of tensors",
  ]);
  assert.deepEqual(found.read, [2, 2], "a read that has begun is finished");
  assert.deepEqual(found.large, [4_000_000_001, 4_000_000_001]);
});
