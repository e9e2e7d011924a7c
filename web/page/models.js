// The dialog of models: choose, estimate, remove.
import { bytes } from "./format.js";
import { hideNotice, showError } from "./notice.js";

const $ = (id) => document.getElementById(id);

/** A model that can be loaded: the embedded one, an address or a file. */
export const EMBEDDED = { key: "embedded", name: "Built-in story model", embedded: true };

export class Models {
  #engine = null;
  #choose;
  #current = null;
  #estimating = null;

  /** `choose(wanted)` loads a model. */
  constructor(choose) {
    this.#choose = choose;
    $("model-button").addEventListener("click", () => this.open());
    $("models-close").addEventListener("click", () => $("models").close());
    $("models").addEventListener("click", (event) => {
      if (event.target === $("models")) $("models").close();
    });
    $("models").addEventListener("close", () => this.#estimating?.abort());
    $("address-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.estimate(fromAddress($("address").value.trim()));
    });
    $("pick").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => {
      const [file] = $("file").files;
      $("file").value = "";
      if (file) this.estimate(fromFile(file));
    });
    this.#dropping();
  }

  useEngine(engine) {
    this.#engine = engine;
  }

  setCurrent(wanted, text) {
    this.#current = wanted;
    $("model-name").textContent = text;
  }

  async open() {
    hideNotice();
    $("estimate").hidden = true;
    if (!$("models").open) $("models").showModal();
    await this.#list();
  }

  async #list() {
    const stored = this.#engine ? await this.#engine.models().catch(() => []) : [];
    const items = [EMBEDDED, ...stored.filter(({ url }) => url !== "").map(fromStored)];
    $("model-list").replaceChildren(...items.map((wanted) => this.#item(wanted)));
  }

  #item(wanted) {
    const item = document.createElement("li");
    const choose = document.createElement("button");
    choose.type = "button";
    choose.className = "choose";
    choose.disabled = !this.#engine;
    if (wanted.key === this.#current?.key) choose.setAttribute("aria-current", "true");
    choose.append(span(wanted.name, ""), span(subtitle(wanted), "sub"));
    choose.addEventListener("click", () => this.#load(wanted));
    item.append(choose);
    if (wanted.stored) {
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "quiet";
      remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove ${wanted.name}`);
      remove.addEventListener("click", () => this.#remove(wanted, remove));
      item.append(remove);
    }
    return item;
  }

  async #remove(wanted, button) {
    button.disabled = true;
    try {
      await this.#engine.remove(wanted.stored.name);
    } catch (error) {
      $("models").close();
      showError(error);
    }
    await this.#list();
    $("models-close").focus();
  }

  #load(wanted) {
    $("models").close();
    this.#choose(wanted);
  }

  /** Says what a model needs before anything is downloaded. */
  async estimate(wanted) {
    if (!this.#engine) return;
    if (!$("models").open) await this.open();
    this.#estimating?.abort();
    const stop = new AbortController();
    this.#estimating = stop;
    const box = $("estimate");
    box.hidden = false;
    box.replaceChildren(span("Reading the file's head…", ""));
    try {
      const found = await this.#engine.estimate(wanted.from, { signal: stop.signal });
      if (!stop.signal.aborted) {
        box.replaceChildren(...report(wanted, found, () => this.#load(wanted)));
        box.scrollIntoView({ block: "nearest" });
      }
    } catch (error) {
      if (stop.signal.aborted) return;
      if (error.details?.ranges === "none") {
        const load = document.createElement("button");
        load.type = "button";
        load.textContent = "Download and load";
        load.addEventListener("click", () => this.#load(wanted));
        box.replaceChildren(span(wanted.name, "name"), span(
          " This server sends only whole files, so what the model needs is not known before.", ""), load);
      } else {
        box.hidden = true;
        $("models").close();
        showError(error, { text: "Choose another", run: () => this.open() });
      }
    }
  }

  #dropping() {
    const hasFile = (event) => event.dataTransfer?.types.includes("Files");
    let depth = 0;
    const show = (visible) => { $("drop").hidden = !visible; };
    addEventListener("dragenter", (event) => {
      if (hasFile(event)) show((depth += 1) > 0);
    });
    addEventListener("dragleave", (event) => {
      if (hasFile(event)) show((depth -= 1) > 0);
    });
    addEventListener("dragover", (event) => {
      if (hasFile(event)) event.preventDefault();
    });
    addEventListener("drop", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      depth = 0;
      show(false);
      const [file] = event.dataTransfer.files;
      if (file) this.estimate(fromFile(file));
    });
  }
}

function nameOf(url) {
  try {
    return decodeURIComponent(new URL(url).pathname.split("/").findLast((part) => part) ?? url);
  } catch {
    return url;
  }
}

function fromAddress(url) {
  return { key: url, name: nameOf(url), from: url };
}

function fromStored(stored) {
  return { key: stored.url, name: nameOf(stored.url), from: stored.url, stored };
}

function fromFile(file) {
  return { key: `file:${file.name}:${file.size}`, name: file.name, from: file };
}

function subtitle(wanted) {
  if (wanted.embedded) return "Small and always there, also offline; for demos, not for facts";
  const { size, stored, complete } = wanted.stored;
  return complete ? `${bytes(size)}, stored in this browser`
    : `${bytes(stored)} of ${bytes(size)} downloaded; choose to go on`;
}

function span(text, className) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

function report(wanted, found, load) {
  const name = document.createElement("p");
  name.className = "name";
  name.textContent = wanted.name;
  const list = document.createElement("dl");
  const line = (term, text) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = term;
    dd.textContent = text;
    list.append(dt, dd);
  };
  const remaining = found.size - found.stored;
  const isFile = wanted.from instanceof Blob;
  line(isFile ? "File" : "Download", remaining > 0 && !isFile
    ? `${bytes(remaining)}${found.stored > 0 ? ` of ${bytes(found.size)}` : ""}`
    : isFile ? bytes(found.size) : "stored already");
  line("Weights", bytes(found.weights));
  line("Cache and working memory", bytes(found.cache + found.arena));
  if (found.available !== null) line("Device memory", bytes(found.available));
  const verdict = document.createElement("p");
  verdict.className = found.fits === false ? "tight" : "fits";
  verdict.textContent = found.fits === false ? "It may not fit on this device."
    : found.fits ? "It fits." : "";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = remaining > 0 && !isFile ? "Download and load" : "Load";
  button.addEventListener("click", load);
  return [name, list, ...(verdict.textContent ? [verdict] : []), button];
}
