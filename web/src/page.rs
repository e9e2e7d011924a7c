//! What JavaScript sees.

use wasm_bindgen::prelude::{JsValue, wasm_bindgen};

/// Runs the checks of `smoke` on the page's GPU.
///
/// Resolves to JSON: `{"device": profile, "checks": [{"name", "ok", "detail"}], "ok": bool}`.
///
/// # Errors
/// Rejects with the message where no device opens at all.
#[wasm_bindgen]
pub async fn smoke() -> Result<String, JsValue> {
    crate::smoke::run().await.map_err(|error| JsValue::from_str(&error.to_string()))
}
