//! Files that JavaScript holds and reads synchronously.
//!
//! A handle of JavaScript belongs to one thread and is not `Send`, which readers must be. So the
//! handles are in a table of this thread, and a reader has the number of one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use js_sys::Uint8Array;
use warploom::{Error, Result};
use warploom_models::gguf::ReadAt;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::thrown_text;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = "
/** A file that is read synchronously. */
export interface Source {
  readonly name: string;
  readonly size: number;
  /** Fills `into` with the bytes from `offset` on, or throws. Must not call this module. */
  read(offset: number, into: Uint8Array): void;
}
";

#[wasm_bindgen]
extern "C" {
    /// A file that JavaScript holds.
    #[wasm_bindgen(typescript_type = "Source")]
    pub type Source;

    #[wasm_bindgen(method, getter)]
    fn name(this: &Source) -> String;
    #[wasm_bindgen(method, getter)]
    fn size(this: &Source) -> f64;
    #[wasm_bindgen(method, catch)]
    fn read(this: &Source, offset: f64, into: &Uint8Array) -> Result<(), JsValue>;
}

thread_local! {
    static SOURCES: RefCell<HashMap<u32, Source>> = RefCell::new(HashMap::new());
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

/// Reads a [`Source`]; the table of this thread keeps it until the reader is dropped.
pub(crate) struct Reader {
    id: u32,
    size: u64,
}

impl Reader {
    /// Registers a source; returns its reader and its name.
    ///
    /// # Errors
    /// Invalid if its size is not a whole number of bytes.
    pub(crate) fn new(source: Source) -> Result<(Reader, String)> {
        let (name, size) = (source.name(), source.size());
        // Up to 2^53, numbers of JavaScript are exact.
        if !(0.0..=9_007_199_254_740_992.0).contains(&size) || size.fract() != 0.0 {
            return Err(Error::invalid(format!("{name}: a size of {size} bytes")));
        }
        let id = NEXT.with(|next| next.replace(next.get().wrapping_add(1)));
        SOURCES.with_borrow_mut(|sources| sources.insert(id, source));
        Ok((Reader { id, size: size as u64 }, name))
    }
}

impl ReadAt for Reader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let io = |what: &str, why: String| Error::io(what, std::io::Error::other(why));
        SOURCES.with_borrow(|sources| {
            let Some(source) = sources.get(&self.id) else {
                return Err(io("cannot read the file", "another thread holds it".into()));
            };
            // SAFETY: the view is used only during the call, in which no code of this module runs,
            // so its memory neither moves nor is accessed otherwise.
            let view = unsafe { Uint8Array::view_mut_raw(into.as_mut_ptr(), into.len()) };
            let read = source.read(offset as f64, &view);
            read.map_err(|thrown| io("cannot read the file", thrown_text(&thrown)))
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // At the end of the thread the table may be gone, and the handles with it.
        let _ = SOURCES.try_with(|sources| sources.borrow_mut().remove(&self.id));
    }
}
