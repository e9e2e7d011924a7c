//! Subgroups in a browser, for which wgpu 30 has no feature there.
//!
//! wgpu's call for a device passes its descriptor to `GPUAdapter.requestDevice`. While it does, that
//! method also asks for subgroups, if the adapter has them; the device knows their sizes.

use js_sys::{Array, Function, Object, Promise, Proxy, Reflect};
use wasm_bindgen::prelude::{Closure, JsValue};
use wasm_bindgen::{JsCast, intern};

const FEATURE: &str = "subgroups";
const METHOD: &str = "requestDevice";

/// Runs `request`, which makes wgpu's call for a device, so that the device has subgroups if its
/// adapter has them.
pub(super) fn with_subgroups<T>(request: impl FnOnce() -> T) -> T {
    let class = Reflect::get(&js_sys::global(), &"GPUAdapter".into());
    let prototype = class.and_then(|class| Reflect::get(&class, &"prototype".into()));
    let Ok(prototype) = prototype.and_then(|prototype| prototype.dyn_into::<Object>()) else {
        return request();
    };
    let Some(original) = function(&prototype, METHOD) else { return request() };
    let apply = Closure::<dyn FnMut(JsValue, JsValue, JsValue) -> JsValue>::new(
        |method: JsValue, adapter: JsValue, arguments: JsValue| {
            let arguments: Array = arguments.unchecked_into();
            if has_feature(&adapter) {
                ask(&arguments.get(0));
            }
            let called = method.unchecked_ref::<Function>().apply(&adapter, &arguments);
            called.unwrap_or_else(|thrown| Promise::reject(&thrown).into())
        },
    );
    let handler = Object::new();
    let _ = Reflect::set(&handler, &"apply".into(), apply.as_ref());
    let _ = Reflect::set(&prototype, &METHOD.into(), &Proxy::new(&original, &handler));
    let requested = request();
    let _ = Reflect::set(&prototype, &METHOD.into(), &original);
    requested
}

/// Adds subgroups to the features of a device's descriptor.
fn ask(descriptor: &JsValue) {
    let name = JsValue::from("requiredFeatures");
    if let Ok(features) = Reflect::get(descriptor, &name) {
        let features = if features.is_object() { Array::from(&features) } else { Array::new() };
        features.push(&intern(FEATURE).into());
        let _ = Reflect::set(descriptor, &name, &features);
    }
}

/// Returns the sizes of the smallest and the largest subgroup of a device that has them.
pub(super) fn sizes(gpu: &wgpu::Device) -> Option<[u32; 2]> {
    let device = gpu.as_webgpu()?;
    if !has_feature(device) {
        return None;
    }
    let info = Reflect::get(device, &"adapterInfo".into()).ok()?;
    let size = |name: &str| Some(Reflect::get(&info, &name.into()).ok()?.as_f64()? as u32);
    let sizes = [size("subgroupMinSize")?, size("subgroupMaxSize")?];
    sizes.iter().all(|size| size.is_power_of_two()).then_some(sizes)
}

/// Returns whether an adapter or a device has the feature.
fn has_feature(object: &JsValue) -> bool {
    let Ok(features) = Reflect::get(object, &"features".into()) else { return false };
    let has = function(&features, "has").and_then(|has| has.call1(&features, &FEATURE.into()).ok());
    has.is_some_and(|has| has.is_truthy())
}

fn function(object: &JsValue, name: &str) -> Option<Function> {
    Reflect::get(object, &name.into()).ok()?.dyn_into().ok()
}
