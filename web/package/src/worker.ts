// The worker with the engine and language models.
import init, * as wasm from "./wasm/warploom_web.js";
import type { Backend } from "./worker/backend.js";
import { serve } from "./worker/serve.js";

// Bundlers find the files by these exact expressions.
serve({ ...wasm, default: init } as unknown as Backend, {
  wasm: new URL("./wasm/warploom_web_bg.wasm", import.meta.url),
  model: new URL("./model/warploom-tiny-llama-Q4_K_M.gguf", import.meta.url),
});
