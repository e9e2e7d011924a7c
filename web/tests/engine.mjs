// Language models in a page: text, cancel, OpenAI's shape, loss, fallback, a real model.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { golden, launch, serveFile, serveFolders, smolLm2, watchWorker, web } from "./lib.mjs";

const TINY = "warploom-tiny-llama-Q4_K_M.gguf";
/** As tests/it/with_models/greedy.rs: a choice between two logits that are nearer is open. */
const TOLERANCE = 2e-3;
/** Exact products, no choice by chance. */
const GREEDY = { temperature: 0, compute: "f32" };

let site, browser;

before(async () => {
  site = await serveFolders({
    "/package/": join(web, "package", "dist"),
    "/tests/": join(web, "tests"),
  });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await site?.close();
});

async function tab(t, from = browser) {
  const page = await from.page(`${site.origin}/blank.html`);
  t.after(() => page.close());
  return page;
}

/** Opens `device` in the page; returns what the engine says about itself. */
const open = (page, device, options = {}) => page.evaluate(async (options) => {
  window.engine = await window.warploom.open(options);
  return window.engine.info;
}, { device, ...options });

/** A worker in which tests lose devices and refuse memory; see tests/faults.mjs. */
const FAULTS = { workerUrl: "/tests/faults.mjs" };
const fault = (page, what) => page.evaluate((what) => new Promise((resolve) => {
  window.faults ??= new BroadcastChannel("faults");
  window.faults.onmessage = resolve;
  window.faults.postMessage(what);
}).then(() => undefined), what);

/**
 * Text of the model in `window.model` for each row, with the texts of the recorded tokens up to the
 * first choice that is open, of which the answer must begin with.
 */
function texts(page, rows, options) {
  const wanted = rows.map(({ prompt, greedy, gaps }) => {
    const open = gaps.findIndex((gap) => !(gap > TOLERANCE));
    return { prompt, ids: open < 0 ? greedy : greedy.slice(0, open), open: open >= 0 };
  });
  return page.evaluate(async ({ wanted, options }) => {
    const answers = [];
    for (const { prompt, ids, open } of wanted) {
      const answer = window.model.generate(prompt, { ...options, maxTokens: ids.length });
      const pieces = [];
      for await (const piece of answer) pieces.push(piece);
      const result = await answer.result;
      answers.push({ prompt, pieces, result, open, ids,
        recorded: await window.model.detokenize(Uint32Array.from(ids)),
        tokens: [...await window.model.tokenize(prompt)] });
    }
    return answers;
  }, { wanted, options });
}

function compare(answers, device) {
  let compared = 0;
  for (const { prompt, pieces, result, recorded, ids } of answers) {
    assert.equal(pieces.join(""), result.text, prompt);
    assert.ok(result.tokens > 0 && result.tokens <= ids.length, `${prompt}: ${result.tokens}`);
    // An end token ends the answer; the record goes on behind it.
    const complete = result.finish === "length";
    const text = complete ? recorded : recorded.slice(0, result.text.length);
    assert.equal(result.text, text, `${device}: ${JSON.stringify(prompt)}`);
    compared += result.tokens;
  }
  return compared;
}

// SwiftShader compiles kernels slowly, so that WebGPU gets one of the five prompts.
for (const [device, prompts] of [["cpu", 5], ["webgpu", 1]]) {
  test(`the embedded model writes the recorded text on ${device}`, { timeout: 400_000 }, async (t) => {
    const page = await tab(t);
    const info = await open(page, device, device === "webgpu" ? FAULTS : {});
    assert.equal(info.provider, device);
    assert.equal(info.fallback, null);
    console.log(`web: ${device} is ${JSON.stringify(info.device.name)}`);
    const model = await page.evaluate(async () => {
      window.model = await window.engine.embedded({ compute: "f32" });
      return window.model.info;
    });
    assert.equal(model.architecture, "llama");
    assert.equal(model.template, true);
    assert.equal(model.vocabulary, 4096);
    const rows = (await golden(TINY)).slice(0, prompts);
    const begin = Date.now();
    const answers = await texts(page, rows, GREEDY);
    const compared = compare(answers, device);
    // 32 tokens of each prompt, up to the first open choice.
    assert.ok(compared >= 24 * prompts, `only ${compared} tokens were compared`);
    // Written here and not taken from the engine.
    assert.match(answers[0].result.text, /^ girl named Elif\. She lived in a small village/);
    console.log(`web: ${compared} tokens of the embedded model are as recorded on ${device}, `
      + `in ${((Date.now() - begin) / 1000).toFixed(1)} s`);
    if (device === "webgpu") await loses(page, rows[0]);
  });
}

/** Loses the device in the middle of an answer, which goes on with the same tokens. */
async function loses(page, { prompt, greedy, gaps }) {
  const open = gaps.findIndex((gap) => !(gap > TOLERANCE));
  const ids = greedy.slice(0, open < 0 ? 16 : Math.min(open, 16));
  await page.evaluate(({ prompt, maxTokens }) => {
    window.recovered = [];
    window.engine.addEventListener("recovered", ({ recovered, model }) =>
      window.recovered.push({ ...recovered, ours: model === window.model }));
    window.answer = window.model.generate(prompt, { temperature: 0, maxTokens });
    window.pieces = [];
    window.reading = (async () => {
      for await (const piece of window.answer) window.pieces.push(piece);
    })();
  }, { prompt, maxTokens: ids.length });
  await page.waitForFunction(() => window.pieces.length >= 3, null, { timeout: 120_000 });
  await fault(page, "lose");
  const { text, result, recovered, recorded } = await page.evaluate(async (ids) => {
    await window.reading;
    return { text: window.pieces.join(""), result: await window.answer.result,
      recovered: window.recovered, recorded: await window.model.detokenize(Uint32Array.from(ids)) };
  }, ids);
  assert.equal(text, recorded);
  assert.equal(result.tokens, ids.length);
  assert.equal(recovered.length, 1, JSON.stringify(recovered));
  assert.ok(recovered[0].ours && recovered[0].tokens >= 4, JSON.stringify(recovered));
  assert.equal(recovered[0].device, "webgpu:0");
  assert.match(recovered[0].lost, /webgpu:0 is lost/);
  console.log(`web: the device was lost within ${ids.length} tokens, which are as recorded; `
    + `${recovered[0].tokens} computed again in ${recovered[0].seconds.toFixed(1)} s`);
}

test("memory that the browser refuses is an error with its numbers, and the engine goes on", async (t) => {
  const page = await tab(t);
  await open(page, "webgpu", FAULTS);
  await fault(page, "refuse");
  const error = await page.evaluate(() => window.engine.embedded()
    .then(() => null, ({ name, kind, message }) => ({ name, kind, message })));
  await fault(page, "allow");
  const loaded = await page.evaluate(async () => (await window.engine.embedded()).info.weights);
  assert.equal(error?.name, "WarploomError", JSON.stringify(error));
  assert.equal(error.kind, "out-of-memory", JSON.stringify(error));
  assert.match(error.message, /\d+ bytes/, JSON.stringify(error));
  assert.ok(loaded > 1_000_000);
});

test("a load is cancelled while the weights are uploaded", async (t) => {
  const page = await tab(t);
  await open(page, "cpu");
  const { kind, message, next } = await page.evaluate(async () => {
    const stop = new AbortController();
    const onProgress = ({ phase, done }) => {
      if (phase === "load" && done > 0) stop.abort();
    };
    const error = await window.engine.embedded({ signal: stop.signal, onProgress })
      .then(() => ({}), (thrown) => thrown);
    const model = await window.engine.embedded();
    const next = await model.generate("Once", { maxTokens: 2 }).result;
    return { kind: error.kind, message: error.message, next };
  });
  assert.equal(kind, "cancelled", message);
  assert.equal(next.tokens, 2);
});

test("an answer can be cancelled by a signal and by leaving the loop", async (t) => {
  const page = await tab(t);
  await open(page, "cpu");
  const { first, second, after, aborted } = await page.evaluate(async () => {
    const model = await window.engine.embedded();
    const stop = new AbortController();
    const answer = model.generate("Once", { maxTokens: 400, signal: stop.signal });
    let count = 0;
    for await (const _ of answer) {
      count += 1;
      if (count === 3) stop.abort();
    }
    const first = await answer.result;
    const left = model.generate("Once", { maxTokens: 400 });
    for await (const _ of left) break;
    const second = await left.result;
    const early = await model.generate("Once", { signal: AbortSignal.abort() }).result;
    // The model goes on after that.
    const after = await model.generate("Once", { maxTokens: 5, temperature: 0 }).result;
    await model.close();
    const kind = await model.generate("Once").result.catch((error) => error.kind);
    return { first, second, after, aborted: { early, kind } };
  });
  for (const result of [first, second]) {
    assert.equal(result.finish, "cancelled");
    assert.ok(result.tokens < 300, `${result.tokens} tokens were written`);
  }
  assert.equal(aborted.early.finish, "cancelled");
  assert.equal(after.tokens, 5);
  assert.equal(after.finish, "length");
  assert.equal(aborted.kind, "closed");
});

test("chat, and OpenAI's shape of it", async (t) => {
  const page = await tab(t);
  await open(page, "cpu");
  const found = await page.evaluate(async () => {
    const { engine } = window;
    const messages = [{ role: "user", content: "What is the capital of France?" }];
    const early = await engine.chat.completions.create({ messages }).catch((error) => error.kind);
    const model = await engine.embedded();
    const chat = await model.chat(messages, { temperature: 0, maxTokens: 24 }).result;
    const request = { messages, temperature: 0, max_tokens: 24 };
    const whole = await engine.chat.completions.create(request);
    const chunks = [];
    const stream = await engine.chat.completions.create(
      { ...request, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) chunks.push(chunk);
    const refused = await engine.chat.completions.create({ messages, tools: [{}] })
      .catch(({ kind, message }) => ({ kind, message }));
    const other = await engine.chat.completions.create({ messages, model: "gpt" })
      .catch(({ kind }) => kind);
    return { early, chat, whole, chunks, refused, other };
  });
  const { early, chat, whole, chunks, refused, other } = found;
  assert.equal(early, "invalid");
  assert.equal(other, "invalid");
  assert.equal(refused.kind, "unsupported");
  assert.match(refused.message, /"tools"/);
  assert.match(chat.text, /Paris/);
  assert.equal(whole.object, "chat.completion");
  assert.equal(whole.choices[0].message.content, chat.text);
  assert.equal(whole.choices[0].finish_reason, chat.finish);
  assert.equal(whole.usage.completion_tokens, chat.tokens);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join(""), chat.text);
  assert.equal(chunks.at(-2).choices[0].finish_reason, chat.finish);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, chat.tokens);
});

test("a load that is aborted as the worker answers rejects, and its model is closed", async (t) => {
  const page = await tab(t);
  await watchWorker(page);
  await open(page, "cpu");
  const { kind, sent, loaded } = await page.evaluate(async () => {
    const stop = new AbortController();
    window.worker.addEventListener("message", ({ data }) => {
      if (data.result?.handle) stop.abort();
    });
    // Before the package sees the answer.
    const { onmessage } = window.worker;
    window.worker.onmessage = null;
    window.worker.addEventListener("message", onmessage);
    const kind = await window.engine.embedded({ signal: stop.signal }).then(() => null, (error) => error.kind);
    const loaded = await window.engine.chat.completions.create({ messages: [{ role: "user", content: "x" }] })
      .catch(({ message }) => message);
    return { kind, sent: window.sent, loaded };
  });
  assert.equal(kind, "cancelled");
  assert.ok(sent.includes("closeModel"), sent.join());
  assert.match(loaded, /no model is loaded/);
});

test("nothing is computed for a signal that is aborted already", async (t) => {
  const page = await tab(t);
  await watchWorker(page);
  await open(page, "cpu");
  const { early, kinds, sent, half } = await page.evaluate(async () => {
    const { engine } = window;
    const model = await engine.embedded();
    window.sent.length = 0;
    const signal = AbortSignal.abort();
    const early = await model.generate("Once", { signal }).result;
    const messages = [{ role: "user", content: "Tell me a story." }];
    const kinds = [];
    for (const call of [() => engine.chat.completions.create({ messages }, { signal }),
      () => engine.chat.completions.create({ messages, stream: true }, { signal }), () => engine.embedded({ signal })]) {
      kinds.push(await call().then(() => null, (error) => error.kind));
    }
    const sent = [...window.sent];
    // The most probable answer is long; another one may end before it is stopped.
    messages[0].content = "Tell me a story about a brave mouse and a red ball.";
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 100);
    const half = await engine.chat.completions
      .create({ messages, max_tokens: 400, temperature: 0 }, { signal: stop.signal }).then(() => null, (error) => error.kind);
    return { early, kinds, sent, half };
  });
  assert.deepEqual([early.finish, early.tokens, early.text], ["cancelled", 0, ""]);
  assert.deepEqual(kinds, ["cancelled", "cancelled", "cancelled"]);
  assert.deepEqual(sent, []);
  assert.equal(half, "cancelled");
});

test("OpenAI's shape without a secure page, and with the tokens of the whole prompt", async (t) => {
  const page = await tab(t);
  await open(page, "cpu");
  const { one, two, chat, prompt } = await page.evaluate(async () => {
    // As on a page without https.
    Object.defineProperty(crypto, "randomUUID", { value: undefined });
    const model = await window.engine.embedded();
    const messages = [{ role: "user", content: "What is the capital of France?" }];
    const request = { messages, max_tokens: 3, temperature: 0 };
    const prompt = await model.tokenize(messages[0].content);
    const create = () => window.engine.chat.completions.create(request);
    const [one, two] = [await create(), await create()];
    return { one, two, prompt: prompt.length, chat: await model.chat(messages, { maxTokens: 3 }).result };
  });
  assert.match(one.id, /^chatcmpl-[0-9a-f]{32}$/);
  assert.notEqual(one.id, two.id);
  assert.ok(one.usage.prompt_tokens > prompt, JSON.stringify(one.usage));
  assert.equal(one.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(two.usage.prompt_tokens, one.usage.prompt_tokens);
  assert.equal(two.usage.total_tokens, one.usage.total_tokens);
  // The last token of a prompt is always computed.
  assert.equal(two.usage.prompt_tokens_details.cached_tokens, one.usage.prompt_tokens - 1);
  assert.deepEqual([chat.promptTokens, chat.cachedTokens],
    [one.usage.prompt_tokens, one.usage.prompt_tokens - 1]);
});

test("without WebGPU the CPU answers with the same text, and says why", async (t) => {
  // Without the switch that accepts SwiftShader this browser has no adapter for WebGPU.
  const without = await launch({ webgpu: false });
  t.after(() => without.close());
  const page = await without.page(`${site.origin}/blank.html`);
  const gpu = await page.evaluate(async () => {
    const url = URL.createObjectURL(new Blob(
      ["postMessage(!!(navigator.gpu && await navigator.gpu.requestAdapter()))"],
      { type: "text/javascript" }));
    return new Promise((resolve) => {
      new Worker(url, { type: "module" }).onmessage = ({ data }) => resolve(data);
    });
  });
  assert.equal(gpu, false, "the worker still has WebGPU");
  const info = await open(page, "auto");
  assert.equal(info.provider, "cpu");
  assert.match(info.fallback, /./, "the reason is given");
  console.log(`web: fallback: ${info.fallback}`);
  await page.evaluate(async () => { window.model = await window.engine.embedded({ compute: "f32" }); });
  compare(await texts(page, (await golden(TINY)).slice(0, 2), GREEDY), "fallback");
  const refused = await page.evaluate(async () =>
    window.warploom.open({ device: "webgpu" }).catch(({ name, kind }) => ({ name, kind })));
  assert.deepEqual(refused, { name: "WarploomError", kind: "unsupported" });
});

test("SmolLM2 by its address, cut and resumed; from the storage the second time", async (t) => {
  const path = await smolLm2(t);
  if (!path) return;
  const server = await serveFile(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  t.after(() => server.close());
  server.control.cut = [40_000_000];
  const page = await tab(t);
  const [row] = (await golden("SmolLM2-135M-Instruct.Q4_1.gguf")).slice(1, 2);
  const rows = [{ ...row, greedy: row.greedy.slice(0, 8), gaps: row.gaps.slice(0, 8) }];
  for (const load of ["first", "second"]) {
    await open(page, "cpu");
    const begin = Date.now();
    const before = server.requests.length;
    const info = await page.evaluate(async (url) => {
      window.model = await window.engine.load(url, { compute: "f32" });
      return window.model.info;
    }, server.url);
    const loaded = Date.now();
    const requests = server.requests.slice(before);
    if (load === "first") {
      assert.equal(requests.length, 2, "a cut and its resumption");
      assert.match(requests[1].range, /^bytes=[1-9]\d{6,}-$/);
    } else {
      assert.deepEqual(requests, [], "the second load comes from the storage");
    }
    const answers = await texts(page, rows, GREEDY);
    assert.equal(compare(answers, "cpu"), 8);
    const { tokens, seconds, promptSeconds } = answers[0].result;
    console.log(`web: SmolLM2, ${load} load: ready after ${((loaded - begin) / 1000).toFixed(1)} s, `
      + `${tokens} tokens in ${seconds.toFixed(2)} s (prompt ${promptSeconds.toFixed(2)} s), `
      + `${info.weights} bytes of weights`);
    await page.evaluate(() => window.engine.close());
  }
});

test("an engine that is closed fails with kind closed, and its tab goes on", async (t) => {
  const page = await tab(t);
  await open(page, "cpu");
  const kinds = await page.evaluate(async () => {
    const { engine, warploom } = window;
    const model = await engine.embedded();
    const running = model.generate("Once", { maxTokens: 400 });
    const kind = (promise) => promise.then(() => null, (error) => error.kind);
    const [first] = await Promise.all([kind(running.result), engine.close()]);
    const kinds = [first, await kind(engine.models()), await kind(engine.embedded()),
      await kind(engine.chat.completions.create({ messages: [{ role: "user", content: "x" }] }))];
    {
      const again = await warploom.open({ device: "cpu" });
      kinds.push(typeof again[Symbol.asyncDispose]);
      await again[Symbol.asyncDispose]();
    }
    return kinds;
  });
  assert.deepEqual(kinds, ["closed", "closed", "closed", "closed", "function"]);
});
