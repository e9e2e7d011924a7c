//! Pipelines that a browser compiles in parallel.
//!
//! wgpu only knows the call that returns a pipeline at once; browsers compile those one after the
//! other, and the first use waits. `createComputePipelineAsync` compiles on the browser's threads.
//! It takes the same descriptor, which wgpu makes of its own types: so wgpu's call is made twice,
//! first to pass its descriptor to the other method, then to take what that one has made.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::{Closure, JsValue};
use wasm_bindgen_futures::JsFuture;

const CREATE: &str = "createComputePipeline";
const CREATE_ASYNC: &str = "createComputePipelineAsync";

/// A pipeline that the browser compiles.
pub(super) struct Request(std::result::Result<JsFuture, String>);

/// A pipeline that the browser has compiled.
pub(super) struct Made(JsValue);

impl Request {
    /// Requests the pipeline that `create` would create on the device.
    pub(super) fn begin(
        gpu: &wgpu::Device,
        create: impl FnOnce() -> wgpu::ComputePipeline,
    ) -> Request {
        let Some(device) = gpu.as_webgpu() else {
            return Request(Err("the device is not one of the browser".into()));
        };
        let promise = Rc::new(RefCell::new(Err(JsValue::from("no pipeline was requested"))));
        let (object, asked) = (device.clone(), Rc::clone(&promise));
        let tap = Closure::<dyn FnMut(JsValue) -> JsValue>::new(move |descriptor: JsValue| {
            *asked.borrow_mut() = Reflect::get(&object, &CREATE_ASYNC.into())
                .and_then(|create| create.dyn_into::<Function>())
                .and_then(|create| create.call1(&object, &descriptor))
                .and_then(|promise| promise.dyn_into::<Promise>());
            // wgpu keeps it and does not look inside.
            Object::new().into()
        });
        drop(with_method(device, &tap, create));
        drop(tap);
        let promise = promise.replace(Err(JsValue::UNDEFINED));
        Request(promise.map(JsFuture::from).map_err(|thrown| text(&thrown)))
    }

    /// Waits for the compiler; returns its message if it failed.
    pub(super) async fn end(self) -> std::result::Result<Made, String> {
        self.0?.await.map(Made).map_err(|thrown| text(&thrown))
    }
}

impl Made {
    /// Returns this pipeline in the type of `create`, which would create it again.
    pub(super) fn instead(
        self,
        gpu: &wgpu::Device,
        create: impl FnOnce() -> wgpu::ComputePipeline,
    ) -> wgpu::ComputePipeline {
        let Some(device) = gpu.as_webgpu() else { return create() };
        let give = Closure::<dyn FnMut(JsValue) -> JsValue>::new(move |_| self.0.clone());
        with_method(device, &give, create)
    }
}

/// Runs `run` while the device creates pipelines by `method`.
fn with_method<T>(
    device: &JsValue,
    method: &Closure<dyn FnMut(JsValue) -> JsValue>,
    run: impl FnOnce() -> T,
) -> T {
    let (object, name) = (device.unchecked_ref::<Object>(), JsValue::from(CREATE));
    // A device takes every property. Its own hides that of its class until it is deleted.
    let _ = Reflect::set(object, &name, method.as_ref());
    let result = run();
    let _ = Reflect::delete_property(object, &name);
    result
}

fn text(thrown: &JsValue) -> String {
    let message = Reflect::get(thrown, &"message".into()).ok().and_then(|text| text.as_string());
    message.or_else(|| thrown.as_string()).unwrap_or_else(|| format!("{thrown:?}"))
}
