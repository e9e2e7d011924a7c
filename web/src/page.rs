//! Functions exported to JavaScript.

use wasm_bindgen::prelude::{JsValue, wasm_bindgen};

/// Runs the checks of the module `smoke` on the page's GPU.
///
/// Resolves to JSON: `{"device": profile, "checks": [{"name", "ok", "detail"}], "ok": bool}`.
///
/// # Errors
/// Rejects with the error message if the page has no GPU adapter or its device does not open.
#[wasm_bindgen]
pub async fn smoke() -> Result<String, JsValue> {
    crate::smoke::run().await.map_err(|error| JsValue::from_str(&error.to_string()))
}
