// The package as others get it: `npm pack`, then used from a plain page and from another origin.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cp, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, serveFolders, web } from "./lib.mjs";

let folder, packed, browser;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "warploom-pack-"));
  const output = execFileSync("npm", ["pack", "--json", "--pack-destination", folder],
    { cwd: join(web, "package"), encoding: "utf8" });
  const parsed = JSON.parse(output);
  // One object in an array, or by name in newer versions of npm.
  [packed] = Array.isArray(parsed) ? parsed : Object.values(parsed);
  execFileSync("tar", ["xzf", join(folder, packed.filename), "-C", folder]);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

const PLAIN = (address) => `<!doctype html><html lang=en><meta charset=utf-8><title>plain</title>
<link rel=icon href="data:,"><pre id=out></pre><script type=module>
import { open } from "${address}";
const engine = await open({ device: "cpu" });
const model = await engine.embedded();
const answer = model.generate("Once upon a time", { maxTokens: 12, temperature: 0 });
for await (const text of answer) document.getElementById("out").append(text);
document.title = JSON.stringify(await answer.result);
await engine.close();
</script>`;

async function run(origin) {
  const page = await browser.context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(`${origin}/plain.html`);
  await page.waitForFunction(() => document.title !== "plain", null, { timeout: 60_000 })
    .catch((error) => assert.fail(`${errors.join("\n") || error}`));
  const result = JSON.parse(await page.title());
  assert.equal(await page.textContent("#out"), result.text);
  assert.equal(result.tokens, 12);
  await page.close();
  return result.text;
}

test("the tarball has what it needs and nothing else", async () => {
  const names = packed.files.map(({ path }) => path);
  for (const name of ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "dist/index.js", "dist/index.d.ts",
    "dist/worker.js", "dist/worker-full.js", "dist/wasm/warploom_web_bg.wasm",
    "dist/full/warploom_web_bg.wasm", "dist/model/warploom-tiny-llama-Q4_K_M.gguf",
    "dist/vendor/LICENSE", "examples/page/index.html", "examples/kernel/index.html",
    "examples/vite/main.ts"]) {
    assert.ok(names.includes(name), name);
  }
  assert.deepEqual(names.filter((name) => /node_modules|^src|^tsconfig|\.map$/.test(name)), []);
  console.log(`web: package of ${packed.size} bytes, with the embedded model`);
});

test("a page without a bundler uses the tarball", async (t) => {
  await writeFile(join(folder, "plain.html"), PLAIN("./package/dist/index.js"));
  const site = await serveFolders({ "/": folder });
  t.after(() => site.close());
  await run(site.origin);
});

test("a page uses the tarball from another origin, as from a CDN", async (t) => {
  const cdn = await serveFolders({ "/": folder }, { cors: true });
  await writeFile(join(folder, "plain.html"), PLAIN(`${cdn.origin}/package/dist/index.js`));
  const site = await serveFolders({ "/": folder });
  t.after(async () => {
    await site.close();
    await cdn.close();
  });
  await run(site.origin);
  assert.ok(cdn.requests.some((path) => path.endsWith("/worker.js")));
  assert.ok(cdn.requests.some((path) => path.endsWith(".wasm")));
});

/** Opens a page and collects its errors. */
async function visit(t, url) {
  const page = await browser.context.newPage();
  t.after(() => page.close());
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(url);
  const until = (check, ...args) => page.waitForFunction(check, args, { timeout: 60_000 })
    .catch(async (error) => assert.fail(`${errors.join("\n") || error}: ${await page.textContent("#state")}`));
  return { page, until };
}

test("the example without a bundler writes a text", async (t) => {
  const site = await serveFolders({ "/": join(folder, "package") });
  t.after(() => site.close());
  const { page, until } = await visit(t, `${site.origin}/examples/page/index.html`);
  await until(() => !document.getElementById("write").disabled);
  await page.click("#write");
  await until(() => /\d+ tokens in/.test(document.getElementById("state").textContent));
  assert.match(await page.textContent("#text"), /^Once upon a time.{20}/s);
});

test("the example of tensors and a kernel draws frames", async (t) => {
  const site = await serveFolders({ "/": join(folder, "package") });
  t.after(() => site.close());
  const { page, until } = await visit(t, `${site.origin}/examples/kernel/index.html`);
  await until(() => /^frame [3-9]/.test(document.getElementById("state").textContent));
  const colours = await page.evaluate(async () => {
    const picture = await createImageBitmap(document.getElementById("canvas"));
    const copy = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    copy.drawImage(picture, 0, 0);
    const { data } = copy.getImageData(0, 0, picture.width, picture.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert.ok(colours > 50, `${colours} colours`);
});

test("the example with Vite is checked, builds with the tarball, and answers", { timeout: 240_000 }, async (t) => {
  const project = join(folder, "vite");
  await cp(join(folder, "package", "examples", "vite"), project, { recursive: true });
  const inProject = (command, ...args) =>
    execFileSync(command, args, { cwd: project, stdio: "pipe", encoding: "utf8" });
  // The tarball in the place of the registry's package.
  inProject("npm", "install", "--silent", "--no-audit", "--no-fund", join(folder, packed.filename));
  inProject("npm", "run", "build");
  const site = await serveFolders({ "/": join(project, "dist") });
  t.after(() => site.close());
  const { page, until } = await visit(t, `${site.origin}/index.html`);
  await until(() => !document.getElementById("send").disabled);
  await page.click("#send");
  await until(() => /\d+ tokens in/.test(document.getElementById("state").textContent));
  assert.match(await page.textContent("#messages"), /user: What is the capital of France\?assistant: .*Paris/s);
  assert.ok(site.requests.some((path) => /\/assets\/worker-.*\.js$/.test(path)), site.requests.join());
  assert.ok(site.requests.some((path) => path.endsWith(".wasm")));
});

test("the examples of tensors and packs in the README run as they are", async (t) => {
  const readme = await readFile(join(folder, "package", "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code)
    .filter((code) => /open\(\{ full: true \}\)|engine\.pack/.test(code));
  assert.equal(blocks.length, 2);
  const site = await serveFolders({ "/": folder });
  t.after(() => site.close());
  const page = await browser.page(`${site.origin}/blank.html`, "/package/dist/index.js");
  t.after(() => page.close());
  const printed = await page.evaluate(async (code) => {
    const lines = [];
    const run = new Function("open", "console", `return (async () => { ${code}; await engine.close(); })();`);
    await run(window.warploom.open, { log: (values) => lines.push([...values]) });
    return lines;
  }, blocks.join("\n"));
  assert.deepEqual(printed[0], [72, 90]);
  assert.deepEqual(printed[1].slice(0, 5), [0, 1, 0, 3, 0]);
});

/** Compiles a program, with the checks of all declarations; fails with the compiler's output. */
async function compiles(program, lib) {
  const tsc = join(web, "package", "node_modules", "typescript", "bin", "tsc");
  assert.ok(await stat(tsc).catch(() => null), `${tsc} is missing`);
  try {
    execFileSync(process.execPath, [tsc, "--noEmit", "--strict", "--target", "es2022", "--module", "es2022",
      "--moduleResolution", "bundler", "--lib", lib, "--types", "", program], { stdio: "pipe", encoding: "utf8" });
  } catch ({ stdout }) {
    assert.fail(stdout);
  }
}

test("the declarations need no library of types but those of a page", async () => {
  const program = join(folder, "plain.ts");
  await writeFile(program, `
    import { open } from "./package/dist/index.js";
    const engine = await open();
    await engine.close();
    export {};
  `);
  await compiles(program, "es2022,dom");
});

test("the types fit a strict program", async () => {
  const program = join(folder, "program.ts");
  await writeFile(program, `
    import { open, WarploomError, type Result } from "./package/dist/index.js";
    await using engine = await open({ device: "auto" });
    await using model = await engine.load(new File([], "x.gguf"), { sha256: "0" });
    const answer = model.chat([{ role: "user", content: "hi" }], { maxTokens: 3 });
    for await (const piece of answer) { const text: string = piece; void text; }
    const result: Result = await answer.result;
    const chunks = await engine.chat.completions.create({ messages: [], stream: true });
    for await (const chunk of chunks) { void chunk.choices[0]?.delta.content; }
    const whole = await engine.chat.completions.create({ messages: [] });
    const content: string = whole.choices[0].message.content;
    const pack = await engine.pack({ manifest: "", files: { "a.wgsl": "" } });
    const [made] = pack.run([engine.tensor([[1, 2]]).matmul(engine.ones([2, 2]))], { n: 2 });
    const values: ArrayLike<number> | undefined = await made?.softmax(-1).data();
    const { text, report } = await model.explain({ runs: 1 });
    const surface = await engine.surface(document.createElement("canvas"));
    await surface.draw(engine.tidy(() => engine.ones([2, 2], "u32").mul(255)));
    const { allocated, wasm } = await engine.memory();
    await engine.eval(engine.zeros([1]));
    void [surface.readback, allocated + wasm, await engine.embedded({ first: { temperature: 0 } })];
    engine.addEventListener("recovered", (event) => { void event; });
    // @ts-expect-error: the axis is missing
    void made?.argmax();
    void [values, text, report.steps[0]?.measured?.median];
    engine.addEventListener("recovered", ({ recovered, model }) => { void [recovered.tokens, model.info]; });
    engine.addEventListener("other", (event) => { void event.type; });
    const stream: boolean = Date.now() > 0;
    const either = await engine.chat.completions.create({ messages: [], stream });
    void ("choices" in either ? either.usage.prompt_tokens_details.cached_tokens : either);
    const fixed = [{ role: "user", content: "x" }] as const;
    void [model.chat(fixed, { stop: ["a"] as const }), await engine.chat.completions.create({ messages: fixed })];
    void await model.detokenize([1, 2]);
    void [result, content, (error: WarploomError) => error.kind === "disk-full"];
    // @ts-expect-error: no such option
    void model.generate("x", { temprature: 1 });
    export {};
  `);
  await compiles(program, "es2023,dom,dom.asynciterable,esnext.disposable");
});
