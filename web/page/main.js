// The page: opens the engine in its worker and connects the parts.
import { open } from "./warploom/index.js";
import { Chat } from "./chat.js";
import { bytes, deviceLine } from "./format.js";
import { EMBEDDED, Models } from "./models.js";
import { hideNotice, showError, showRecovered } from "./notice.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const PHASES = {
  waiting: "Another tab is downloading this model",
  download: "Downloading",
  check: "Checking the file",
  load: "Loading onto the device",
};
/** As the built-in model's description recommends; such a small model repeats itself otherwise. */
const EMBEDDED_SAMPLING = { temperature: 0.7, minP: 0.05, repeatPenalty: 1.15 };
const SAMPLING = { temperature: 0.7, minP: 0.05 };

let engine = null;
let model = null;
let wantedNow = EMBEDDED;
let loading = null;

const chat = new Chat((error) => {
  showError(error, { text: "Start again", run: () => start(wantedNow) });
});
const models = new Models(load);
const timeline = new Timeline(() => ({ model, busy: chat.busy }));

async function start(wanted) {
  chat.use(null, {});
  await engine?.close();
  engine = null;
  model = null;
  timeline.available(false);
  models.useEngine(null);
  models.setCurrent(null, "Opening the device…");
  try {
    // "?device=cpu" compares the devices, as "?floor" does the weakest GPU.
    const options = new URLSearchParams(location.search);
    engine = await open({
      device: options.get("device") ?? "auto",
      ...(options.has("floor") ? { floor: true } : {}),
    });
    engine.addEventListener("recovered", ({ recovered }) => showRecovered(recovered));
    models.useEngine(engine);
    describe();
    await load(wanted);
  } catch (error) {
    models.setCurrent(null, "No device");
    showError(error, { text: "Try again", run: () => start(wanted) });
  }
}

async function load(wanted) {
  if (!engine) return;
  loading?.abort();
  const stop = new AbortController();
  loading = stop;
  hideNotice();
  chat.stop();
  chat.use(null, {});
  models.setCurrent(wanted, wanted.name);
  const before = model;
  model = null;
  timeline.available(false);
  describe();
  try {
    await before?.close();
    const options = { signal: stop.signal, onProgress: progress };
    const next = wanted.embedded
      ? await engine.embedded(options) : await engine.load(wanted.from, options);
    if (stop.signal.aborted) {
      await next.close();
      return;
    }
    model = next;
    wantedNow = wanted;
    if (!wanted.embedded) void navigator.storage?.persist?.();
    chat.use(model, wanted.embedded ? EMBEDDED_SAMPLING : SAMPLING);
    timeline.available(true);
    describe();
    $("announcer").textContent = `${wanted.name} is ready`;
  } catch (error) {
    if (loading === stop) failed(wanted, error);
  } finally {
    if (loading === stop) {
      loading = null;
      $("progress").hidden = true;
    }
  }
}

function failed(wanted, error) {
  models.setCurrent(null, "Choose a model");
  describe();
  if (error.kind === "cancelled") {
    if (!wanted.embedded) load(EMBEDDED);
    return;
  }
  const restart = ["device-lost", "panic", "worker"].includes(error.kind);
  showError(error, restart ? { text: "Start again", run: () => start(EMBEDDED) }
    : wanted.embedded ? { text: "Try again", run: () => load(wanted) }
    : { text: "Use the built-in model", run: () => load(EMBEDDED) });
}

function progress({ phase, done, total }) {
  // The built-in model takes a moment only.
  $("progress").hidden = false;
  $("progress-text").textContent = PHASES[phase]
    + (phase === "waiting" ? "" : ` ${bytes(done)}${total ? ` of ${bytes(total)}` : ""}`);
  const bar = $("progress-bar");
  if (total) bar.value = done / total;
  else bar.removeAttribute("value");
}

function describe() {
  const parts = [deviceLine(engine.info)];
  if (model) {
    const { weights, cache } = model.info;
    parts.push(`${bytes(weights)} weights, ${bytes(cache)} KV cache`);
  }
  $("device").textContent = parts.join(" · ");
  $("fallback").textContent = engine.info.fallback
    ? `WebGPU is not used: ${engine.info.fallback}` : "";
}

$("progress-cancel").addEventListener("click", () => loading?.abort());

if ("serviceWorker" in navigator && isSecureContext) {
  navigator.serviceWorker.register("./sw.js").catch((error) => console.warn(error));
}

await start(EMBEDDED);
