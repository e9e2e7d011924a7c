// Downloads: ranges, cuts, resume, storage, cancel, checksums, two tabs, full disk.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { launch, repository, serveFile, serveFolders, web } from "./lib.mjs";

const MODEL = join(repository, "models", "warploom-tiny-llama-Q4_K_M.gguf");

let site, browser, server, bytes, page;

/** Loads `url` in a tab; returns what happened, with every progress event. */
function load(tab, url, options = {}) {
  return tab.evaluate(async ({ url, options: { abortAfter, ...options } }) => {
    const engine = await (window.engine ??= window.warploom.open({ device: "cpu" }));
    const stop = new AbortController();
    const progress = [];
    const onProgress = (now) => {
      progress.push(now);
      if (abortAfter !== undefined && now.done >= abortAfter) stop.abort();
    };
    try {
      const model = await engine.load(url, { ...options, onProgress, signal: stop.signal });
      const { name, architecture, weights } = model.info;
      await model.close();
      return { info: { name, architecture, weights }, progress };
    } catch (error) {
      const { name, kind, message, details } = error;
      return { error: { name, kind, message, details }, progress };
    }
  }, { url, options });
}

const models = (tab) => tab.evaluate(async () =>
  (await (window.engine ??= window.warploom.open({ device: "cpu" }))).models());

before(async () => {
  bytes = await readFile(MODEL);
  site = await serveFolders({ "/package/": join(web, "package", "dist") });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await site?.close();
});

beforeEach(async (t) => {
  // Another port is another address, so nothing is stored of an earlier test.
  server = await serveFile(MODEL, "tiny.gguf");
  page = await browser.page(`${site.origin}/blank.html`);
  t.after(async () => {
    await page.close();
    await server.close();
  });
});

test("a model by its address is requested once, then comes from the storage", async () => {
  const first = await load(page, server.url);
  assert.equal(first.error, undefined, JSON.stringify(first.error));
  assert.equal(first.info.architecture, "llama");
  const downloads = first.progress.filter(({ phase }) => phase === "download");
  assert.ok(downloads.every(({ total }) => total === bytes.length));
  assert.equal(downloads.at(-1).done, bytes.length);
  assert.ok(downloads.every(({ done }, i) => i === 0 || done >= downloads[i - 1].done));
  assert.ok(first.progress.some(({ phase }) => phase === "load"), "the upload is reported");
  assert.equal(server.requests.length, 1);

  const second = await load(page, server.url);
  assert.equal(second.error, undefined, JSON.stringify(second.error));
  assert.ok(second.progress.every(({ phase }) => phase === "load"));
  assert.equal(server.requests.length, 1, "the second load makes no request");

  const [stored] = (await models(page)).filter(({ url }) => url === server.url);
  assert.deepEqual({ ...stored, name: "" },
    { name: "", url: server.url, size: bytes.length, stored: bytes.length, complete: true });
  const remove = () => page.evaluate(async (name) => (await window.engine).remove(name), stored.name);
  assert.equal(await remove(), true);
  assert.equal(await remove(), false);
  await load(page, server.url);
  assert.equal(server.requests.length, 2);
});

test("a connection that is cut twice is resumed", async () => {
  server.control.cut = [1_500_000, 2_000_000];
  const digest = createHash("sha256").update(bytes).digest("hex");
  const { error } = await load(page, server.url, { sha256: digest });
  assert.equal(error, undefined, JSON.stringify(error));
  assert.equal(server.requests.length, 3);
  assert.equal(server.requests[0].range, null);
  const starts = server.requests.slice(1).map(({ range }) => Number(/^bytes=(\d+)-$/.exec(range)[1]));
  assert.ok(starts[0] > 0 && starts[0] <= 1_500_000, `${starts}`);
  assert.ok(starts[1] > starts[0] && starts[1] <= starts[0] + 2_000_000, `${starts}`);
});

test("a download that failed goes on in another tab, from the stored bytes", async (t) => {
  server.control.cut = [3_000_000];
  const failing = load(page, server.url);
  while (server.requests.length === 0) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  server.control.down = true;
  const { error } = await failing;
  assert.equal(error.kind, "network");
  const [part] = (await models(page)).filter(({ url }) => url === server.url);
  assert.equal(part.complete, false);
  assert.equal(part.size, bytes.length);
  assert.ok(part.stored > 0 && part.stored <= 3_000_000, `${part.stored}`);
  server.control.down = false;
  const from = server.requests.length;
  const other = await browser.page(`${site.origin}/blank.html`);
  t.after(() => other.close());
  const again = await load(other, server.url);
  assert.equal(again.error, undefined, JSON.stringify(again.error));
  assert.equal(server.requests.length, from + 1);
  assert.equal(server.requests[from].range, `bytes=${part.stored}-`);
  assert.equal(again.progress[0].done, part.stored);
});

test("a file that changed on the server starts again", async () => {
  server.control.rate = 1000;
  const { error } = await load(page, server.url, { abortAfter: 1_000_000 });
  assert.equal(error.kind, "cancelled");
  server.control.rate = null;
  // The stored bytes are of another file now.
  server.control.etag = '"two"';
  const { length } = server.requests;
  const digest = createHash("sha256").update(bytes).digest("hex");
  const again = await load(page, server.url, { sha256: digest });
  assert.equal(again.error, undefined, JSON.stringify(again.error));
  const ranges = server.requests.slice(length).map(({ range }) => range);
  assert.equal(ranges.length, 2);
  assert.match(ranges[0], /^bytes=[1-9]\d*-$/);
  assert.equal(ranges[1], null);
});

test("a server without ranges works, and a cut there starts again", async () => {
  server.control.ranges = false;
  server.control.cut = [1_000_000];
  const { error } = await load(page, server.url);
  assert.equal(error, undefined, JSON.stringify(error));
  assert.equal(server.requests.length, 2);
});

test("a server without a validator is not resumed", async () => {
  server.control.etag = null;
  server.control.rate = 1000;
  const stopped = await load(page, server.url, { abortAfter: 1 });
  assert.equal(stopped.error.kind, "cancelled");
  server.control.rate = null;
  const { length } = server.requests;
  const { error } = await load(page, server.url);
  assert.equal(error, undefined, JSON.stringify(error));
  assert.equal(server.requests[length].range, null);
});

test("cancel ends a slow download at once, and keeps its bytes", async () => {
  server.control.rate = 500;
  const begin = Date.now();
  const { error, progress } = await load(page, server.url, { abortAfter: 300_000 });
  assert.equal(error.name, "WarploomError");
  assert.equal(error.kind, "cancelled");
  assert.ok(Date.now() - begin < 8000, "the whole file takes longer");
  const [part] = (await models(page)).filter(({ url }) => url === server.url);
  assert.ok(part.stored >= 300_000 && part.stored < bytes.length);
  server.control.rate = null;
  const rest = await load(page, server.url);
  assert.equal(rest.error, undefined, JSON.stringify(rest.error));
  assert.equal(server.requests[1].range, `bytes=${part.stored}-`);
  assert.ok(progress.length > 1);
});

test("a wrong SHA-256 is refused and the file deleted", async () => {
  const { error } = await load(page, server.url, { sha256: "0".repeat(64) });
  assert.equal(error.kind, "checksum");
  assert.equal(error.details.is, createHash("sha256").update(bytes).digest("hex"));
  assert.deepEqual((await models(page)).filter(({ url }) => url === server.url), []);
});

test("two tabs share one download and both load", async (t) => {
  server.control.rate = 1000;
  const other = await browser.page(`${site.origin}/blank.html`);
  t.after(() => other.close());
  await Promise.all([models(page), models(other)]);
  const [one, two] = await Promise.all([load(page, server.url), load(other, server.url)]);
  assert.equal(one.error, undefined, JSON.stringify(one.error));
  assert.equal(two.error, undefined, JSON.stringify(two.error));
  assert.equal(server.requests.length, 1);
  const phases = [one, two].map(({ progress }) => progress[0].phase).sort();
  assert.deepEqual(phases, ["download", "waiting"]);
});

test("a full disk is reported with numbers", async (t) => {
  // An origin that has stored nothing yet.
  const own = await serveFolders({ "/package/": join(web, "package", "dist") });
  const tab = await browser.page(`${own.origin}/blank.html`);
  const session = await browser.context.newCDPSession(tab);
  await session.send("Storage.overrideQuotaForOrigin",
    { origin: own.origin, quotaSize: 4_000_000 });
  t.after(async () => {
    await tab.close();
    await own.close();
  });
  const { error } = await load(tab, server.url);
  assert.equal(error.kind, "disk-full", JSON.stringify(error));
  assert.equal(error.details.needed + error.details.stored, bytes.length, JSON.stringify(error));
  assert.ok(error.details.stored < bytes.length, JSON.stringify(error));
});

test("a full disk has the bytes that are needed, with and without a size from the server", async (t) => {
  for (const [quotaSize, length] of [[1000, true], [3_000_000, false]]) {
    const own = await serveFolders({ "/package/": join(web, "package", "dist") });
    const tab = await browser.page(`${own.origin}/blank.html`);
    t.after(async () => {
      await tab.close();
      await own.close();
    });
    const session = await browser.context.newCDPSession(tab);
    await session.send("Storage.overrideQuotaForOrigin", { origin: own.origin, quotaSize });
    server.control.length = length;
    const { error } = await load(tab, server.url);
    assert.equal(error.kind, "disk-full", JSON.stringify(error));
    const { needed, stored } = error.details;
    assert.ok(needed > 0 && stored < bytes.length, JSON.stringify(error));
    if (length) assert.equal(needed + stored, bytes.length, JSON.stringify(error));
  }
});

test("a stored answer that is no model is deleted, and loaded again from the server", async () => {
  for (const wrong of [Buffer.from("<!doctype html><h1>login</h1>"), bytes.subarray(0, 2_000_000)]) {
    server.control.bytes = wrong;
    const { error } = await load(page, server.url);
    assert.equal(error.kind, "bad-file", JSON.stringify(error));
    assert.match(error.message, /the stored file was deleted$/);
    assert.match(error.details.name, /^tiny-[0-9a-f]{12}\.gguf$/);
    assert.deepEqual((await models(page)).filter(({ url }) => url === server.url), []);
  }
  server.control.bytes = bytes;
  const again = await load(page, server.url);
  assert.equal(again.error, undefined, JSON.stringify(again.error));
});

test("a load that gets no byte leaves nothing in the storage", async () => {
  const before = await models(page);
  for (const status of [404, 500]) {
    server.control.status = status;
    assert.equal((await load(page, server.url)).error.kind, "network");
  }
  server.control.status = null;
  server.control.bytes = Buffer.alloc(0);
  const empty = await load(page, server.url);
  assert.equal(empty.error.kind, "bad-file", JSON.stringify(empty.error));
  server.control.bytes = bytes;
  const aborted = await load(page, server.url, { abortAfter: 0 });
  assert.equal(aborted.error.kind, "cancelled");
  const left = (await models(page)).filter(({ stored }) => stored === 0);
  assert.deepEqual(left, before.filter(({ stored }) => stored === 0));
  assert.deepEqual(left, []);
});

test("a model that is being downloaded is not removed, and the load goes on", async () => {
  server.control.rate = 2000;
  const loading = load(page, server.url);
  let stored;
  while (!stored) [stored] = (await models(page)).filter(({ url }) => url === server.url);
  const error = await page.evaluate(async (name) => (await window.engine).remove(name)
    .then(() => null, ({ kind, message }) => ({ kind, message })), stored.name);
  assert.equal(error?.kind, "in-use");
  assert.ok(error.message.startsWith(`${stored.name} is being downloaded`), error.message);
  const { error: failed } = await loading;
  assert.equal(failed, undefined, JSON.stringify(failed));
});

test("answers that are no model have an error that says so", async () => {
  server.control.status = 404;
  const missing = await load(page, server.url);
  assert.equal(missing.error.kind, "network");
  assert.equal(missing.error.details.status, 404);
  assert.equal(server.requests.length, 1, "404 is not tried again");
  server.control.status = null;
  server.control.bytes = Buffer.from("<!doctype html><title>sign in</title>".repeat(100));
  const html = await load(page, server.url);
  assert.equal(html.error.kind, "bad-file", JSON.stringify(html.error));
  const foreign = await load(page, "ftp://127.0.0.1/model.gguf");
  assert.equal(foreign.error.kind, "invalid");
});

test("a file that the user picks is read in place", async () => {
  const info = await page.evaluate(async (url) => {
    const engine = await (window.engine ??= window.warploom.open({ device: "cpu" }));
    const file = new File([await (await fetch(url)).blob()], "picked.gguf");
    const phases = new Set();
    const onProgress = ({ phase }) => phases.add(phase);
    const estimate = await engine.estimate(file);
    const model = await engine.load(file, { onProgress });
    return { estimate, phases: [...phases] };
  }, server.url);
  assert.deepEqual(info.phases, ["load"]);
  assert.equal(info.estimate.size, bytes.length);
  assert.ok(info.estimate.weights > 0);
});

test("an estimate reads only the beginning of a remote file", async () => {
  server.control.rate = 4000;
  const estimate = await page.evaluate(async (url) => {
    const engine = await (window.engine ??= window.warploom.open({ device: "cpu" }));
    return engine.estimate(url);
  }, server.url);
  assert.equal(estimate.size, bytes.length);
  assert.equal(estimate.stored, 0);
  assert.ok(estimate.weights > 1_000_000 && estimate.cache > 0, JSON.stringify(estimate));
  // The head, and what may be appended at the end.
  const read = server.requests.map(({ range }) => range.slice(6).split("-").map(Number))
    .reduce((sum, [start, end]) => sum + end + 1 - start, 0);
  assert.ok(read < bytes.length, `${read} of ${bytes.length} bytes`);
  // The head is enough, so that a server that sends only whole files works too.
  server.control.ranges = false;
  const again = await page.evaluate(async (url) => (await window.engine).estimate(url), server.url);
  assert.deepEqual(again, estimate);
  assert.deepEqual((await models(page)).filter(({ url }) => url === server.url), []);
});
