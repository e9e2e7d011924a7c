// Measures warploom beside wllama (llama.cpp in a browser) in the same Chromium, on the CPU with one
// thread each, in turn: tokens/s of a prompt and of an answer, and memory.
//
//   WARPLOOM_TEST_MODELS=FOLDER node web/tests/bench-wllama.mjs [ROUNDS]
//
// The folder has SmolLM2-135M-Instruct.Q4_1.gguf. Installs npm's newest @wllama/wllama in a temporary
// folder. Needs what web/tests/run.mjs needs.
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { launch, serveFolders, web } from "./lib.mjs";

const MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf";
const folder = process.env.WARPLOOM_TEST_MODELS;
const rounds = Number(process.argv[2] ?? 3);
if (!folder || !(rounds >= 1)) {
  console.error("WARPLOOM_TEST_MODELS=FOLDER node web/tests/bench-wllama.mjs [ROUNDS]");
  process.exit(2);
}
const TOKENS = 64;
const SENTENCE = "The river ran past the old mill, where a miller and his three daughters lived. ";
/** Different beginnings, so that nothing of an earlier prompt is in a cache. */
const PROMPTS = Array.from({ length: rounds + 1 }, (_, i) => `${i + 1}. ${SENTENCE.repeat(14)}`);

/** Peak memory in MB of the largest process below this one: the renderer with the worker. */
async function peak() {
  const parents = new Map();
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => null);
    if (stat) parents.set(Number(pid), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
  }
  const ours = (pid) => pid === process.pid || (parents.has(pid) && ours(parents.get(pid)));
  let most = 0;
  for (const pid of [...parents.keys()].filter(ours)) {
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    if (command.includes("--type=renderer")) most = Math.max(most, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]));
  }
  return most / 1000;
}

/** Seconds of one prompt with one token, and of the same with more, in the page. */
async function measure(name, open) {
  const browser = await launch({ webgpu: false });
  const page = await browser.page(`${site.origin}/blank.html`, null);
  await page.evaluate(`(${open})(${JSON.stringify({ model: `/models/${MODEL}` })})`);
  const rows = [];
  for (const prompt of PROMPTS) {
    rows.push(await page.evaluate(async ({ prompt, tokens }) => {
      const timed = async (count, text) => {
        const begin = performance.now();
        const usage = await window.complete(text, count);
        return { seconds: (performance.now() - begin) / 1000, ...usage };
      };
      const one = await timed(1, prompt);
      // Another prompt, short, so that its part of the time is small.
      const short = await timed(1, "Once upon a time");
      const many = await timed(tokens + 1, "Once upon a tide");
      return { prompt: one.prompt / one.seconds, answer: (many.answer - 1) / (many.seconds - short.seconds),
        sizes: [one.prompt, many.answer] };
    }, { prompt, tokens: TOKENS }));
  }
  const memory = await peak();
  await browser.close();
  // The first warms up.
  const best = (of) => Math.max(...rows.slice(1).map(of));
  const result = { prompt: best((row) => row.prompt), answer: best((row) => row.answer), memory };
  console.log(`web: ${name}: prompts ${result.prompt.toFixed(1)}, answers ${result.answer.toFixed(1)} tokens/s, `
    + `peak of the page's process ${memory.toFixed(0)} MB; sizes ${rows.at(-1).sizes.join(" and ")}; `
    + `answers of each round ${rows.slice(1).map(({ answer }) => answer.toFixed(1)).join(", ")}`);
  return result;
}

const packages = await mkdtemp(join(tmpdir(), "warploom-wllama-"));
execFileSync("npm", ["install", "--silent", "--no-audit", "--no-fund", "@wllama/wllama"],
  { cwd: packages, stdio: "inherit" });
const installed = join(packages, "node_modules", "@wllama", "wllama");
const { version } = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
const site = await serveFolders({
  "/models/": folder, "/package/": join(web, "package", "dist"), "/wllama/": installed,
});
console.log(`web: ${cpus()[0].model}, ${cpus().length} cores, load ${loadavg()[0].toFixed(2)}, wllama ${version}`);

const ours = (compute) => [`warploom ${compute}`, `
  async ({ model }) => {
    const { open } = await import("/package/index.js");
    const engine = await open({ device: "cpu" });
    const loaded = await engine.load(await (await fetch(model)).blob(), { context: 1024, compute: "${compute}" });
    window.complete = async (prompt, maxTokens) => {
      const { promptTokens, tokens } = await loaded.generate(prompt, { maxTokens, temperature: 0 }).result;
      return { prompt: promptTokens, answer: tokens };
    };
  }`];
const theirs = [`wllama ${version}`, `
  async ({ model }) => {
    const { Wllama } = await import("/wllama/esm/index.js");
    const wllama = new Wllama({ default: "/wllama/esm/wasm/wllama.wasm" }, { suppressNativeLog: true });
    await wllama.loadModel([await (await fetch(model)).blob()], { n_ctx: 1024, n_threads: 1, n_gpu_layers: 0 });
    window.complete = async (prompt, max_tokens) => {
      const { usage } = await wllama.createCompletion({ prompt, max_tokens, temperature: 0, cache_prompt: false });
      return { prompt: usage.prompt_tokens, answer: usage.completion_tokens };
    };
  }`];
for (const [name, open] of [ours("int8"), theirs, ours("f32")]) {
  await measure(name, open);
}
await site.close();
await rm(packages, { recursive: true, force: true });
