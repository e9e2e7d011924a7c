// The page as a person uses it: chat, stop, other models, errors, keyboard, accessibility, offline.
// Screenshots of its states are left in web/tests/out.
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, repository, serveFile, serveFolders, web } from "./lib.mjs";

const MODEL = join(repository, "models", "warploom-tiny-llama-Q4_K_M.gguf");
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };

let site, browser, axe;

before(async () => {
  site = await serveFolders({ "/": join(web, "site") });
  browser = await launch();
  axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await mkdir(join(web, "tests", "out"), { recursive: true });
});

after(async () => {
  await browser?.close();
  await site?.close();
});

/** Opens the page and waits for the embedded model. */
async function visit(t, size = "desktop", scheme = "light", query = "") {
  const page = await browser.context.newPage();
  t.after(() => page.close());
  await page.setViewportSize(SIZES[size]);
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(`${site.origin}/${query}`);
  await ready(page);
  return page;
}

const ready = (page) => page.waitForSelector("#suggestions button:not(:disabled), #messages li",
  { timeout: 60_000, state: "attached" }).then(() => page.waitForFunction(
    () => document.getElementById("device").textContent.includes("weights")));

const answered = (page) => page.waitForSelector(".message.assistant .actions", { timeout: 120_000 });

/** Fails on what axe-core calls serious. */
async function accessible(page, state) {
  // By the protocol, as the page's own policy allows no foreign script.
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, impact, nodes }) => ({ id, impact, at: nodes.map((n) => n.html) }));
  });
  const serious = found.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious, [], state);
}

const shot = (page, name) => page.screenshot({ path: join(web, "tests", "out", `${name}.png`) });

for (const [size, scheme] of [["phone", "light"], ["phone", "dark"], ["desktop", "light"], ["desktop", "dark"]]) {
  test(`chat on a ${size} in ${scheme} colours`, async (t) => {
    const page = await visit(t, size, scheme);
    await accessible(page, "welcome");
    await shot(page, `${size}-${scheme}-welcome`);
    const overflow = await page.evaluate(() =>
      document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(overflow, 0, "the page scrolls sideways");
    await page.fill("#prompt", "What is the capital of France?");
    await page.click("#send");
    await answered(page);
    const answer = await page.textContent(".message.assistant .text");
    assert.ok(answer.length > 3, answer);
    const stats = await page.textContent(".message.assistant .stats");
    assert.match(stats, /^\d+ tokens? · ([\d.]+ tokens\/s · )?first after [\d.]+ m?s/);
    assert.equal(await page.textContent("#announcer"), answer, "a screen reader gets the answer");
    await accessible(page, "answer");
    await shot(page, `${size}-${scheme}-answer`);
    await page.click("#model-button");
    await accessible(page, "models");
    await shot(page, `${size}-${scheme}-models`);
  });
}

test("no request leaves the origin, and the page's thread stays free", async (t) => {
  const foreign = [];
  const note = (request) => {
    if (!request.url().startsWith(site.origin) && !/^(data|blob):/.test(request.url())) {
      foreign.push(request.url());
    }
  };
  browser.context.on("request", note);
  t.after(() => browser.context.off("request", note));
  const page = await visit(t);
  await page.evaluate(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => {
      window.longTasks.push(...list.getEntries().map(({ duration }) => duration));
    }).observe({ type: "longtask" });
  });
  await page.click("#suggestions button");
  await answered(page);
  const long = await page.evaluate(() => window.longTasks);
  console.log(`web: tasks over 50 ms of the page's thread during an answer: ${JSON.stringify(long)}`);
  assert.deepEqual(foreign, []);
  assert.ok(long.every((duration) => duration < 250), `${long}`);
});

test("an answer is stopped by the button and by Escape, and the chat goes on", async (t) => {
  const page = await visit(t);
  for (const stop of [() => page.click("#send"), () => page.press("#prompt", "Escape")]) {
    if (await page.isEnabled("#new-chat")) await page.click("#new-chat");
    await page.fill("#prompt", "Tell me a story about a brave mouse and a red ball.");
    await page.press("#prompt", "Enter");
    await page.waitForFunction(() =>
      document.querySelector(".message.assistant .text")?.textContent.length > 20);
    assert.equal(await page.textContent("#send-label"), "Stop");
    await stop();
    await answered(page);
    assert.match(await page.textContent(".message.assistant .stats"), /stopped/);
    assert.equal(await page.textContent("#send-label"), "Send");
  }
  await page.fill("#prompt", "Who are you?");
  await page.press("#prompt", "Enter");
  await page.waitForSelector(".message:nth-child(4) .actions", { timeout: 120_000 });
  // A reload keeps the conversation.
  const before = await page.locator(".message .text").allTextContents();
  await page.reload();
  await ready(page);
  assert.deepEqual(await page.locator(".message .text").allTextContents(), before);
});

test("a model by its address: estimate, download, answer; removed again", async (t) => {
  const server = await serveFile(MODEL, "tiny-by-address.gguf");
  t.after(() => server.close());
  const page = await visit(t, "phone");
  await page.click("#model-button");
  await page.fill("#address", server.url);
  await page.press("#address", "Enter");
  await page.waitForSelector("#estimate dl");
  assert.match(await page.textContent("#estimate"), /Download4\.8 MB/);
  await accessible(page, "estimate");
  await shot(page, "phone-light-estimate");
  server.control.rate = 500;
  await page.click("#estimate button");
  await page.waitForSelector("#progress:not([hidden])");
  await page.waitForFunction(() => /Downloading/.test(document.getElementById("progress-text").textContent));
  await accessible(page, "download");
  await shot(page, "phone-light-download");
  await page.click("#progress-cancel");
  await page.waitForFunction(() =>
    document.getElementById("model-name").textContent === "Built-in story model"
    && document.getElementById("device").textContent.includes("weights"));
  server.control.rate = null;
  await page.click("#model-button");
  await page.click(".model-list .choose:has-text('tiny-by-address.gguf')");
  await page.waitForFunction(() =>
    document.getElementById("model-name").textContent === "tiny-by-address.gguf"
    && document.getElementById("device").textContent.includes("weights"));
  assert.match(server.requests.at(-1).range, /^bytes=[1-9]\d*-$/, "the download was resumed");
  await page.fill("#prompt", "Who are you?");
  await page.click("#send");
  await answered(page);
  await page.click("#model-button");
  await page.click(".model-list li:first-child .choose");
  await page.waitForFunction(() =>
    document.getElementById("model-name").textContent === "Built-in story model"
    && document.getElementById("device").textContent.includes("weights"));
  await page.click("#model-button");
  await page.click('[aria-label="Remove tiny-by-address.gguf"]');
  await page.waitForFunction(() => document.querySelectorAll(".model-list li").length === 1);
});

test("a file that is picked or dropped", async (t) => {
  const page = await visit(t);
  await page.click("#model-button");
  await page.setInputFiles("#file", MODEL);
  await page.waitForSelector("#estimate dl");
  await page.click("#estimate button");
  await page.waitForFunction(() =>
    document.getElementById("model-name").textContent === "warploom-tiny-llama-Q4_K_M.gguf"
    && document.getElementById("device").textContent.includes("weights"));
  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["<!doctype html>"], "page.gguf"));
    return transfer;
  });
  await page.dispatchEvent("body", "dragenter", { dataTransfer: data });
  assert.ok(await page.isVisible("#drop"));
  await page.dispatchEvent("body", "drop", { dataTransfer: data });
  await page.waitForSelector("#notice:not([hidden])");
  assert.match(await page.textContent("#notice"), /not a model that can be read/);
  assert.ok(!(await page.isVisible("#drop")));
});

test("errors say what to do", async (t) => {
  const server = await serveFile(MODEL, "private.gguf");
  t.after(() => server.close());
  server.control.status = 401;
  for (const size of ["phone", "desktop"]) {
    const page = await visit(t, size);
    await page.click("#model-button");
    await page.fill("#address", server.url);
    await page.press("#address", "Enter");
    await page.waitForSelector("#notice:not([hidden])");
    assert.match(await page.textContent("#notice"), /answered 401.*login/s);
    await accessible(page, "error");
    await shot(page, `${size}-light-error`);
    await page.click("#notice-close");
    assert.ok(!(await page.isVisible("#notice")));
  }
});

test("everything is reached by the keyboard", async (t) => {
  const page = await visit(t);
  const focused = new Set();
  for (let i = 0; i < 12; i += 1) {
    await page.keyboard.press("Tab");
    focused.add(await page.evaluate(() =>
      document.activeElement.id || document.activeElement.textContent));
  }
  for (const id of ["model-button", "prompt", "Who are you?"]) assert.ok(focused.has(id), [...focused].join());
  await page.focus("#model-button");
  await page.keyboard.press("Enter");
  assert.ok(await page.isVisible("#models"));
  await page.keyboard.press("Escape");
  assert.ok(!(await page.isVisible("#models")));
  assert.equal(await page.evaluate(() => document.activeElement.id), "model-button");
});

test("after the first visit the page works offline", async (t) => {
  const own = await serveFolders({ "/": join(web, "site") });
  const page = await browser.context.newPage();
  t.after(() => page.close());
  await page.goto(`${own.origin}/`);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  await ready(page);
  await own.close();
  await page.reload();
  await ready(page);
  await page.fill("#prompt", "Who are you?");
  await page.click("#send");
  await answered(page);
});
