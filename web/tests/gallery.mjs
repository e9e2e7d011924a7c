// The gallery: pictures that are drawn from the memory in which they are computed, on WebGPU and
// without it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, launch, repository, serveFolders, shot, web } from "./lib.mjs";

const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };
const SCENES = ["diffusion", "fluid", "life", "mandelbrot", "boids", "bodies", "photo"];

let site, browser;

before(async () => {
  site = await serveFolders({ "/package/": join(web, "package", "dist"), "/": join(web, "site") });
  browser = await launch({ canvas: true });
});

after(async () => {
  await browser?.close();
  await site?.close();
});

async function visit(t, query, size = "desktop", scheme = "light") {
  const page = await browser.context.newPage();
  t.after(() => page.close());
  await page.setViewportSize(SIZES[size]);
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(`${site.origin}/gallery.html${query}`);
  return page;
}

/** Waits for a step of the picture. */
const stepped = (page, step) => page.waitForFunction((step) => {
  const problem = document.getElementById("problem");
  if (!problem.hidden) throw new Error(problem.textContent);
  return Number(/step (\d+)/.exec(document.getElementById("stats").textContent)?.[1]) >= step;
}, step, { timeout: 120_000 });

/** The number of the step that is shown. */
const step = (page) => page.evaluate(() =>
  Number(/step (\d+)/.exec(document.getElementById("stats").textContent)?.[1] ?? 0));

/** The pixels that the canvas shows, as the browser has them. */
const drawn = (page) => page.evaluate(async () => {
  const picture = await createImageBitmap(document.getElementById("canvas"));
  const { width, height } = picture;
  const copy = new OffscreenCanvas(width, height).getContext("2d");
  copy.drawImage(picture, 0, 0);
  const words = new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer);
  let hash = 0;
  for (const word of words) hash = (Math.imul(hash, 31) + word) >>> 0;
  return { width, height, colours: new Set(words).size, hash };
});

/** Lays a copy over the canvas: without a display, no screenshot has a canvas of WebGPU. */
async function picture(page, name) {
  await page.evaluate(async () => {
    const bitmap = await createImageBitmap(document.getElementById("canvas"));
    const copy = Object.assign(document.createElement("canvas"),
      { id: "copy", width: bitmap.width, height: bitmap.height });
    copy.style.cssText = "position:absolute;inset:0;width:100%;height:100%;border-radius:16px";
    copy.getContext("2d").drawImage(bitmap, 0, 0);
    document.querySelector(".stage").append(copy);
  });
  await shot(page, name);
  await page.evaluate(() => document.getElementById("copy").remove());
}

for (const [device, size, scheme] of
  [["webgpu", "desktop", "light"], ["webgpu", "phone", "dark"], ["cpu", "phone", "light"]]) {
  test(`the gallery on ${device}, on a ${size} in ${scheme} colours`, { timeout: 400_000 }, async (t) => {
    const page = await visit(t, `?device=${device}#fluid`, size, scheme);
    await stepped(page, 3);
    const text = await page.textContent("#drawn");
    assert.match(text, device === "webgpu" ? /without a copy/ : /Computed on the CPU/);
    const overflow = await page.evaluate(() =>
      document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(overflow, 0, "the page scrolls sideways");
    await accessible(page, "fluid");
    for (const name of SCENES) {
      await page.check(`[value="${name}"]`, { force: true });
      await stepped(page, 1);
      const first = await drawn(page);
      assert.ok(first.colours > 1, `${name} is blank: ${JSON.stringify(first)}`);
      const before = await step(page);
      if (name === "mandelbrot") await page.press("#canvas", "+");
      // The number may be that of the step before the picture's. The Mandelbrot set takes one at a time.
      await stepped(page, before + (name === "mandelbrot" ? 1 : 2));
      await page.waitForTimeout(100);
      const later = await drawn(page);
      assert.notEqual(later.hash, first.hash, `${name} stands still`);
      await picture(page, `${size}-${scheme}-gallery-${device}-${name}`);
    }
    assert.ok(await page.isHidden("#problem"));
  });
}

test("the gallery is used by the keyboard", async (t) => {
  const page = await visit(t, "?device=cpu#life");
  await stepped(page, 1);
  await page.click("#run");
  assert.equal(await page.textContent("#run"), "Run");
  await page.focus("#canvas");
  assert.ok(await page.isHidden("#cursor"));
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowRight");
  assert.ok(await page.isVisible("#cursor"));
  const left = await page.evaluate(() => parseFloat(document.getElementById("cursor").style.left));
  assert.equal(Math.round(left), 62);
  // Of two equal steps, one has the brush.
  const after = async (pressed) => {
    await page.click("#reset");
    await page.focus("#canvas");
    await page.waitForFunction(() => /step 1 /.test(document.getElementById("stats").textContent));
    if (pressed) await page.keyboard.down("Space");
    await page.evaluate(() => document.getElementById("step").click());
    await page.waitForFunction(() => /step 2 /.test(document.getElementById("stats").textContent));
    if (pressed) await page.keyboard.up("Space");
    return (await drawn(page)).hash;
  };
  const plain = await after(false);
  assert.equal(await after(false), plain, "equal steps have equal pictures");
  assert.notEqual(await after(true), plain, "Space revives cells");
  const focused = new Set();
  await page.focus("h1 a");
  for (let i = 0; i < 8; i += 1) {
    await page.keyboard.press("Tab");
    focused.add(await page.evaluate(() => document.activeElement.id || document.activeElement.value));
  }
  for (const id of ["life", "canvas", "run", "step", "reset"]) assert.ok(focused.has(id), [...focused].join());
});

test("a picture that is chosen is painted over", async (t) => {
  const page = await visit(t, "?device=cpu#photo");
  await stepped(page, 1);
  await page.setInputFiles("#file", join(repository, "docs", "desktop-fluid.png"));
  await stepped(page, 9);
  const { colours } = await drawn(page);
  assert.ok(colours > 3, `${colours} colours`);
  await page.setInputFiles("#file", { name: "words.txt", mimeType: "text/plain", buffer: Buffer.from("no") });
  await page.waitForSelector("#problem:not([hidden])");
  assert.match(await page.textContent("#problem"), /words\.txt is not a picture/);
});

for (const device of ["webgpu", "cpu"]) {
  test(`a surface shows the elements of a tensor on ${device}`, async (t) => {
    const page = await browser.page(`${site.origin}/blank.html`);
    t.after(() => page.close());
    const got = await page.evaluate(async (device) => {
      const engine = await window.warploom.open({ device, full: true });
      const canvas = document.createElement("canvas");
      document.body.append(canvas);
      const surface = await engine.surface(canvas);
      const show = async (pixels) => {
        await surface.draw(pixels);
        // The frame is shown after the worker's task.
        await new Promise((resolve) => setTimeout(resolve, 300));
        const picture = await createImageBitmap(canvas);
        const copy = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
        copy.drawImage(picture, 0, 0);
        const { data } = copy.getImageData(0, 0, picture.width, picture.height);
        return { width: picture.width, height: picture.height, words: [...new Uint32Array(data.buffer)] };
      };
      const row = Uint32Array.from({ length: 6 }, (_, i) => 0xff000000 + 40 * i * 256 + 5 * i);
      const shown = [
        await show(engine.tensor(row, [2, 3])),
        // Computed, in another size, and with an alpha that is not drawn.
        await show(engine.tensor(row, [3, 2]).sub(engine.full([3, 2], 0x7f000000, "u32"))),
      ];
      const refused = await surface.draw(engine.ones([2, 2]))
        .then(() => null, ({ kind, message }) => ({ kind, message }));
      const twice = await engine.surface(canvas).then(() => null, ({ kind }) => kind);
      surface.dispose();
      const gone = await surface.draw(engine.tensor(row, [2, 3])).then(() => null, ({ kind }) => kind);
      return { shown, refused, twice, gone, readback: surface.readback, row: [...row] };
    }, device);
    assert.equal(got.readback, device === "cpu");
    assert.deepEqual(got.shown[0], { width: 3, height: 2, words: got.row });
    assert.deepEqual(got.shown[1], { width: 2, height: 3, words: got.row });
    assert.equal(got.refused?.kind, "invalid");
    assert.match(got.refused.message, /f32 with the shape \[2, 2\]/);
    assert.deepEqual([got.twice, got.gone], ["invalid", "invalid"]);
  });
}

test("tidy frees what it does not return, and eval keeps values on the device", async (t) => {
  const page = await browser.page(`${site.origin}/blank.html`);
  t.after(() => page.close());
  const got = await page.evaluate(async () => {
    const engine = await window.warploom.open({ device: "cpu", full: true });
    let inner, nested;
    const kept = engine.tidy(() => {
      inner = engine.ones([2]);
      nested = engine.tidy(() => [inner.add(1), inner.mul(3)]);
      return nested[0].add(nested[1]);
    });
    const gone = [inner, ...nested].map((tensor) => {
      try { return tensor.add(1) && null; } catch ({ kind }) { return kind; }
    });
    await engine.eval(kept, kept.mul(2));
    const error = await engine.eval(kept, kept.add(engine.zeros([3]))).catch(({ kind }) => kind);
    return { values: [...await kept.data()], gone, error, memory: await engine.memory() };
  });
  assert.deepEqual(got.values, [5, 5]);
  assert.deepEqual(got.gone, ["invalid", "invalid", "invalid"]);
  assert.equal(got.error, "invalid");
  assert.ok(got.memory.wasm > 1 << 20 && got.memory.used > 0, JSON.stringify(got.memory));
});
