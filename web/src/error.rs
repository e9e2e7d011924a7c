//! Errors as `Error` objects of JavaScript, with a field `kind`.

use js_sys::Reflect;
use warploom::Error;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

/// Returns the name of an error's kind.
fn kind(error: &Error) -> &'static str {
    match error {
        e if e.is_unsupported() => "unsupported",
        e if e.is_bad_file() => "bad-file",
        e if e.is_out_of_memory() => "out-of-memory",
        e if e.is_device_lost() => "device-lost",
        e if e.is_device() => "device",
        e if e.is_compile() => "compile",
        e if e.is_io() => "io",
        _ => "invalid",
    }
}

/// Returns an `Error` object with this kind and message.
fn object(kind: &str, message: &str) -> JsValue {
    let error = js_sys::Error::new(message);
    // A new object takes every property.
    let _ = Reflect::set(&error, &"kind".into(), &kind.into());
    error.into()
}

/// Returns an error as an `Error` object; the message ends with that of its source.
pub(crate) fn to_js(error: Error) -> JsValue {
    let message = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    object(kind(&error), &message)
}

/// Returns the message of a value that JavaScript threw.
pub(crate) fn thrown_text(thrown: &JsValue) -> String {
    match thrown.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => thrown.as_string().unwrap_or_else(|| format!("{thrown:?}")),
    }
}

/// Makes a panic throw an `Error` of kind "panic" with its message, instead of a trap that has
/// none. In the middle of an async call it is an uncaught error of the worker, since the call's
/// promise is lost; the module cannot be used afterwards.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| {
        wasm_bindgen::throw_val(object("panic", &panic.to_string()));
    }));
}
