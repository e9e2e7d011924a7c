// What the larger module has: words, dispatches, shaders, conformance, tensors, packs, explain.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, repository, serveFolders, web } from "./lib.mjs";

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

/** Opens `device` in the page. */
const open = (page, device, options = { full: true }) => page.evaluate(async (options) => {
  window.engine = await window.warploom.open(options);
}, { device, ...options });

test("the browser splits words and finds tokens as recorded", async (t) => {
  const page = await tab(t);
  const path = join(repository, "tests", "golden", "tokenizer", "cases.json");
  const { strings, words } = JSON.parse(await readFile(path, "utf8"));
  const got = await page.evaluate(async ({ strings, names }) => {
    const { default: init, words } = await import("/package/full/warploom_web.js");
    await init();
    return Object.fromEntries(
      names.map((pre) => [pre, strings.map((text) => words(pre, text))]));
  }, { strings, names: Object.keys(words) });
  // GPT-2's alphabet, written here and not taken from the engine.
  const letters = [];
  for (let byte = 0, other = 256; byte < 256; byte += 1) {
    const own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    letters.push(String.fromCodePoint(own ? byte : other++));
  }
  const spell = (word) => [...new TextEncoder().encode(word)].map((byte) => letters[byte]).join("");
  let compared = 0;
  for (const [pre, rows] of Object.entries(words)) {
    rows.forEach((want, i) => {
      assert.deepEqual(got[pre][i].map(spell), want, `${pre}: ${JSON.stringify(strings[i])}`);
      compared += want.length;
    });
  }
  assert.ok(compared > 1000, `only ${compared} words`);
  const tiny = JSON.parse(await readFile(join(repository, "models", "golden.json"), "utf8"));
  await open(page, "cpu", {});
  const texts = tiny.tokenizer.map(({ text }) => text);
  const tokens = await page.evaluate(async (texts) => {
    const model = await window.engine.embedded();
    return Promise.all(texts.map(async (text) => [...await model.tokenize(text)]));
  }, texts);
  assert.deepEqual(tokens, tiny.tokenizer.map(({ tokens }) => tokens));
});

test("a page's own GPU: dispatches, failures and a lost device", async (t) => {
  const page = await tab(t);
  const report = await page.evaluate(async () => {
    const { default: init, smoke } = await import("/package/full/warploom_web.js");
    await init();
    return JSON.parse(await smoke());
  });
  for (const { name, ok, detail } of report.checks) {
    console.log(`web: ${ok ? "ok" : "FAILED"} ${name}: ${JSON.stringify(detail)}`);
  }
  // Computed here and not taken from the page: sum of 3 i + 1 over 1000, and the same with the
  // first ten replaced by 3 (i + 0.5) + 1.
  const sum = 3 * (999 * 1000) / 2 + 1000;
  for (const name of ["dispatch", "dispatch at the floor", "dispatch after the failures"]) {
    const check = report.checks.find((check) => check.name === name);
    assert.deepEqual(check?.detail, { elements: 1000, sums: [sum, sum + 15] }, name);
  }
  assert.equal(report.checks.length, 6);
  assert.ok(report.ok);
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
  // A text for a feature needs an adapter that has it. SwiftShader has subgroups, and no f16.
  let rest = wrong;
  const needing = [];
  for (const [feature, refused] of [
    ["shader-f16", /'f16' type used without|extension 'f16' is not allowed/],
    ["subgroups", /extension 'subgroups' is not allowed/],
  ]) {
    const these = wrong.filter((line) => refused.test(line));
    rest = rest.filter((line) => !these.includes(line));
    const has = adapter.includes(feature);
    needing.push(`${these.length} need ${feature} (adapter: ${has ? "has it" : "has none"})`);
    assert.ok(!has || these.length === 0, feature);
  }
  console.log(`web: ${count} shader texts, ${count - wrong.length} compile, ${needing.join(", ")}`);
  assert.deepEqual(rest, []);
  assert.ok(count > 50, `only ${count} texts`);
});

for (const device of ["cpu", "webgpu"]) {
  test(`the conformance table on ${device} in the page`, async (t) => {
    // SwiftShader runs a workgroup with barriers for each row: 65,536 rows take it over 80 s.
    const sample = device === "webgpu" && process.env.WARPLOOM_TEST_ALL !== "1";
    const elements = sample ? 2048 : undefined;
    const page = await tab(t);
    await open(page, device);
    const begin = Date.now();
    const report = await page.evaluate(async ({ device, elements }) => {
      let progress = 0;
      const onProgress = () => { progress += 1; };
      const report = await window.engine.conformance({ device, elements, onProgress });
      return { ...report, progress };
    }, { device, elements });
    console.log(`web: conformance on ${device}: ${report.passed} passed, ${report.failed.length} failed, `
      + `${report.unsupported.length} unsupported, ${report.left_out} left out${sample ? ` (over ${elements} elements)` : ""}, `
      + `${((Date.now() - begin) / 1000).toFixed(1)} s`);
    assert.deepEqual(report.failed, []);
    assert.deepEqual(report.problems, []);
    assert.equal(report.left_out > 0, sample);
    assert.ok(report.passed > 500, `only ${report.passed} cases`);
    assert.ok(report.progress > 0);
  });
}

// Values that JavaScript computes by itself.
for (const device of ["cpu", "webgpu"]) {
  test(`tensors from JavaScript on ${device}`, async (t) => {
    const page = await tab(t);
    await open(page, device);
    const got = await page.evaluate(async () => {
      const { engine } = window;
      const list = async (tensor) => [...await tensor.data()];
      const x = engine.tensor([[1, 2, 3], [4, 5, 6]]);
      const row = engine.tensor(Float32Array.of(10, 20, 30));
      const failed = x.add(engine.zeros([4])).relu();
      const error = await failed.data().then(() => null, ({ kind, message }) => ({ kind, message }));
      const early = await failed.info().then(() => null, ({ kind }) => kind);
      const counts = engine.tensor(Int32Array.of(-7, 2, 9));
      const kept = x.mul(2);
      x.square().dispose();
      const gone = x.exp();
      gone.dispose();
      return {
        sum: await list(x.mul(2).add(row).relu().sum(-1)),
        all: await x.sum().item(),
        product: await list(x.matmul(x.t())),
        soft: await list(x.softmax(-1)),
        mean: await list(x.sub(x.mean(-1, true)).square().mean(0)),
        shape: await x.reshape(3, -1).unsqueeze(0).info(),
        select: await list(x.gt(3).select(x, -1)),
        bools: await list(x.le(2)),
        integers: await list(counts.rem(4).add(counts)),
        types: await Promise.all([counts, x.gt(1), engine.ones([2], "u32")]
          .map(async (one) => (await one.info()).dtype)),
        infinite: await list(engine.full([2], 1).maximum(-Infinity).minimum(Infinity)),
        rand: await list(engine.rand([3], 7)),
        again: await list(engine.rand([3], 7)),
        half: await list(engine.tensor([0.1, 2.5], [2], "f16").mul(2)),
        parts: await list(x.narrow(1, 1, 3).concat([x.index(1, 0).unsqueeze(1)], 1).permute(1, 0)),
        lines: [await list(engine.arange(0, 1, 0.25)), await list(engine.linspace(0, 2, 3)),
          await list(engine.eye(2))],
        picked: await list(engine.tensor([[1, 2], [3, 4]]).gather(0, engine.tensor(Uint32Array.of(1, 1)))),
        kept: await list(kept),
        gone: (() => { try { return gone.add(1); } catch ({ kind }) { return kind; } })(),
        error, early,
      };
    });
    const near = (found, want, what) => {
      assert.equal(found.length, want.length, what);
      found.forEach((value, i) => assert.ok(Math.abs(value - want[i]) < 1e-4, `${what}: ${found}`));
    };
    near(got.sum, [72, 90], "sum");
    assert.equal(got.all, 21);
    near(got.product, [14, 32, 32, 77], "product");
    const soft = [1, 2, 3].map(Math.exp);
    near(got.soft.slice(3), soft.map((e) => e / (soft[0] + soft[1] + soft[2])), "softmax");
    near(got.mean, [1, 0, 1], "mean");
    assert.deepEqual(got.shape, { shape: [1, 3, 2], dtype: "f32" });
    assert.deepEqual(got.select, [-1, -1, -1, 4, 5, 6]);
    assert.deepEqual(got.bools, [1, 1, 0, 0, 0, 0]);
    assert.deepEqual(got.integers, [-10, 4, 10]);
    assert.deepEqual(got.rand, got.again);
    assert.ok(got.rand.every((value) => value >= 0 && value < 1) && new Set(got.rand).size === 3);
    near(got.half, [0.19995, 5], "f16");
    assert.deepEqual(got.parts, [2, 5, 3, 6, 1, 4]);
    assert.deepEqual(got.lines, [[0, 0.25, 0.5, 0.75], [0, 1, 2], [1, 0, 0, 1]]);
    assert.deepEqual(got.picked, [3, 4, 3, 4]);
    assert.deepEqual(got.kept, [2, 4, 6, 8, 10, 12]);
    assert.deepEqual(got.infinite, [1, 1]);
    assert.deepEqual(got.types, ["i32", "bool", "u32"]);
    assert.equal(got.gone, "invalid");
    assert.equal(got.error.kind, "invalid");
    assert.equal(got.early, "invalid");
    assert.match(got.error.message, /^add: .*\[2, 3\].*\[4\]/);
  });

  test(`a kernel pack from JavaScript on ${device}`, async (t) => {
    const page = await tab(t);
    await open(page, device);
    const folder = join(repository, "examples", "packs", "histogram");
    // Texts have no folder whose name could be the pack's.
    const manifest = `name = "histogram"\n${await readFile(join(folder, "pack.toml"), "utf8")}`;
    const wgsl = await readFile(join(folder, "histogram.wgsl"), "utf8");
    const got = await page.evaluate(async ({ manifest, wgsl }) => {
      const { engine } = window;
      const files = { "histogram.wgsl": wgsl };
      const pack = await engine.pack({ manifest, files });
      const values = Uint32Array.from({ length: 1000 }, (_, i) => (i * i) % 300);
      const [bins] = pack.run([engine.tensor(values)]);
      const counts = [...await bins.data()];
      const twice = [...await bins.add(bins).narrow(0, 0, 2).data()];
      const broken = await engine.pack({ manifest, files: { "histogram.wgsl": wgsl.replace("255u", "1.5") } })
        .then(() => null, ({ kind, message }) => ({ kind, message }));
      const wrong = await pack.run([engine.zeros([3])])[0].data()
        .then(() => null, ({ kind, message }) => ({ kind, message }));
      pack.dispose();
      return { info: pack.info, counts, twice, broken, wrong, values: [...values] };
    }, { manifest, wgsl });
    const want = Array.from({ length: 256 }, () => 0);
    for (const value of got.values) want[Math.min(value, 255)] += 1;
    assert.deepEqual(got.counts, want);
    assert.deepEqual(got.twice, [2 * want[0], 2 * want[1]]);
    assert.equal(got.info.name, "histogram");
    assert.deepEqual(got.info.inputs, [{ name: "data", dtype: "u32" }]);
    assert.ok(["compile", "bad-file"].includes(got.broken?.kind), JSON.stringify(got.broken));
    assert.match(got.broken.message, /histogram\.wgsl:\d+:\d+/);
    assert.equal(got.wrong?.kind, "invalid", JSON.stringify(got.wrong));
    assert.match(got.wrong.message, /f32|u32/);
  });
}

test("tensors need the larger module, and the error says how to get it", async (t) => {
  const page = await tab(t);
  await open(page, "cpu", {});
  const errors = await page.evaluate(async () => {
    const { engine } = window;
    const of = (promise) => promise.then(() => null, ({ kind, message }) => ({ kind, message }));
    return [await of(engine.ones([2]).data()), await of(engine.pack({ manifest: "", files: {} })),
      await of(engine.conformance()), await of(engine.shaders())];
  });
  for (const error of errors) {
    assert.equal(error?.kind, "unsupported", JSON.stringify(errors));
    assert.match(error.message, /full: true/);
  }
});

test("a model explains how it computes a token, and times its kernels", async (t) => {
  const page = await tab(t);
  await open(page, "cpu", {});
  const { plain, timed, before, after } = await page.evaluate(async () => {
    const model = await window.engine.embedded();
    const messages = [{ role: "user", content: "Who are you?" }];
    const answer = () => model.chat(messages, { temperature: 0, maxTokens: 8 }).result;
    const before = await answer();
    const plain = await model.explain();
    const timed = await model.explain({ runs: 3 });
    return { plain, timed, before, after: await answer() };
  });
  assert.equal(after.text, before.text);
  const { steps } = plain.report;
  assert.ok(steps.length > 20, `${steps.length} steps`);
  assert.ok(steps.every(({ measured, kernel }) => measured === undefined && kernel.length > 0));
  assert.match(plain.text, /matvec|gemv/i);
  assert.equal(timed.report.steps.length, steps.length);
  // A browser's clock has steps of 0.1 ms, so that short kernels may take none.
  const times = timed.report.steps.map(({ measured }) => measured.max);
  assert.ok(times.every((time) => time >= 0) && times.some((time) => time > 0), times.join());
  assert.ok(timed.report.analysis.run.median > 0);
});
