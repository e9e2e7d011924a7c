// Puts the page together in web/site, a folder that any static server can serve.
//
//   node web/page/build.mjs
//
// Needs web/package/build.mjs to have run.
import { createHash } from "node:crypto";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const site = join(here, "..", "site");
const dist = join(here, "..", "package", "dist");

/** The kernel packs of the gallery: those of the desktop program, an example, and their colors. */
async function packs() {
  const root = join(here, "..", "..");
  const folders = [join(root, "examples", "packs", "nbody")];
  for (const parent of [join(root, "desktop", "packs"), join(here, "packs")]) {
    for (const name of await readdir(parent)) folders.push(join(parent, name));
  }
  const found = {};
  for (const folder of folders) {
    const name = basename(folder);
    const file = `${name}.wgsl`;
    found[name] = {
      manifest: await readFile(join(folder, "pack.toml"), "utf8"),
      files: { [file]: await readFile(join(folder, file), "utf8") },
    };
  }
  return found;
}

await rm(site, { recursive: true, force: true });
await mkdir(site, { recursive: true });
for (const name of await readdir(here)) {
  if (name !== "build.mjs" && name !== "packs") await cp(join(here, name), join(site, name));
}
await writeFile(join(site, "packs.js"), `export const PACKS = ${JSON.stringify(await packs())};\n`);
await cp(dist, join(site, "warploom"), {
  recursive: true,
  filter: (path) => !path.endsWith(".d.ts"),
});

const hash = createHash("sha256");
const files = [];
const entries = await readdir(site, { recursive: true, withFileTypes: true });
for (const entry of entries) {
  const path = join(entry.parentPath ?? entry.path, entry.name);
  const name = path.slice(site.length + 1).split(sep).join("/");
  if (entry.isFile() && name !== "sw.js") files.push(name);
}
files.sort();
for (const name of files) {
  hash.update(name);
  hash.update(await readFile(join(site, name)));
}
// The larger module is for the playground and the gallery: stored when it is used, not by everybody's first visit.
const later = files.filter((name) => name.startsWith("warploom/full/"));
const first = files.filter((name) => !later.includes(name));
const worker = (await readFile(join(site, "sw.js"), "utf8"))
  .replace('"unbuilt"', JSON.stringify(hash.digest("hex").slice(0, 16)))
  .replace("FILES = []", `FILES = ${JSON.stringify(first)}`)
  .replace("LATER = []", `LATER = ${JSON.stringify(later)}`);
await writeFile(join(site, "sw.js"), worker);
console.log(`page: ${files.length} files in web/site`);
