// The conversation: shows messages, streams answers, measures them.
import { seconds, speed } from "./format.js";
import { showError } from "./notice.js";

const $ = (id) => document.getElementById(id);
const STORE = "warploom-conversation";

const SUGGESTIONS = [
  "Tell me a story about a brave mouse and a red ball.",
  "What is the capital of France?",
  "Who are you?",
];

export class Chat {
  #messages = [];
  #model = null;
  #sampling = {};
  #answer = null;
  #onLost;

  /** `onLost(error)` is called if the engine cannot go on. */
  constructor(onLost) {
    this.#onLost = onLost;
    $("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#answer) this.stop();
      else this.send($("prompt").value);
    });
    $("prompt").addEventListener("keydown", (event) => {
      // Enter ends a composition of an input method too.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!this.#answer) this.send($("prompt").value);
      } else if (event.key === "Escape" && this.#answer) {
        this.stop();
      }
    });
    $("prompt").addEventListener("input", () => this.#controls());
    $("new-chat").addEventListener("click", () => this.clear());
    for (const text of SUGGESTIONS) {
      const button = element("button", "", text);
      button.type = "button";
      button.addEventListener("click", () => this.send(text));
      const item = document.createElement("li");
      item.append(button);
      $("suggestions").append(item);
    }
    this.#restore();
    this.#controls();
  }

  get busy() {
    return this.#answer !== null;
  }

  use(model, sampling) {
    this.#model = model;
    this.#sampling = sampling;
    this.#controls();
  }

  stop() {
    this.#answer?.cancel();
  }

  clear() {
    this.stop();
    this.#messages = [];
    $("messages").replaceChildren();
    this.#save();
    this.#controls();
    $("prompt").focus();
  }

  async send(text) {
    text = text.trim();
    if (text === "" || !this.#model || this.#answer) return;
    $("prompt").value = "";
    this.#add({ role: "user", content: text });
    this.#save();
    await this.#write();
  }

  /** Answers the last message of the user again. */
  async retry() {
    if (this.#answer || !this.#model) return;
    if (this.#messages.at(-1)?.role === "assistant") {
      this.#messages.pop();
      $("messages").lastElementChild?.remove();
    }
    if (this.#messages.length > 0) await this.#write();
  }

  async #write() {
    const conversation = this.#messages;
    const asked = conversation.map(({ role, content }) => ({ role, content }));
    const begin = performance.now();
    const answer = this.#model.info.template
      ? this.#model.chat(asked, this.#sampling)
      : this.#model.generate(asked.at(-1).content, this.#sampling);
    this.#answer = answer;
    const message = { role: "assistant", content: "" };
    const shown = this.#add(message);
    shown.item.classList.add("writing");
    this.#controls();
    let first = null;
    let pieces = 0;
    let failure = null;
    try {
      for await (const piece of answer) {
        first ??= performance.now();
        pieces += 1;
        message.content += piece;
        append(shown.text, piece);
        const took = (performance.now() - first) / 1000;
        if (pieces > 1 && pieces % 8 === 0) shown.stats.textContent = speed((pieces - 1) / took);
      }
    } catch (error) {
      failure = error;
    }
    const end = performance.now();
    this.#answer = null;
    shown.item.classList.remove("writing");
    if (conversation === this.#messages) {
      await this.#finish({ answer, message, shown, begin, first, end, failure });
    }
    this.#controls();
  }

  async #finish({ answer, message, shown, begin, first, end, failure }) {
    if (failure) {
      if (message.content === "") {
        // The question stays, so that it can be asked again.
        this.#messages.pop();
        shown.item.remove();
      }
      if (["device-lost", "panic", "worker"].includes(failure.kind)) this.#onLost(failure);
      else if (failure.details?.context) {
        this.#takeBack();
        showError(failure);
      } else if (failure.kind !== "closed") {
        showError(failure, { text: "Try again", run: () => this.retry() });
      }
    } else {
      const result = await answer.result;
      message.stats = statistics(result, begin, first, end);
      shown.stats.textContent = message.stats;
      $("announcer").textContent = message.content;
    }
    this.#actions();
    this.#save();
  }

  /** The last message goes back into the field: as it is, no answer is possible. */
  #takeBack() {
    const { content } = this.#messages.pop();
    $("messages").lastElementChild?.remove();
    if ($("prompt").value === "") $("prompt").value = content;
  }

  #add(message) {
    this.#messages.push(message);
    const shown = show(message);
    $("messages").append(shown.item);
    this.#actions();
    this.#controls();
    $("main").scrollTo({ top: $("main").scrollHeight });
    return shown;
  }

  /** Only the last answer can be copied and asked for again. */
  #actions() {
    document.querySelector(".actions")?.remove();
    const last = this.#messages.at(-1);
    if (last?.role !== "assistant" || this.#answer) return;
    const actions = element("div", "actions");
    const copy = element("button", "quiet", "Copy");
    copy.type = "button";
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(last.content);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    const again = element("button", "quiet", "Write again");
    again.type = "button";
    again.addEventListener("click", () => this.retry());
    actions.append(copy, again);
    $("messages").lastElementChild?.append(actions);
  }

  #controls() {
    const writing = this.#answer !== null;
    $("welcome").hidden = this.#messages.length > 0;
    $("send").disabled = !writing && (!this.#model || $("prompt").value.trim() === "");
    $("send-icon").toggleAttribute("hidden", writing);
    $("stop-icon").toggleAttribute("hidden", !writing);
    $("send-label").textContent = writing ? "Stop" : "Send";
    $("new-chat").disabled = this.#messages.length === 0;
    for (const button of $("suggestions").querySelectorAll("button")) button.disabled = !this.#model;
  }

  #save() {
    try {
      sessionStorage.setItem(STORE, JSON.stringify(this.#messages));
    } catch {
      // Without storage the conversation lasts until the page is left.
    }
  }

  #restore() {
    try {
      for (const message of JSON.parse(sessionStorage.getItem(STORE) ?? "[]")) this.#add(message);
    } catch {
      sessionStorage.removeItem(STORE);
    }
  }
}

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function show({ role, content, stats }) {
  const item = element("li", `message ${role}`);
  item.append(element("span", "hidden", role === "user" ? "You:" : "Model:"));
  const text = element("div", "text", content);
  item.append(text);
  const line = element("p", "stats", stats);
  if (role === "assistant") item.append(line);
  return { item, text, stats: line };
}

/** Appends text, and keeps the end in view if it was. */
function append(text, piece) {
  const main = $("main");
  const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 60;
  text.append(piece);
  if (atEnd) main.scrollTo({ top: main.scrollHeight });
}

function statistics(result, begin, first, end) {
  const parts = [`${result.tokens} token${result.tokens === 1 ? "" : "s"}`];
  if (first !== null && result.tokens > 1 && end > first) {
    parts.push(speed((result.tokens - 1) / ((end - first) / 1000)));
  }
  if (first !== null) parts.push(`first after ${seconds((first - begin) / 1000)}`);
  if (result.finish === "cancelled") parts.push("stopped");
  if (result.finish === "length") parts.push("length limit");
  return parts.join(" · ");
}
