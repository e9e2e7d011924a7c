// All tests in a real Chromium, and one in Firefox.
//
//   node web/tests/run.mjs [arguments|compute|downloads|engine|example|firefox|gallery|memory|page|package ..]
//
// Needs web/build.sh, web/package/build.mjs and web/page/build.mjs to have run, the packages of this
// folder (npm install) and Chromium; CHROMIUM names another binary than /usr/bin/chromium.
// WEB_VERBOSE=1 prints the console of the pages.
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const ALL = ["arguments", "compute", "downloads", "engine", "example", "firefox", "gallery", "memory", "page", "package"];
const chosen = process.argv.slice(2);
const unknown = chosen.filter((name) => !ALL.includes(name));
if (unknown.length > 0) {
  console.error(`no tests "${unknown.join(", ")}"; there are ${ALL.join(", ")}`);
  process.exit(2);
}
let failed = false;
for (const name of chosen.length > 0 ? chosen : ALL) {
  const begin = Date.now();
  // Node applies this limit to a whole file too.
  const limit = process.env.WARPLOOM_TEST_ALL === "1" ? 7_200_000 : 900_000;
  const { status } = spawnSync(process.execPath,
    ["--test", "--test-reporter=spec", `--test-timeout=${limit}`, join(here, `${name}.mjs`)],
    { stdio: "inherit", cwd: here });
  failed ||= status !== 0;
  console.log(`web: ${name} ${status === 0 ? "passed" : "FAILED"} in ${((Date.now() - begin) / 1000).toFixed(1)} s`);
}
process.exit(failed ? 1 : 0);
