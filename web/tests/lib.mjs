// Servers and a browser for the tests.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { extname, join, normalize, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const web = fileURLToPath(new URL("..", import.meta.url));
export const repository = join(web, "..");

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".mjs": "text/javascript",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
};

const BLANK = "<!doctype html><html lang=en><meta charset=utf-8><title>test</title>"
  + "<link rel=icon href='data:,'>";

async function listen(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${server.address().port}`;
}

/**
 * Serves folders: `mounts` maps a prefix such as "/package/" to a folder. "/blank.html" is an empty
 * page. With `cors`, pages of other origins may read the files. `texts` are scripts by their paths.
 */
export async function serveFolders(mounts, { cors = false, texts = {} } = {}) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    requests.push(path);
    if (cors) response.setHeader("access-control-allow-origin", "*");
    if (path === "/blank.html") {
      response.writeHead(200, { "content-type": TYPES[".html"] });
      response.end(BLANK);
      return;
    }
    if (Object.hasOwn(texts, path)) {
      response.writeHead(200, { "content-type": TYPES[".js"] });
      response.end(texts[path]);
      return;
    }
    const prefix = Object.keys(mounts).find((prefix) => path.startsWith(prefix));
    const root = prefix && normalize(mounts[prefix] + sep);
    let file = prefix && normalize(join(root, path.slice(prefix.length)));
    if (file && path.endsWith("/")) file = join(file, "index.html");
    const found = file?.startsWith(root) && (await stat(file).catch(() => null))?.isFile();
    response.writeHead(found ? 200 : 404,
      { "content-type": found ? TYPES[extname(file)] ?? "text/plain" : "text/plain" });
    if (found) createReadStream(file).pipe(response);
    else response.end("not found");
  });
  return { origin: await listen(server), requests, close: () => shut(server) };
}

function shut(server) {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
}

/**
 * Serves one file to every origin. `control` can be changed at any time: `ranges`, `etag`, `cut`
 * (the connection is destroyed after that many bytes of the body, once for each number in the
 * list), `rate` (bytes per millisecond), `status` (answers with that status), `down` (no answer),
 * `length` (whether answers say their length).
 */
export async function serveFile(path, name) {
  const whole = typeof path === "string" ? await readFile(path) : path;
  const control = { ranges: true, etag: '"one"', cut: [], rate: null, status: null, down: false,
    length: true, bytes: whole };
  const requests = [];
  const server = createServer((request, response) => {
    const { bytes } = control;
    requests.push({ method: request.method, range: request.headers.range ?? null });
    if (control.down) {
      request.socket.destroy();
      return;
    }
    response.setHeader("access-control-allow-origin", "*");
    response.setHeader("access-control-expose-headers", "ETag, Content-Range");
    if (control.etag) response.setHeader("etag", control.etag);
    if (control.status) {
      response.writeHead(control.status);
      response.end();
      return;
    }
    const range = control.ranges && /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    const start = range ? Number(range[1]) : 0;
    const end = range && range[2] ? Math.min(bytes.length, Number(range[2]) + 1) : bytes.length;
    if (range && start >= bytes.length) {
      response.writeHead(416, { "content-range": `bytes */${bytes.length}` });
      response.end();
      return;
    }
    if (range) response.setHeader("content-range", `bytes ${start}-${end - 1}/${bytes.length}`);
    response.writeHead(range ? 206 : 200, control.length ? { "content-length": end - start } : {});
    if (request.method === "HEAD") response.end();
    else send(response, bytes.subarray(start, end), control);
  });
  const origin = await listen(server);
  return { url: `${origin}/${name}`, origin, control, requests, close: () => shut(server) };
}

async function send(response, body, control) {
  const cut = control.cut.shift() ?? Infinity;
  const step = control.rate ? control.rate * 20 : 1 << 20;
  for (let at = 0; at < body.length && !response.destroyed; at += step) {
    const end = Math.min(at + step, body.length, cut);
    await new Promise((resolve) => response.write(body.subarray(at, end), resolve));
    if (end === cut) {
      // Time for the bytes to arrive: data that is under way is lost with the connection.
      await new Promise((resolve) => setTimeout(resolve, 200));
      response.destroy();
      return;
    }
    if (control.rate) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  response.end();
}

/** Accepts SwiftShader, which computes on the CPU. */
const WEBGPU = "--enable-unsafe-webgpu";
const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  WEBGPU,
  "--disable-background-networking",
];

/** Shows canvases of SwiftShader's devices: without a display, the browser's GPU process ends else. */
const CANVAS = [
  "--enable-features=Vulkan,SkiaGraphite",
  "--use-vulkan=swiftshader",
  "--use-angle=vulkan",
  "--disable-vulkan-surface",
];

/** A browser with a profile of its own, so that its storage is on the disk. */
export async function launch({ webgpu = true, canvas = false } = {}) {
  const profile = await mkdtemp(join(tmpdir(), "warploom-web-"));
  const flags = webgpu ? FLAGS : [...FLAGS.filter((flag) => flag !== WEBGPU), "--disable-features=WebGPU"];
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: canvas ? [...flags, ...CANVAS] : flags,
  });
  const messages = [];
  context.on("console", (message) => {
    messages.push(`${message.type()}: ${message.text()}`);
    if (process.env.WEB_VERBOSE === "1") console.log(`  [${message.type()}] ${message.text()}`);
  });
  context.on("weberror", (error) => messages.push(`page error: ${error.error()}`));
  return {
    context,
    messages,
    /** Opens a page with the package as `window.warploom`. */
    async page(url, packagePath = "/package/index.js") {
      const page = await context.newPage();
      await page.goto(url);
      if (packagePath) {
        await page.evaluate(async (path) => { window.warploom = await import(path); }, packagePath);
      }
      return page;
    },
    async close() {
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}

/** Fails on what axe-core calls serious. */
export async function accessible(page, state) {
  // By the protocol, as the page's own policy allows no foreign script.
  await page.evaluate(await axe());
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, impact, nodes }) => ({ id, impact, at: nodes.map((n) => n.html) }));
  });
  const serious = found.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious, [], state);
}

const axe = () => readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Runs each text of code in the page, with `engine` and `model`; returns what was thrown, as
 * "kind: message", or null. What is no WarploomError begins with "!".
 */
const thrown = (page, codes) => page.evaluate(async (codes) => {
  const errors = {};
  for (const code of codes) {
    const run = new Function("engine", "model", `return (async () => { return await (${code}); })();`);
    errors[code] = await run(window.engine, window.model).then(() => null, (error) =>
      `${error instanceof window.warploom.WarploomError ? error.kind : "!"}: ${error.message}`);
  }
  return errors;
}, codes);

/** Fails unless each text of code throws an error of kind "invalid" with its message. */
export async function refuses(page, wanted) {
  const errors = await thrown(page, Object.keys(wanted));
  const want = Object.entries(wanted).map(([code, message]) => [code, `invalid: ${message}`]);
  assert.deepEqual(errors, Object.fromEntries(want));
}

/** Keeps the worker of the next engine as `window.worker`, with what it receives as `window.sent`. */
export const watchWorker = (page) => page.evaluate(() => {
  window.sent = [];
  window.Worker = class extends Worker {
    constructor(...all) {
      super(...all);
      window.worker = this;
    }
    postMessage(message, ...rest) {
      window.sent.push(message.call);
      super.postMessage(message, ...rest);
    }
  };
});

/** Leaves a picture of the page in web/tests/out. */
export const shot = (page, name) => page.screenshot({ path: join(web, "tests", "out", `${name}.png`) });

/** The real model of the tests, or null: then the test is skipped with a line that says so. */
export async function smolLm2(t) {
  const folder = process.env.WARPLOOM_TEST_MODELS ?? join(repository, "target", "test-models");
  const path = join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf");
  if (await stat(path).catch(() => null)) return path;
  const message = `${path} is missing`;
  const required = (process.env.WARPLOOM_REQUIRE ?? "").split(",").includes("models");
  assert.ok(!required, message);
  console.error(`skipped: ${t.name}: ${message} [models]`);
  t.skip(message);
  return null;
}

/** The recorded greedy text of a model's file: rows of prompt, tokens, greedy and gaps. */
export async function golden(file) {
  const path = join(repository, "tests", "golden", "greedy.json");
  return JSON.parse(await readFile(path, "utf8"))[file].rows;
}
