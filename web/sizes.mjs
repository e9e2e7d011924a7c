// Prints what a page downloads of each module, and ends with an error if the first is too large.
//
//   node web/sizes.mjs [--limit BYTES]
//
// The limit is for web/pkg, the module of language models with its JavaScript, with brotli and without
// its model file.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const [flag, text] = process.argv.slice(2);
const limit = flag === "--limit" ? Number(text) : Infinity;
if ((flag && flag !== "--limit") || Number.isNaN(limit)) {
  console.error("node web/sizes.mjs [--limit BYTES]");
  process.exit(2);
}

function packed(file) {
  const bytes = readFileSync(file);
  const { length } = brotliCompressSync(bytes, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    },
  });
  return { raw: bytes.length, brotli: length };
}

for (const folder of ["pkg", "pkg-full"]) {
  const wasm = packed(join(here, folder, "warploom_web_bg.wasm"));
  const glue = packed(join(here, folder, "warploom_web.js"));
  console.log(`web: ${folder}: ${wasm.raw} bytes of WebAssembly, ${wasm.brotli} with brotli; `
    + `${glue.raw} bytes of JavaScript, ${glue.brotli} with brotli`);
  const all = wasm.brotli + glue.brotli;
  if (folder === "pkg" && all > limit) {
    console.error(`web: ${folder} has ${all} bytes with brotli, the limit is ${limit}`);
    process.exitCode = 1;
  }
}
