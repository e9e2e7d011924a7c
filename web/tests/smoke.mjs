// Opens the page in a real Chromium and fails unless it computed the right numbers.
//
//   node web/tests/smoke.mjs
//
// Needs `web/build.sh` to have run, playwright-core (npm install, in this folder) and Chromium;
// CHROMIUM names another binary than /usr/bin/chromium. Exit code 0 is a pass.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("..", import.meta.url));
const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".wasm": "application/wasm",
};

/** Serves web/ on a free port of the loopback interface. */
async function serve() {
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const file = normalize(join(root, path === "/" ? "index.html" : path));
    const found = file.startsWith(root.endsWith(sep) ? root : root + sep)
      && (await stat(file).catch(() => null))?.isFile();
    response.writeHead(found ? 200 : 404, { "content-type": types[extname(file)] ?? "text/plain" });
    if (found) {
      createReadStream(file).pipe(response);
    } else {
      response.end("not found");
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

const server = await serve();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--headless=new",
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--disable-background-networking",
  ],
});
let failure = null;
try {
  const page = await browser.newPage();
  const messages = [];
  page.on("console", (message) => messages.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => messages.push(`page error: ${error}`));
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.waitForFunction(() => window.warploom?.done, null, { timeout: 120_000 });
  const { error, report } = await page.evaluate(() => window.warploom);
  const said = messages.length > 0 ? `\nconsole:\n${messages.join("\n")}` : "";
  assert.equal(error, null, `the page failed: ${error}${said}`);
  const { device } = report;
  console.log(`web: ${device.provider}:${device.index} ${JSON.stringify(device.name)} (${device.kind})`);
  for (const check of report.checks) {
    console.log(`web: ${check.ok ? "ok" : "FAILED"} ${check.name}: ${JSON.stringify(check.detail)}`);
  }
  // Computed here and not taken from the page: sum of 3 i + 1 over 1000, and the same with the
  // first ten replaced by 3 (i + 0.5) + 1.
  const sum = 3 * (999 * 1000) / 2 + 1000;
  for (const name of ["dispatch", "dispatch at the floor", "dispatch after the failures"]) {
    const check = report.checks.find((check) => check.name === name);
    assert.deepEqual(check?.detail, { elements: 1000, sums: [sum, sum + 15] }, name);
  }
  assert.equal(report.checks.length, 6);
  assert.ok(report.ok, `a check failed${said}`);
  assert.equal(await page.textContent("#status"), "Everything works.");
} catch (caught) {
  failure = caught;
} finally {
  await browser.close();
  server.close();
}
if (failure) {
  console.error(failure);
  process.exit(1);
}
console.log("web: passed");
