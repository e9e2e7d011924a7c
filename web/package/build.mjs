// Compiles the package to dist/.
//
//   node web/package/build.mjs
//
// Needs web/build.sh to have run, and npm's packages in this folder. dist/ needs no bundler: all its
// imports are relative.
import { spawnSync } from "node:child_process";
import { cp, mkdir, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const at = (...path) => join(here, ...path);
/** The modules: a folder of web/ and its name in dist/. */
const MODULES = [["pkg", "wasm"], ["pkg-full", "full"]];
const MODEL = "warploom-tiny-llama-Q4_K_M.gguf";

await rm(at("dist"), { recursive: true, force: true });
for (const [from, to] of MODULES) {
  const wasm = at("..", from);
  if (!(await stat(join(wasm, "warploom_web_bg.wasm")).catch(() => null))) {
    console.error(`${join(wasm, "warploom_web_bg.wasm")} is missing: run web/build.sh first`);
    process.exit(1);
  }
  await mkdir(at("dist", to), { recursive: true });
  for (const name of await readdir(wasm)) {
    if (/\.(js|d\.ts|wasm)$/.test(name)) {
      await cp(join(wasm, name), at("dist", to, name));
    }
  }
}
await mkdir(at("dist", "model"), { recursive: true });
await cp(at("..", "..", "models", MODEL), at("dist", "model", MODEL));

// SHA-256 of a stream: WebCrypto takes only whole messages. Copied because a page without a bundler
// cannot resolve a package's name inside a worker.
const hashes = dirname(createRequire(import.meta.url).resolve("@noble/hashes/sha2.js"));
await mkdir(at("dist", "vendor"), { recursive: true });
for (const name of ["sha2", "_md", "_u64", "utils"]) {
  await cp(join(hashes, `${name}.js`), at("dist", "vendor", `${name}.js`));
  await cp(join(hashes, `${name}.d.ts`), at("dist", "vendor", `${name}.d.ts`));
}
await cp(join(hashes, "LICENSE"), at("dist", "vendor", "LICENSE"));

for (const project of ["tsconfig.json", "tsconfig.worker.json"]) {
  const tsc = spawnSync(process.execPath,
    [at("node_modules", "typescript", "bin", "tsc"), "-p", at(project)], { stdio: "inherit" });
  if (tsc.status !== 0) {
    process.exit(tsc.status ?? 1);
  }
}

// A bare import would work with a bundler only.
for (const name of await readdir(at("dist"), { recursive: true })) {
  if (!name.endsWith(".js")) continue;
  const text = await readFile(at("dist", name), "utf8");
  const bare = /^\s*(?:import|export)\b[^;]*?\bfrom\s+"(?!\.)([^"]+)"/m.exec(text);
  if (bare) {
    console.error(`dist/${name} imports "${bare[1]}", which a page cannot resolve`);
    process.exit(1);
  }
}
for (const license of ["LICENSE-MIT", "LICENSE-APACHE"]) {
  await writeFile(at(license), await readFile(at("..", "..", license)));
}
console.log("package: built to web/package/dist");
