// The engine in a page: text, cancel, OpenAI's shape, shaders, conformance, fallback.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { golden, launch, serveFile, serveFolders, smolLm2, web } from "./lib.mjs";

const TINY = "warploom-tiny-llama-Q4_K_M.gguf";
/** As tests/it/with_models/greedy.rs: a choice between two logits that are nearer is open. */
const TOLERANCE = 2e-3;
/** Exact products, no choice by chance. */
const GREEDY = { temperature: 0, compute: "f32" };

let site, browser;

before(async () => {
  site = await serveFolders({ "/package/": join(web, "package", "dist") });
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
const open = (page, device) => page.evaluate(async (device) => {
  window.engine = await window.warploom.open({ device });
  return window.engine.info;
}, device);

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
    const info = await open(page, device);
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
  });
}

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

test("every shader text compiles in the browser", async (t) => {
  const page = await tab(t);
  await open(page, "webgpu");
  const { count, wrong, adapter } = await page.evaluate(async () => {
    const texts = await window.engine.shaders();
    const adapter = await navigator.gpu.requestAdapter();
    const requiredFeatures = ["shader-f16", "subgroups", "timestamp-query"]
      .filter((feature) => adapter.features.has(feature));
    const device = await adapter.requestDevice({ requiredFeatures });
    device.addEventListener("uncapturederror", (event) => event.preventDefault());
    const wrong = [];
    // Some at a time: all at once take the browser's memory.
    for (let at = 0; at < texts.length; at += 32) {
      await Promise.all(texts.slice(at, at + 32).map(async ({ name, wgsl }) => {
        const info = await device.createShaderModule({ code: wgsl }).getCompilationInfo();
        const errors = info.messages.filter(({ type }) => type === "error");
        if (errors.length > 0) {
          const { lineNum, message } = errors[0];
          wrong.push(`${name}:${lineNum}: ${message}: ${wgsl.split("\n")[lineNum - 1]}`);
        }
      }));
    }
    return { count: texts.length, wrong, adapter: [...adapter.features] };
  });
  // An f16 text needs an adapter that has it; SwiftShader has not.
  const f16 = wrong.filter((line) => /'f16' type used without|extension 'f16' is not allowed/.test(line));
  const rest = wrong.filter((line) => !f16.includes(line));
  console.log(`web: ${count} shader texts, ${count - wrong.length} compile, `
    + `${f16.length} need f16 (adapter: ${adapter.includes("shader-f16") ? "has it" : "has none"})`);
  assert.deepEqual(rest, []);
  assert.ok(!adapter.includes("shader-f16") || f16.length === 0);
  assert.ok(count > 50, `only ${count} texts`);
});

for (const device of ["cpu", "webgpu"]) {
  test(`the conformance table on ${device} in the page`, async (t) => {
    if (device === "webgpu" && process.env.WARPLOOM_TEST_ALL !== "1") {
      // It runs a workgroup with barriers for each row.
      const why = "one case of 65,536 rows takes SwiftShader over 80 s; WARPLOOM_TEST_ALL=1 runs all";
      console.log(`skipped: ${t.name}: ${why}`);
      t.skip(why);
      return;
    }
    const page = await tab(t);
    await open(page, device);
    const begin = Date.now();
    const report = await page.evaluate(async (device) => {
      let progress = 0;
      const report = await window.engine.conformance({ device, onProgress: () => { progress += 1; } });
      return { ...report, progress };
    }, device);
    console.log(`web: conformance on ${device}: ${report.passed} passed, ${report.failed.length} failed, `
      + `${report.unsupported.length} unsupported, ${((Date.now() - begin) / 1000).toFixed(1)} s`);
    assert.deepEqual(report.failed, []);
    assert.deepEqual(report.problems, []);
    assert.ok(report.passed > 100, `only ${report.passed} cases`);
    assert.ok(report.progress > 0);
  });
}

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
    const kinds = [first, await kind(engine.models()), await kind(engine.embedded())];
    {
      const again = await warploom.open({ device: "cpu" });
      kinds.push(typeof again[Symbol.asyncDispose]);
      await again[Symbol.asyncDispose]();
    }
    return kinds;
  });
  assert.deepEqual(kinds, ["closed", "closed", "closed", "function"]);
});
