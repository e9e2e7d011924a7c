// Errors as messages that say what to do.
import { bytes } from "./format.js";

const $ = (id) => document.getElementById(id);

/** What is said about an error of a kind: a title, and what the user can do. */
function words(error) {
  const { kind, details = {} } = error;
  switch (kind) {
    case "network":
      return details.status
        ? [`The server answered ${details.status}`,
          "Check the address. Files that need a login cannot be loaded from a page."]
        : ["The download was interrupted",
          "What was downloaded is kept. Check the connection and try again; some servers do not let "
          + "pages of other sites read their files, then download the file and choose it here."];
    case "disk-full":
      return ["The browser's storage is full",
        (details.needed ? `${bytes(details.needed)} more are needed. ` : "")
        + "Remove a stored model in the list of models, or free space on the disk."];
    case "bad-file":
      return ["This file is not a model that can be read",
        "Choose a GGUF file. If it is one, the download may have been damaged: load it again."];
    case "unsupported":
      return ["This model is not supported yet", "Try another model or another quantisation."];
    case "out-of-memory":
      return ["The device has not enough memory",
        (details.weights ? `The model needs ${bytes(details.weights + details.cache + details.arena)}. ` : "")
        + "Close other tabs, or choose a smaller model or a stronger quantisation, such as Q4."];
    case "device-lost":
      return ["The GPU was lost",
        "The driver was reset or the browser took the GPU away. The conversation is kept."];
    case "checksum":
      return ["The file is damaged", "It was deleted. Load it again."];
    case "in-use":
      return ["The file is in use",
        "It is being downloaded, or another tab has this model open. Stop that first."];
    case "io":
      return ["The file could not be read",
        "It may have been moved or changed since it was chosen. Choose it again."];
    case "panic":
    case "worker":
      return ["The engine stopped", "The conversation is kept. Start the engine again."];
    case "invalid":
      if (details.context) {
        return ["The message is too long for this model",
          `It takes ${details.tokens} tokens, the model reads ${details.context} at most. Shorten it, or `
          + "choose a model with a longer context."];
      }
      return ["That is not possible", error.message];
    default:
      return ["Something went wrong", "Try again. If it stays, load the page again."];
  }
}

let action = null;

export function hideNotice() {
  $("notice").hidden = true;
  action = null;
}

function show({ title, text, message, button, calm }) {
  $("notice-title").textContent = title;
  $("notice-text").textContent = text;
  $("notice-message").textContent = message;
  $("notice-details").open = false;
  $("notice-action").hidden = button === null;
  $("notice-action").textContent = button?.text ?? "";
  $("notice").classList.toggle("calm", calm);
  action = button?.run ?? null;
  $("notice").hidden = false;
  $("main").scrollTo({ top: 0 });
}

/** Shows an error; `button` is an optional `{ text, run }`. */
export function showError(error, button = null) {
  console.warn(error);
  const [title, text] = words(error);
  show({ title, text, message: error.message ?? String(error), button, calm: false });
}

/** Says that a lost device was opened again. */
export function showRecovered({ lost, device, tokens, seconds }) {
  show({
    title: "The GPU was lost, and opened again",
    text: `The answer goes on where it was, after ${seconds.toFixed(1)} s.`,
    message: `${lost}; now ${device}, ${tokens} tokens computed again`,
    button: null,
    calm: true,
  });
}

$("notice-close").addEventListener("click", hideNotice);
$("notice-action").addEventListener("click", () => {
  const run = action;
  hideNotice();
  run?.();
});
