import { type Engine, type Message, type Model, WarploomError, open } from "warploom";

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const state = find<HTMLParagraphElement>("state");
const field = find<HTMLInputElement>("message");
const send = find<HTMLButtonElement>("send");

/** "?model=https://…/model.gguf" loads another model than the one of the package. */
async function load(engine: Engine): Promise<Model> {
  const url = new URLSearchParams(location.search).get("model");
  const onProgress = ({ phase, done, total }: { phase: string; done: number; total: number | null }) => {
    state.textContent = `${phase} ${done} of ${total ?? "?"} bytes`;
  };
  return url ? await engine.load(url, { onProgress }) : await engine.embedded({ onProgress });
}

function show(message: Message): HTMLElement {
  const item = document.createElement("li");
  const text = document.createElement("span");
  text.textContent = message.content;
  item.append(`${message.role}: `, text);
  find("messages").append(item);
  return text;
}

async function answer(model: Model, messages: Message[]): Promise<void> {
  const text = show({ role: "assistant", content: "" });
  const generation = model.chat(messages, { maxTokens: 200, temperature: 0 });
  for await (const piece of generation) text.append(piece);
  const { tokens, seconds, text: content } = await generation.result;
  messages.push({ role: "assistant", content });
  state.textContent = `${tokens} tokens in ${seconds.toFixed(1)} s`;
}

try {
  const engine = await open();
  const model = await load(engine);
  const messages: Message[] = [];
  state.textContent = `Ready: ${model.info.name} on ${engine.info.provider}`;
  send.disabled = false;
  find("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled || field.value === "") return;
    send.disabled = true;
    const message: Message = { role: "user", content: field.value };
    field.value = "";
    messages.push(message);
    show(message);
    await answer(model, messages);
    send.disabled = false;
  });
} catch (error) {
  state.textContent = error instanceof WarploomError ? `${error.kind}: ${error.message}` : String(error);
}
