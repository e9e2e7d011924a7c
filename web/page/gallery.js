// The gallery: runs a picture frame by frame and draws it from where it was computed.
import { open } from "./warploom/index.js";
import { deviceLine, seconds } from "./format.js";
import { SCENES, makeScene } from "./scenes.js";

const $ = (id) => document.getElementById(id);
const options = new URLSearchParams(location.search);

let engine = null;
let surface = null;
let scene = null;
let id = Object.hasOwn(SCENES, location.hash.slice(1)) ? location.hash.slice(1) : "fluid";
let picture = null;
let running = !matchMedia("(prefers-reduced-motion: reduce)").matches;
/** The frame or the change of the picture that goes on, after which the next begins. */
let last = Promise.resolve();
let reporting = null;
let took = 0;
let shown = { version: 0, steps: 0 };
/** Changes whenever a picture begins, so that nothing is said about the one before. */
let version = 0;

/** In cells of the picture. */
const pointer = { x: 0, y: 0, dx: 0, dy: 0, pressed: false };

// Frames.

/** Runs one piece of work at a time. */
function queue(work) {
  last = last.then(work).catch(fail);
  return last;
}

function fail(error) {
  console.warn(error);
  setRunning(false);
  $("problem").textContent = error.message;
  $("problem").hidden = false;
}

async function frame() {
  if (!scene) return;
  const begin = performance.now();
  const now = { ...pointer };
  [pointer.dx, pointer.dy] = [0, 0];
  const pixels = await scene.frame(now);
  if (!pixels) return;
  await surface.draw(pixels);
  pixels.dispose();
  report(performance.now() - begin);
}

/** Begins the picture again, or another one, after the frame that runs. */
function restart() {
  version += 1;
  $("stats").textContent = "";
  return queue(begin);
}

async function begin() {
  scene?.dispose();
  scene = null;
  $("problem").hidden = true;
  const now = version;
  scene = await makeScene(engine, id, picture);
  scene.version = now;
  [pointer.x, pointer.y] = [scene.width / 2, scene.height / 2];
  await frame();
}

let looping = false;
async function loop() {
  if (looping) return;
  looping = true;
  while (running) {
    await queue(frame);
    // Also waits while the page is hidden.
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  looping = false;
}

function setRunning(next) {
  running = next;
  $("run").textContent = running ? "Pause" : "Run";
  if (running && engine) loop();
}

/** Says how long a frame took, not more often than it can be read. */
function report(milliseconds) {
  took = milliseconds;
  // Of this frame: when the text is written, the next may be half done.
  shown = { version: scene.version, steps: scene.steps };
  reporting ??= setTimeout(() => {
    reporting = null;
    if (scene?.version !== version || shown.version !== version) return;
    const { width, height, count } = scene;
    const size = count ? `${count} points, ${width} × ${height} pixels` : `${width} × ${height} cells`;
    $("stats").textContent =
      `${deviceLine(engine.info)} · ${size} · step ${shown.steps} · ${seconds(took / 1000)} a frame`;
  }, running ? 250 : 0);
}

// The pointer and the keyboard.

function move(event) {
  if (!scene) return;
  const { left, top, width, height } = $("canvas").getBoundingClientRect();
  place((event.clientX - left) / width, (event.clientY - top) / height);
}

/** Moves the pointer to a place from 0 to 1. */
function place(x, y) {
  const at = [x * scene.width, y * scene.height];
  pointer.dx += at[0] - pointer.x;
  pointer.dy += at[1] - pointer.y;
  [pointer.x, pointer.y] = at;
}

function press(pressed) {
  pointer.pressed = pressed;
  if (pressed && scene?.zoom) zoom(0.5);
}

function zoom(factor) {
  scene.zoom(factor, pointer);
  if (!running) queue(frame);
}

const canvas = $("canvas");
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  $("cursor").hidden = true;
  move(event);
  // The way to the place is no push.
  [pointer.dx, pointer.dy] = [0, 0];
  press(true);
});
canvas.addEventListener("pointermove", move);
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => press(false));
canvas.addEventListener("wheel", (event) => {
  if (!scene?.zoom) return;
  event.preventDefault();
  move(event);
  zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2);
}, { passive: false });

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
canvas.addEventListener("keydown", (event) => {
  if (!scene) return;
  const way = ARROWS[event.key];
  if (way) {
    const at = [pointer.x / scene.width, pointer.y / scene.height];
    const [x, y] = at.map((now, i) => Math.max(0, Math.min(1, now + way[i] * 0.04)));
    place(x, y);
    $("cursor").hidden = false;
    $("cursor").style.left = `${100 * x}%`;
    $("cursor").style.top = `${100 * y}%`;
  } else if (event.key === " ") {
    if (!event.repeat) press(true);
  } else if (scene.zoom && (event.key === "+" || event.key === "-")) {
    zoom(event.key === "+" ? 1 / 1.2 : 1.2);
  } else {
    return;
  }
  event.preventDefault();
});
canvas.addEventListener("keyup", (event) => {
  if (event.key === " ") press(false);
});
canvas.addEventListener("blur", () => press(false));

// Controls.

$("run").addEventListener("click", () => setRunning(!running));
$("step").addEventListener("click", () => {
  setRunning(false);
  queue(frame);
});
$("reset").addEventListener("click", restart);

for (const [name, [title]] of Object.entries(SCENES)) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "scene", value: name, className: "hidden" });
  input.checked = name === id;
  input.addEventListener("change", () => choose(name));
  label.append(input, title);
  $("scenes").append(label);
}

function describe() {
  const [title, hint] = SCENES[id];
  $("hint").textContent = hint;
  canvas.setAttribute("aria-label", title);
  $("pick").hidden = id !== "photo";
}

function choose(name) {
  id = name;
  history.replaceState(null, "", `${location.pathname}${location.search}#${name}`);
  describe();
  if (surface) restart();
}

async function usePicture(file) {
  try {
    picture = await createImageBitmap(file);
  } catch {
    $("problem").textContent = `${file.name} is not a picture that this browser reads.`;
    $("problem").hidden = false;
    return;
  }
  document.querySelector('[value="photo"]').checked = true;
  choose("photo");
}

$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (file) usePicture(file);
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) usePicture(file);
});

describe();
if ("serviceWorker" in navigator && isSecureContext) {
  navigator.serviceWorker.register("./sw.js").catch((error) => console.warn(error));
}
try {
  engine = await open({ device: options.get("device") ?? "auto", full: true });
  surface = await engine.surface(canvas);
  $("drawn").textContent = surface.readback
    ? "Computed on the CPU, smaller and slower, and copied to the canvas."
      + (engine.info.fallback ? ` WebGPU is not used: ${engine.info.fallback}` : "")
    : "Drawn from the memory in which it is computed, without a copy to the page.";
  for (const button of ["run", "step", "reset"]) $(button).disabled = false;
  await restart();
  setRunning(running);
} catch (error) {
  fail(error);
}
