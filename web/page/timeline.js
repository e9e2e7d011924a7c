// The dialog of kernels: times each kernel of a token and shows its share.
const milliseconds = (time) => `${(1000 * time).toFixed(1)} ms`;
const $ = (id) => document.getElementById(id);
const RUNS = 9;
/** Colours of the largest shares; smaller ones share the last. */
const COLOURS = 7;

export class Timeline {
  #current;
  #number = 0;

  /** `current()` returns `{ model, busy }`. */
  constructor(current) {
    this.#current = current;
    $("kernels-button").addEventListener("click", () => {
      $("kernels").showModal();
      this.#time();
    });
    $("kernels-again").addEventListener("click", () => this.#time());
    $("kernels-close").addEventListener("click", () => $("kernels").close());
    $("kernels").addEventListener("click", (event) => {
      if (event.target === $("kernels")) $("kernels").close();
    });
    $("kernels").addEventListener("close", () => { this.#number += 1; });
  }

  available(available) {
    $("kernels-button").disabled = !available;
  }

  async #time() {
    const number = (this.#number += 1);
    const { model, busy } = this.#current();
    $("kernels-again").disabled = true;
    if (!model || busy) {
      $("kernels-status").textContent = "An answer is being written. Try again after it.";
      $("kernels-again").disabled = false;
      return;
    }
    $("kernels-status").textContent = "Timing the kernels of one token…";
    try {
      const explained = await model.explain({ runs: RUNS });
      if (number === this.#number) this.#show(explained);
    } catch (error) {
      if (number === this.#number) $("kernels-status").textContent = error.message;
    } finally {
      $("kernels-again").disabled = false;
    }
  }

  #show({ text, report }) {
    const steps = report.steps.map(({ label, engine, measured }) =>
      ({ name: named(label), engine, time: measured.median }));
    const total = steps.reduce((sum, { time }) => sum + time, 0);
    const rows = grouped(steps);
    const place = new Map(rows.map(({ name }, i) => [name, Math.min(i, COLOURS - 1)]));
    const whole = report.analysis.run.median;
    const alone = report.analysis.clock === "host"
      ? " Each kernel is timed alone, with its launch, by the browser's clock, whose steps may be 0.1 ms: this device has no timestamps."
      : "";
    $("kernels-status").textContent = `${steps.length} launches, ${milliseconds(total)} together`
      + `; a whole token takes ${milliseconds(whole)}.${alone}`;
    $("kernels-strip").replaceChildren(...steps.map(({ name, time }) => {
      const part = document.createElement("span");
      part.className = `c${place.get(name)}`;
      part.style.flexGrow = String(time / total);
      return part;
    }));
    $("kernels-rows").replaceChildren(...rows.map(({ name, engines, count, time }, i) => {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      const mark = document.createElement("span");
      mark.className = `mark c${Math.min(i, COLOURS - 1)}`;
      const engine = document.createElement("span");
      engine.className = "sub";
      engine.textContent = [...engines].join(", ");
      head.append(mark, name, engine);
      row.append(head, cell(String(count)), cell(milliseconds(time)), share(time / total));
      return row;
    }));
    $("kernels-text").textContent = text;
    $("kernels-result").hidden = false;
  }
}

/** The label without the number of the layer. */
const named = (label) => label.replace(/\bblk\.\d+\./g, "");

function grouped(steps) {
  const rows = new Map();
  for (const { name, engine, time } of steps) {
    const row = rows.get(name) ?? { name, engines: new Set(), count: 0, time: 0 };
    row.engines.add(engine);
    row.count += 1;
    row.time += time;
    rows.set(name, row);
  }
  return [...rows.values()].sort((a, b) => b.time - a.time);
}

function cell(text) {
  const made = document.createElement("td");
  made.className = "number";
  made.textContent = text;
  return made;
}

function share(part) {
  const made = cell(`${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`);
  made.style.setProperty("--share", `${(100 * part).toFixed(1)}%`);
  made.classList.add("share");
  return made;
}

