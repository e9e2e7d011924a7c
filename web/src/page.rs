//! Checks that a page runs by itself, without an engine.

use warploom_llm::tokenizer;
use wasm_bindgen::prelude::{JsValue, wasm_bindgen};

use crate::error::to_js;

/// Runs the checks of the module `smoke` on the page's GPU.
///
/// Resolves to JSON: `{"device": profile, "checks": [{"name", "ok", "detail"}], "ok": bool}`.
///
/// # Errors
/// Rejects if the page has no GPU adapter or its device does not open.
#[wasm_bindgen]
pub async fn smoke() -> Result<String, JsValue> {
    crate::smoke::run().await.map_err(to_js)
}

/// Returns the words into which a pre-tokenizer splits a text: browsers do it with their own regular
/// expressions.
///
/// # Errors
/// Unsupported if no pre-tokenizer has this name.
#[wasm_bindgen]
pub fn words(pre: &str, text: &str) -> Result<Vec<String>, JsValue> {
    tokenizer::split_words(pre, text).map_err(to_js)
}
