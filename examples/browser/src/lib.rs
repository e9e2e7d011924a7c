//! The largest eigenvalue of a matrix, computed in a web page by power iteration. `index.html` is
//! the page, `README.md` has the commands.
#![cfg(target_arch = "wasm32")]

use warploom::{Runtime, Tensor};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// Returns the largest eigenvalue of the symmetric matrix with the elements `1 / (1 + |i - j|)`, and
/// the device that computed it. `device` is "auto", "webgpu" or "cpu".
///
/// # Errors
/// Rejects if the browser has no such device; errors of the device.
#[wasm_bindgen]
pub async fn eigenvalue(device: String, n: usize, steps: usize) -> Result<Vec<String>, JsError> {
    let (value, device) = power_iteration(&device, n, steps).await?;
    Ok(vec![value.to_string(), device])
}

async fn power_iteration(device: &str, n: usize, steps: usize) -> warploom::Result<(f32, String)> {
    let runtime = Runtime::builder().device(device).build_async().await?;
    let at = Tensor::arange(&runtime, 0.0, n as f32, 1.0);
    let matrix = ((at.unsqueeze(0) - at.unsqueeze(1)).abs() + 1.0).reciprocal();
    // Nothing runs here: operations are recorded.
    let mut x = Tensor::ones(&runtime, [n, 1]);
    for _ in 0..steps {
        let next = matrix.matmul(&x);
        x = &next / next.square().sum(..).sqrt();
    }
    let value = x.t().matmul(matrix.matmul(&x));
    // Plans the graph, compiles its kernels and runs it.
    let value: f32 = value.item_async().await?;
    Ok((value, runtime.device().profile().id()))
}
