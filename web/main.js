// Runs the checks in the page and shows them to a person. What a test needs is left in
// `window.warploom`: { done, error, report }.
import init, { smoke } from "./pkg/warploom_web.js";

const state = { done: false, error: null, report: null };
window.warploom = state;

function row(table, cells, className = "") {
  const line = table.insertRow();
  line.className = className;
  for (const cell of cells) {
    line.insertCell().textContent = cell;
  }
}

function show(report) {
  const status = document.getElementById("status");
  status.textContent = report.ok ? "Everything works." : "Something is wrong:";
  status.className = report.ok ? "good" : "bad";
  for (const check of report.checks) {
    const detail = typeof check.detail === "string" ? check.detail : JSON.stringify(check.detail);
    row(document.getElementById("checks"), [check.name, check.ok ? "ok" : "failed", detail],
      check.ok ? "good" : "bad");
  }
  for (const [name, value] of Object.entries(report.device)) {
    row(document.getElementById("device"), [name, String(value)]);
  }
}

try {
  await init();
  state.report = JSON.parse(await smoke());
  show(state.report);
} catch (error) {
  state.error = String(error);
  const status = document.getElementById("status");
  status.textContent = state.error;
  status.className = "bad";
} finally {
  state.done = true;
}
