// The page as a person uses it: chat, stop, other models, errors, keyboard, accessibility, offline.
// Screenshots of its states are left in web/tests/out.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, launch, repository, serveFile, serveFolders, shot, web } from "./lib.mjs";

const MODEL = join(repository, "models", "warploom-tiny-llama-Q4_K_M.gguf");
/** Of other sizes, so that it does not fit into the memory that the first model leaves. */
const OTHER = join(repository, "models", "warploom-tiny-bitnet-TQ2_0.gguf");
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };

let site, browser;

before(async () => {
  site = await serveFolders({ "/": join(web, "site") });
  browser = await launch();
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

/** A site whose worker loses devices and refuses memory; see faults.mjs. */
async function faulty(t) {
  const site = join(web, "site");
  const own = await serveFolders({ "/tests/": join(web, "tests"), "/": site }, {
    texts: {
      "/warploom/worker.js": 'import "/tests/faults-hook.mjs"; import "./worker-itself.js";',
      "/warploom/worker-itself.js": await readFile(join(site, "warploom", "worker.js"), "utf8"),
    },
  });
  t.after(() => own.close());
  return own;
}

const ready = (page) => page.waitForSelector("#suggestions button:not(:disabled), #messages li",
  { timeout: 60_000, state: "attached" }).then(() => page.waitForFunction(
    () => document.getElementById("device").textContent.includes("weights")));

const answered = (page) => page.waitForSelector(".message.assistant .actions", { timeout: 120_000 });

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

test("no request leaves the origin, and the first token comes soon while the page's thread stays free", async (t) => {
  const foreign = [];
  const note = (request) => {
    if (!request.url().startsWith(site.origin) && !/^(data|blob):/.test(request.url())) {
      foreign.push(request.url());
    }
  };
  browser.context.on("request", note);
  t.after(() => browser.context.off("request", note));
  // Of some visits the best counts: the machine may be busy with something else.
  const visits = [];
  for (let i = 0; i < 3; i += 1) {
    const page = await browser.context.newPage();
    await page.addInitScript(() => {
      window.longTasks = [];
      new PerformanceObserver((list) => {
        window.longTasks.push(...list.getEntries().map(({ duration }) => duration));
      }).observe({ type: "longtask", buffered: true });
      // Asks as soon as the page lets one.
      const watch = new MutationObserver(() => {
        const [button] = document.querySelectorAll("#suggestions button:not(:disabled)");
        if (button && !window.asked) {
          window.asked = true;
          button.click();
        }
        if (document.querySelector(".message.assistant .text")?.textContent && !window.first) {
          window.first = performance.now();
        }
      });
      watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    });
    await page.goto(`${site.origin}/`);
    await answered(page);
    visits.push(await page.evaluate(() => ({ first: window.first, long: window.longTasks })));
    await page.close();
  }
  console.log(`web: milliseconds from the address to the first token, and tasks of the page's thread over 50 ms: `
    + JSON.stringify(visits.map(({ first, long }) => [Math.round(first), ...long])));
  assert.deepEqual(foreign, []);
  assert.ok(visits.some(({ first }) => first < 3000), "the first token comes after 3 s");
  assert.ok(visits.some(({ long }) => long.length === 0), "the page's thread is not free");
});

test("a full disk is said, and the chat goes on", async (t) => {
  const server = await serveFile(MODEL, "large.gguf");
  t.after(() => server.close());
  // An origin of its own, which has stored nothing.
  const own = await serveFolders({ "/": join(web, "site") });
  t.after(() => own.close());
  const page = await browser.context.newPage();
  t.after(() => page.close());
  await page.setViewportSize(SIZES.phone);
  await page.goto(`${own.origin}/`);
  await ready(page);
  await page.fill("#prompt", "Who are you?");
  await page.click("#send");
  await answered(page);
  const before = await page.textContent(".message.assistant .text");
  const session = await browser.context.newCDPSession(page);
  const { usage } = await page.evaluate(() => navigator.storage.estimate());
  await session.send("Storage.overrideQuotaForOrigin", { origin: own.origin, quotaSize: usage + 2_000_000 });
  await page.click("#model-button");
  await page.fill("#address", server.url);
  await page.press("#address", "Enter");
  await page.waitForSelector("#estimate dl");
  await page.click("#estimate button");
  await page.waitForSelector("#notice:not([hidden])", { timeout: 60_000 });
  assert.match(await page.textContent("#notice"), /storage is full.*more are needed.*Remove a stored model/s);
  await accessible(page, "a full disk");
  await shot(page, "phone-light-disk-full");
  assert.equal(await page.textContent(".message.assistant .text"), before);
  await page.click("#notice-action");
  await page.waitForFunction(() =>
    document.getElementById("model-name").textContent === "Built-in story model"
    && document.getElementById("device").textContent.includes("weights"));
  await page.fill("#prompt", "What is the capital of France?");
  await page.click("#send");
  await page.waitForSelector(".message:nth-child(4) .actions", { timeout: 120_000 });
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

test("a message that is too long goes back into the field, with words that fit", async (t) => {
  const page = await visit(t, "phone");
  const long = "word ".repeat(3000).trim();
  await page.fill("#prompt", long);
  await page.click("#send");
  await page.waitForSelector("#notice:not([hidden])");
  assert.match(await page.textContent("#notice"), /too long for this model.*takes \d+ tokens.*512 at most/s);
  assert.ok(!(await page.isVisible("#notice-action")), "to try again cannot succeed");
  assert.equal(await page.inputValue("#prompt"), long);
  assert.equal(await page.locator(".message").count(), 0);
  await accessible(page, "a message that is too long");
  await shot(page, "phone-light-too-long");
  await page.fill("#prompt", "Who are you?");
  await page.click("#send");
  await answered(page);
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

test("a lost device and refused memory keep the conversation", { timeout: 400_000 }, async (t) => {
  const own = await faulty(t);
  const page = await browser.context.newPage();
  t.after(() => page.close());
  await page.setViewportSize(SIZES.phone);
  await page.goto(`${own.origin}/?device=webgpu`);
  await ready(page);
  const fault = (what) => page.evaluate((what) => new Promise((resolve) => {
    window.faults ??= new BroadcastChannel("faults");
    window.faults.onmessage = resolve;
    window.faults.postMessage(what);
  }).then(() => undefined), what);
  await page.fill("#prompt", "Tell me a story.");
  await page.click("#send");
  await page.waitForFunction(() =>
    document.querySelector(".message.assistant .text")?.textContent.length > 12, null, { timeout: 120_000 });
  const before = await page.textContent(".message.assistant .text");
  await fault("lose");
  await page.waitForSelector("#notice.calm:not([hidden])", { timeout: 120_000 });
  assert.match(await page.textContent("#notice"), /lost, and opened again/);
  await accessible(page, "recovered");
  await shot(page, "phone-light-recovered");
  await page.waitForFunction((length) =>
    document.querySelector(".message.assistant .text").textContent.length > length + 12,
  before.length, { timeout: 120_000 });
  await page.click("#send");
  await answered(page);
  const text = await page.textContent(".message.assistant .text");
  assert.ok(text.startsWith(before), `${text} does not begin with ${before}`);

  // Another model does not fit: the conversation stays, and the built-in model comes back.
  await fault("refuse");
  await page.click("#model-button");
  await page.setInputFiles("#file", OTHER);
  await page.waitForSelector("#estimate dl");
  await page.click("#estimate button");
  await page.waitForSelector("#notice:not([hidden]):not(.calm)", { timeout: 120_000 });
  assert.match(await page.textContent("#notice"), /not enough memory.*needs [\d.]+ MB/s);
  await shot(page, "phone-light-memory");
  assert.equal(await page.textContent(".message.assistant .text"), text);
  await fault("allow");
  await page.click("#notice-action");
  await ready(page);
});

test("the kernels of a token with their share of its time", async (t) => {
  for (const size of ["phone", "desktop"]) {
    const page = await visit(t, size);
    await page.click("#kernels-button");
    await page.waitForSelector("#kernels-rows tr", { timeout: 60_000 });
    const shares = await page.locator("#kernels-rows .share").allTextContents();
    const sum = shares.reduce((sum, text) => sum + parseFloat(text), 0);
    assert.ok(shares.length > 5 && Math.abs(sum - 100) < 3, `${shares}`);
    const launches = await page.locator("#kernels-rows td:nth-child(2)").allTextContents();
    const strip = await page.locator("#kernels-strip span").count();
    assert.equal(launches.reduce((sum, text) => sum + Number(text), 0), strip);
    assert.match(await page.textContent("#kernels-status"), /\d+ launches, .* a whole token takes/);
    const cut = await page.evaluate(() => {
      const dialog = document.getElementById("kernels");
      return dialog.scrollWidth - dialog.clientWidth;
    });
    assert.equal(cut, 0, "the table is wider than the dialog");
    await accessible(page, "kernels");
    await shot(page, `${size}-light-kernels`);
    await page.keyboard.press("Escape");
    await page.fill("#prompt", "Who are you?");
    await page.click("#send");
    await answered(page);
  }
});

/** The colours of some pixels of the canvas. */
const drawn = (page) => page.evaluate(() => {
  const { width, height } = document.getElementById("canvas");
  const { data } = document.getElementById("canvas").getContext("2d").getImageData(0, 0, width, height);
  return { width, colours: new Set(new Uint32Array(data.buffer)).size, pixels: [...data.slice(0, 8)] };
});

for (const [size, scheme] of [["phone", "dark"], ["desktop", "light"]]) {
  test(`the kernel playground on a ${size}`, async (t) => {
    const page = await browser.context.newPage();
    t.after(() => page.close());
    await page.setViewportSize(SIZES[size]);
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(`${site.origin}/playground.html?device=webgpu`);
    await page.waitForFunction(() => /frame \d/.test(document.getElementById("stats").textContent),
      null, { timeout: 60_000 });
    const waves = await drawn(page);
    assert.equal(waves.width, 256);
    assert.ok(waves.colours > 100, `${waves.colours} colours`);
    await accessible(page, "playground");
    await shot(page, `${size}-${scheme}-playground`);
    const overflow = await page.evaluate(() =>
      document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(overflow, 0, "the page scrolls sideways");
    for (const example of ["Mandelbrot", "Game of life"]) {
      await page.selectOption("#example", example);
      await page.waitForFunction(() => document.getElementById("problem").classList.contains("good")
        && /frame [1-9]/.test(document.getElementById("stats").textContent), null, { timeout: 60_000 });
    }
    const valid = `@group(0) @binding(0) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&pixels)) {
        pixels[id.x] = 0xff0000ffu;
    }
}
`;
    // An error has its line, and goes away as it is corrected.
    await page.fill("#code", valid.replace("0xff0000ffu", "1.5"));
    await page.waitForSelector("#problem.bad");
    assert.match(await page.textContent("#problem-text"), /^Line 6: /);
    assert.equal(await page.textContent("#gutter b"), "6");
    await accessible(page, "an error");
    await shot(page, `${size}-${scheme}-playground-error`);
    await page.click("#problem-go");
    const place = await page.evaluate(() => {
      const { value, selectionStart } = document.getElementById("code");
      return value.slice(0, selectionStart).split("\n").length;
    });
    assert.equal(place, 6);
    await page.click("#run");
    assert.equal(await page.textContent("#run"), "Run");
    await page.fill("#code", valid);
    await page.waitForSelector("#problem.good");
    await page.click("#reset");
    await page.click("#step");
    await page.waitForFunction(() => {
      const canvas = document.getElementById("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, 1, 1);
      return data[0] === 255 && data[1] === 0 && data[2] === 0;
    });
    // The link opens the same kernel.
    await page.click("#share");
    await page.waitForFunction(() => location.hash.startsWith("#wgsl="));
    const link = page.url().replace("device=webgpu", "device=cpu");
    const other = await browser.context.newPage();
    t.after(() => other.close());
    await other.goto(link);
    await other.waitForSelector("#problem.good", { timeout: 60_000 });
    assert.equal(await other.inputValue("#code"), valid);
    await other.waitForFunction(() => /CPU · frame \d/.test(document.getElementById("stats").textContent),
      null, { timeout: 60_000 });
    const red = await drawn(other);
    assert.deepEqual([red.width, red.pixels.slice(0, 4)], [64, [255, 0, 0, 255]]);
  });
}

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
