// The kernel playground: checks WGSL as it is typed, runs it frame by frame, draws its pixels.
import { open } from "./warploom/index.js";
import { deviceLine, seconds } from "./format.js";
import { EXAMPLES } from "./kernels.js";

const $ = (id) => document.getElementById(id);
const FILE = "kernel.wgsl";
/** Milliseconds without a key before the text is checked. */
const PAUSE = 200;
/** The interpreter of the CPU runs about a million invocations in some seconds. */
const SIZE_ON_CPU = "64";

let engine = null;
let pack = null;
let pixels = null;
let frame = 0;
let begin = 0;
let running = true;
let drawing = false;
let checks = 0;
let problem = null;

// The editor.

const code = $("code");

function gutter() {
  const count = code.value.split("\n").length;
  const lines = Array.from({ length: count }, (_, i) => {
    const line = document.createElement(problem?.line === i + 1 ? "b" : "span");
    line.textContent = problem?.line === i + 1 ? String(i + 1) : `${i + 1}\n`;
    return line;
  });
  $("gutter").replaceChildren(...lines);
  $("gutter").scrollTop = code.scrollTop;
}

function say(text, kind, found = null) {
  problem = found;
  $("problem-text").textContent = text;
  $("problem").className = `problem ${kind}`;
  $("problem-go").hidden = found === null;
  if (found) code.setAttribute("aria-invalid", "true");
  else code.removeAttribute("aria-invalid");
  gutter();
}

function showProblem(error) {
  const at = new RegExp(`${FILE.replace(".", "\\.")}:(\\d+):(\\d+): ?`).exec(error.message);
  const text = error.message.replace(/^.*?kernel\.wgsl:\d+:\d+: ?/s, "");
  say(at ? `Line ${at[1]}: ${text}` : error.message, "bad",
    at ? { line: Number(at[1]), column: Number(at[2]) } : null);
}

function goToProblem() {
  const lines = code.value.split("\n");
  const before = lines.slice(0, problem.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const at = before + Math.min(problem.column - 1, (lines[problem.line - 1] ?? "").length);
  code.focus();
  code.setSelectionRange(at, at + 1);
  code.scrollTop = (problem.line - 4) * parseFloat(getComputedStyle(code).lineHeight);
}

let timer = 0;
code.addEventListener("input", () => {
  gutter();
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
  $("example").value = "";
});
code.addEventListener("scroll", () => { $("gutter").scrollTop = code.scrollTop; });
$("problem-go").addEventListener("click", goToProblem);

// The kernel.

/** The manifest for a text: a kernel that declares `before` reads the frame before from there. */
function manifest(text) {
  const own = /var\s*<\s*storage[^>]*>\s*before\b/.test(text);
  return `name = "kernel"\ninputs = ["${own ? "before" : "pixels"}: u32[height, width]"]
outputs = ["pixels: u32[height, width]"]
threads = ["width", "height"]
`;
}

async function check() {
  if (!engine) return;
  const number = (checks += 1);
  const text = code.value;
  try {
    const next = await engine.pack({ manifest: manifest(text), files: { [FILE]: text } });
    if (number !== checks) {
      next.dispose();
      return;
    }
    pack?.dispose();
    pack = next;
    say("The kernel is valid.", "good");
    if (running) draw();
    else await once();
  } catch (error) {
    if (number === checks) showProblem(error);
  }
}

/** Random black and white, of which kernels with a memory grow. */
function noise(size) {
  const words = new Uint32Array(size * size);
  let state = 7;
  for (let i = 0; i < words.length; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    words[i] = state > 0xb0000000 ? 0xffffffff : 0xff000000;
  }
  return words;
}

function reset() {
  const size = Number($("size").value);
  $("canvas").width = size;
  $("canvas").height = size;
  pixels?.dispose();
  pixels = engine.tensor(noise(size), [size, size]);
  frame = 0;
  begin = performance.now();
}

/** Computes and draws one frame. */
async function once() {
  if (!pack || drawing) return;
  drawing = true;
  const size = $("canvas").width;
  const [now, kernel] = [performance.now(), pack];
  try {
    const all = { time: (now - begin) / 1000, frame };
    const known = Object.entries(all).filter(([name]) => kernel.info.values.includes(name));
    const [next] = kernel.run([pixels], Object.fromEntries(known));
    const words = await next.data();
    if (words.length === size * size && size === $("canvas").width) {
      pixels.dispose();
      pixels = next;
      const bytes = new Uint8ClampedArray(words.buffer, words.byteOffset, 4 * words.length);
      $("canvas").getContext("2d").putImageData(new ImageData(bytes, size, size), 0, 0);
      frame += 1;
      report(performance.now() - now);
    }
  } catch (error) {
    if (kernel === pack) {
      setRunning(false);
      showProblem(error);
    }
  } finally {
    drawing = false;
  }
}

let looping = false;
async function draw() {
  if (looping) return;
  looping = true;
  while (running && pack && problem === null) {
    await once();
    // Also waits while the page is hidden.
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  looping = false;
}

let shown = 0;
function report(milliseconds) {
  if (running && performance.now() - shown < 500) return;
  shown = performance.now();
  $("stats").textContent = `${deviceLine(engine.info)} · frame ${frame} · ${seconds(milliseconds / 1000)} a frame`;
}

function setRunning(next) {
  running = next;
  $("run").textContent = running ? "Pause" : "Run";
  if (running && engine) draw();
}

$("run").addEventListener("click", () => setRunning(!running));
$("step").addEventListener("click", async () => {
  setRunning(false);
  await once();
});
$("reset").addEventListener("click", async () => {
  reset();
  if (!running) await once();
});
$("size").addEventListener("change", async () => {
  reset();
  if (!running) await once();
});

// Examples and links.

for (const name of ["", ...EXAMPLES.map(([name]) => name)]) {
  const option = document.createElement("option");
  option.value = name;
  option.textContent = name || "Your own";
  option.hidden = name === "";
  $("example").append(option);
}
$("example").addEventListener("change", () => {
  const found = EXAMPLES.find(([name]) => name === $("example").value);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  use(found[1]);
});

function use(text) {
  code.value = text;
  code.scrollTop = 0;
  gutter();
  if (engine) {
    reset();
    check();
  }
}

async function through(bytes, stream) {
  const out = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(out).arrayBuffer());
}

async function toFragment(text) {
  const packed = await through(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  const letters = btoa(String.fromCharCode(...packed));
  return `#wgsl=${letters.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/** The kernel of a link, or null if there is none or it is damaged. */
async function fromFragment() {
  const [, letters] = /^#wgsl=([\w-]+)$/.exec(location.hash) ?? [];
  if (!letters) return null;
  try {
    const binary = atob(letters.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    return new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
  } catch {
    return null;
  }
}

$("share").addEventListener("click", async () => {
  history.replaceState(null, "", await toFragment(code.value));
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    said = "In the address";
  }
  $("share-text").textContent = said;
  $("share").setAttribute("aria-label", `Share: ${said}`);
  setTimeout(() => {
    $("share-text").textContent = "Share";
    $("share").removeAttribute("aria-label");
  }, 2000);
});
addEventListener("hashchange", async () => {
  const text = await fromFragment();
  if (text !== null) {
    $("example").value = "";
    use(text);
  }
});

const linked = await fromFragment();
$("example").value = linked === null ? EXAMPLES[0][0] : "";
use(linked ?? EXAMPLES[0][1]);
if (matchMedia("(prefers-reduced-motion: reduce)").matches) setRunning(false);
if ("serviceWorker" in navigator && isSecureContext) {
  navigator.serviceWorker.register("./sw.js").catch((error) => console.warn(error));
}
try {
  engine = await open({ device: new URLSearchParams(location.search).get("device") ?? "auto", full: true });
  if (engine.info.provider === "cpu") $("size").value = SIZE_ON_CPU;
  for (const id of ["run", "step", "reset"]) $(id).disabled = false;
  reset();
  await check();
} catch (error) {
  say(error.message, "bad");
}
