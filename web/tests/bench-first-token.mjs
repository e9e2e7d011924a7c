// Measures what compiling pipelines in parallel and before the first text gains: seconds from `load`
// to the first token of the embedded model on WebGPU.
//
//   node web/tests/bench-first-token.mjs [ROUNDS]
//
// Needs what web/tests/run.mjs needs.
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { launch, serveFolders, web } from "./lib.mjs";

const rounds = Number(process.argv[2] ?? 3);
/** Pipelines that are compiled one after the other, by the call that returns at once. */
const ONE_BY_ONE = `
GPUDevice.prototype.createComputePipelineAsync = async function (descriptor) {
  return GPUDevice.prototype.createComputePipeline.call(this, descriptor);
};
`;
const site = await serveFolders({ "/package/": join(web, "package", "dist") }, { texts: {
  "/hook.js": ONE_BY_ONE,
  "/one-by-one.js": 'import "/hook.js"; import "/package/worker.js";',
} });
console.log(`web: ${cpus()[0].model}, ${cpus().length} cores, load ${loadavg()[0].toFixed(2)}`);
for (let round = 0; round < rounds; round += 1) {
  for (const [name, workerUrl, first] of [
    ["one after the other", "/one-by-one.js", false],
    ["in parallel", undefined, false],
    ["in parallel, while the weights are uploaded", undefined, true],
  ]) {
    // A browser of its own: it keeps compiled pipelines.
    const browser = await launch();
    const page = await browser.page(`${site.origin}/blank.html`);
    const { loaded, token } = await page.evaluate(async ({ workerUrl, first }) => {
      const engine = await window.warploom.open({ device: "webgpu", ...(workerUrl ? { workerUrl } : {}) });
      const options = { temperature: 0.7, minP: 0.05 };
      const begin = performance.now();
      const model = await engine.embedded(first ? { first: options } : {});
      const loaded = performance.now();
      const messages = [{ role: "user", content: "What is the capital of France?" }];
      for await (const _ of model.chat(messages, { ...options, maxTokens: 4 })) break;
      return { loaded: (loaded - begin) / 1000, token: (performance.now() - begin) / 1000 };
    }, { workerUrl, first });
    console.log(`web: ${name}: loaded after ${loaded.toFixed(2)} s, first token after ${token.toFixed(2)} s`);
    await browser.close();
  }
}
await site.close();
