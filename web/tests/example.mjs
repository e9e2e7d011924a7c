// The example of a Rust crate that depends on warploom: examples/browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, repository, serveFolders } from "./lib.mjs";

let site, browser;

before(async () => {
  site = await serveFolders({ "/": join(repository, "examples", "browser") });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await site?.close();
});

/** The same in plain loops. */
function eigenvalue(n, steps) {
  const times = (x) => x.map((_, i) => x.reduce((sum, value, j) => sum + value / (1 + Math.abs(i - j)), 0));
  let x = Array.from({ length: n }, () => 1);
  for (let i = 0; i < steps; i += 1) {
    const next = times(x);
    const length = Math.hypot(...next);
    x = next.map((value) => value / length);
  }
  return times(x).reduce((sum, value, i) => sum + value * x[i], 0);
}

for (const device of ["webgpu", "cpu"]) {
  test(`a Rust crate computes in a page on ${device}`, async (t) => {
    const page = await browser.context.newPage();
    t.after(() => page.close());
    await page.goto(`${site.origin}/index.html?device=${device}`);
    await page.waitForFunction(() => document.getElementById("out").textContent !== "Computing…",
      null, { timeout: 60_000 });
    const text = await page.textContent("#out");
    const [, value, on] = /^([\d.]+), computed by (\w+)/.exec(text) ?? assert.fail(text);
    const want = eigenvalue(256, 40);
    assert.ok(Math.abs(value - want) < 1e-4 * want, `${value}, not ${want}`);
    assert.equal(on, device);
  });
}
