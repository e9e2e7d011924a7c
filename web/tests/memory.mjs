// Memory stays flat: over answers, and over models that are loaded and closed.
//
// WARPLOOM_TEST_ALL=1 runs 50 answers and 20 loads; without it there are fewer, and on WebGPU shorter ones.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, serveFolders, web } from "./lib.mjs";

const ALL = process.env.WARPLOOM_TEST_ALL === "1";
/** Counts of the first part, after which nothing grows, and of the second. */
const ANSWERS = ALL ? [10, 50] : [4, 8];
const LOADS = ALL ? [4, 20] : [4, 6];
/** What a heap may grow in the second part: caches of the browser's compiler grow a little. */
const HEAP = 1 << 20;
/** What the module's memory may grow in the second part, in bytes: four pages. Its allocator takes some once, when the
 * free parts do not fit, and 60 loads take no more. */
const MODULE = 4 << 16;

let site, browser;

before(async () => {
  site = await serveFolders({ "/package/": join(web, "package", "dist") });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await site?.close();
});

/** A session of the debugging protocol for the page's only worker. */
async function workerOf(page) {
  const session = await browser.context.newCDPSession(page);
  const attached = new Promise((resolve) =>
    session.once("Target.attachedToTarget", ({ sessionId }) => resolve(sessionId)));
  await session.send("Target.setAutoAttach",
    { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const sessionId = await attached;
  const waiting = new Map();
  session.on("Target.receivedMessageFromTarget", ({ message }) => {
    const { id, result, error } = JSON.parse(message);
    waiting.get(id)?.(error ? Promise.reject(new Error(error.message)) : result);
    waiting.delete(id);
  });
  let next = 1;
  return {
    send: (method) => new Promise((resolve) => {
      const id = next++;
      waiting.set(id, resolve);
      session.send("Target.sendMessageToTarget", { sessionId, message: JSON.stringify({ id, method }) });
    }),
  };
}

/** Bytes that are in use after a collection of garbage. */
async function heap(session) {
  await session.send("HeapProfiler.collectGarbage");
  return (await session.send("Runtime.getHeapUsage")).usedSize;
}

for (const device of ["cpu", "webgpu"]) {
  test(`memory is flat on ${device}`, { timeout: 1_200_000 }, async (t) => {
    const page = await browser.page(`${site.origin}/blank.html`);
    t.after(() => page.close());
    await page.evaluate(async (device) => {
      window.engine = await window.warploom.open({ device });
    }, device);
    const sessions = [await browser.context.newCDPSession(page), await workerOf(page)];
    const now = async () => ({
      ...await page.evaluate(() => window.engine.memory()),
      page: await heap(sessions[0]),
      worker: await heap(sessions[1]),
    });
    const flat = (before, after, what) => {
      console.log(`web: ${device}, ${what}: ${JSON.stringify(before)}, then ${JSON.stringify(after)}`);
      assert.ok(before.worker > 100_000 && before.page > 100_000, JSON.stringify(before));
      assert.equal(after.used, before.used, `${what}: buffers in use`);
      assert.ok(after.allocated <= before.allocated, `${what}: buffers of the device`);
      assert.ok(after.wasm <= before.wasm + MODULE, `${what}: memory of the module`);
      for (const of of ["page", "worker"]) {
        assert.ok(after[of] < before[of] + HEAP, `${what}: heap of the ${of}`);
      }
    };

    // SwiftShader compiles the kernels of each length of prompts for half a minute.
    const chats = ALL || device === "cpu";
    const answers = (count) => page.evaluate(async ({ count, chats }) => {
      const options = { maxTokens: 6, temperature: 0 };
      for (let i = 0; i < count; i += 1) {
        const content = `${i} Who are you?${" And what do you like?".repeat(i % 3)}`;
        const answer = chats ? window.model.chat([{ role: "user", content }], options)
          : window.model.generate("Once", options);
        await answer.result;
      }
    }, { count, chats });
    await page.evaluate(async () => { window.model = await window.engine.embedded({ context: 256 }); });
    await answers(ANSWERS[0]);
    const first = await now();
    await answers(ANSWERS[1]);
    flat(first, await now(), `${ANSWERS[1]} answers`);
    await page.evaluate(() => window.model.close());

    const loads = (count) => page.evaluate(async (count) => {
      for (let i = 0; i < count; i += 1) {
        const model = await window.engine.embedded({ context: 256 });
        await model.generate("Once", { maxTokens: 2, temperature: 0 }).result;
        await model.close();
      }
    }, count);
    await loads(LOADS[0]);
    const second = await now();
    await loads(LOADS[1]);
    const last = await now();
    flat(second, last, `${LOADS[1]} loads`);
    assert.equal(last.used, 0, "a closed model has no buffers");
  });
}
