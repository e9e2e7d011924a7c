// The package in Firefox, which has no WebGPU in Debian: the CPU answers with the same text.
//
// FIREFOX names another binary than /usr/bin/firefox-esr.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { golden, serveFolders, web } from "./lib.mjs";

const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const TINY = "warploom-tiny-llama-Q4_K_M.gguf";

/** A port that nothing uses. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Firefox's own remote control, Marionette: messages of JSON after their length. */
class Marionette {
  #socket;
  #pending = new Map();
  #next = 1;
  #buffer = Buffer.alloc(0);

  static async connect(port) {
    for (let tries = 0; ; tries += 1) {
      try {
        const socket = connect(port, "127.0.0.1");
        await new Promise((resolve, reject) => {
          socket.once("connect", resolve);
          socket.once("error", reject);
        });
        return new Marionette(socket);
      } catch (error) {
        if (tries > 200) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (data) => this.#receive(data));
    socket.on("close", () => {
      for (const { reject } of this.#pending.values()) reject(new Error("Firefox has ended"));
    });
  }

  #receive(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    for (;;) {
      const colon = this.#buffer.indexOf(":");
      const length = Number(this.#buffer.subarray(0, colon).toString());
      if (colon < 0 || this.#buffer.length < colon + 1 + length) return;
      const message = JSON.parse(this.#buffer.subarray(colon + 1, colon + 1 + length).toString());
      this.#buffer = this.#buffer.subarray(colon + 1 + length);
      // The greeting is no answer.
      if (!Array.isArray(message)) continue;
      const [, id, error, result] = message;
      const { resolve, reject } = this.#pending.get(id);
      this.#pending.delete(id);
      if (error) reject(new Error(`${error.error}: ${error.message}`));
      else resolve(result);
    }
  }

  call(name, parameters = {}) {
    const id = this.#next++;
    const text = JSON.stringify([0, id, `WebDriver:${name}`, parameters]);
    this.#socket.write(`${Buffer.byteLength(text)}:${text}`);
    return new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject }));
  }

  /** Runs an async function in the page. */
  async evaluate(run, argument) {
    const script = `const [argument, done] = arguments;
      (${run})(argument).then((value) => done({ value }), (error) => done({ error: String(error) }));`;
    const { value: { value, error } } =
      await this.call("ExecuteAsyncScript", { script, args: [argument], scriptTimeout: 300_000 });
    if (error) throw new Error(error);
    return value;
  }

  end() {
    this.#socket.destroy();
  }
}

test("Firefox without WebGPU answers with the recorded text on the CPU", async (t) => {
  assert.ok(await stat(FIREFOX).catch(() => null), `${FIREFOX} is missing`);
  const profile = await mkdtemp(join(tmpdir(), "warploom-firefox-"));
  const port = await freePort();
  await writeFile(join(profile, "user.js"), [
    ["marionette.port", port],
    ["app.update.enabled", false],
    ["datareporting.policy.dataSubmissionEnabled", false],
    ["network.captive-portal-service.enabled", false],
    ["network.connectivity-service.enabled", false],
  ].map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`).join("\n"));
  const site = await serveFolders({ "/package/": join(web, "package", "dist") });
  const firefox = spawn(FIREFOX,
    ["--headless", "--marionette", "--no-remote", "--profile", profile], { stdio: "ignore" });
  const ended = new Promise((resolve) => firefox.once("exit", resolve));
  let page;
  t.after(async () => {
    page?.end();
    firefox.kill();
    await ended;
    await site.close();
    await rm(profile, { recursive: true, force: true });
  });
  page = await Marionette.connect(port);
  await page.call("NewSession");
  await page.call("Navigate", { url: `${site.origin}/blank.html` });
  const [row] = await golden(TINY);
  const begin = Date.now();
  const found = await page.evaluate(async ({ prompt, ids }) => {
    const { open } = await import("/package/index.js");
    const engine = await open();
    const model = await engine.embedded({ compute: "f32" });
    const answer = model.generate(prompt, { temperature: 0, maxTokens: ids.length });
    let text = "";
    for await (const piece of answer) text += piece;
    const { tokens, seconds } = await answer.result;
    const { provider, fallback, device } = engine.info;
    const recorded = await model.detokenize(Uint32Array.from(ids));
    await engine.close();
    return { text, tokens, seconds, provider, fallback, name: device.name, recorded,
      agent: navigator.userAgent, gpu: "gpu" in navigator };
  }, { prompt: row.prompt, ids: row.greedy.slice(0, 24) });
  assert.match(found.agent, /Firefox/);
  assert.equal(found.gpu, false);
  assert.equal(found.provider, "cpu");
  assert.match(found.fallback, /no WebGPU/);
  assert.equal(found.text, found.recorded);
  assert.equal(found.tokens, 24);
  console.log(`web: Firefox: ${found.tokens} tokens as recorded, in ${found.seconds.toFixed(2)} s; `
    + `${((Date.now() - begin) / 1000).toFixed(1)} s with opening and loading`);
});
