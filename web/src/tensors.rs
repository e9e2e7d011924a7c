//! Lazy tensors and kernel packs, by numbers that the page chooses.
//!
//! The page names each result before it exists, so that recording needs no answer: an operation
//! that fails leaves its error under the number of its result, and a read returns it.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;
use warploom::kernel::pack::Pack;
use warploom::tensor::{Axes, Operand, Scalar};
use warploom::webgpu::Provider;
use warploom::{DType, Error, Result, Tensor};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::{Engine, Shared};
use crate::error::to_js;
use crate::options;
use crate::pace::paced;

/// The tensors of an engine.
#[wasm_bindgen]
pub struct Tensors {
    runtime: Shared,
    held: RefCell<HashMap<u32, Held>>,
    packs: RefCell<HashMap<u32, Pack>>,
}

/// A tensor, or the error of the operation that should have made it.
type Held = std::result::Result<Tensor, JsValue>;

/// An operand of an operation.
#[derive(Deserialize)]
#[serde(untagged)]
enum Of {
    Tensor {
        tensor: u32,
    },
    /// A number that JSON lacks: "NaN", "Infinity" or "-Infinity".
    Float {
        float: String,
    },
    Bool(bool),
    Number(f64),
}

/// An operation as the page sends it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Recorded {
    op: String,
    of: Vec<Of>,
    /// Axes; all of them if it is absent.
    axes: Option<Vec<i64>>,
    /// Whether reduced axes are kept with size 1.
    keep: bool,
    /// A shape, a range or an order of axes.
    sizes: Vec<i64>,
    numbers: Vec<f64>,
    dtype: String,
    /// Number of a pack, and the values of its call.
    pack: u32,
    values: HashMap<String, f64>,
}

#[wasm_bindgen]
impl Engine {
    /// Returns the tensors of this engine, none at first.
    pub fn tensors(&self) -> Tensors {
        Tensors { runtime: self.shared(), held: RefCell::default(), packs: RefCell::default() }
    }
}

#[wasm_bindgen]
impl Tensors {
    /// Makes a tensor of little-endian words of `dtype`: "f32", "i32", "u32" or "bool".
    pub fn create(&self, to: u32, words: &[u32], dtype: &str, shape: &[f64]) {
        let runtime = self.runtime.borrow().clone();
        let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        let made = dtype_of(dtype).and_then(|dtype| match dtype {
            DType::F32 => {
                let values: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
                Ok(Tensor::from_slice(&runtime, &values, shape))
            }
            DType::I32 => {
                let values: Vec<i32> = words.iter().map(|word| word.cast_signed()).collect();
                Ok(Tensor::from_slice(&runtime, &values, shape))
            }
            DType::U32 => Ok(Tensor::from_slice(&runtime, words, shape)),
            DType::Bool => {
                let values: Vec<bool> = words.iter().map(|word| *word != 0).collect();
                Ok(Tensor::from_slice(&runtime, &values, shape))
            }
            other => Err(Error::invalid(format!("a tensor of {other}: cast one of f32"))),
        });
        self.held.borrow_mut().insert(to, made.map_err(to_js));
    }

    /// Records an operation that makes the tensors `to`: JSON, `{op, of, ..}`. If it fails, they
    /// have its error.
    pub fn record(&self, to: &[u32], operation: &str) {
        let parsed: Result<Recorded> = options::parse("an operation", operation);
        let made = parsed.map_err(to_js).and_then(|operation| self.apply(&operation));
        let mut held = self.held.borrow_mut();
        for (i, to) in to.iter().enumerate() {
            let tensor = match &made {
                Ok(tensors) => tensors.get(i).cloned().ok_or_else(|| {
                    let count = tensors.len();
                    to_js(Error::invalid(format!("result {i} of an operation with {count}")))
                }),
                Err(thrown) => Err(thrown.clone()),
            };
            held.insert(*to, tensor);
        }
    }

    /// Returns JSON, `{shape, dtype}`; runs nothing.
    ///
    /// # Errors
    /// The error of the operation that should have made the tensor.
    pub fn info(&self, id: u32) -> Result<String, JsValue> {
        let tensor = self.get(id)?;
        tensor.check().map_err(placeless)?;
        Ok(json!({ "shape": tensor.shape(), "dtype": tensor.dtype().name() }).to_string())
    }

    /// Runs what the tensor depends on; resolves to its bytes, little-endian in row-major order. A
    /// `bool` has four bytes; `f16` and `bf16` are converted to `f32`.
    ///
    /// # Errors
    /// As for `info`; errors of planning and of the device. After a lost device, tensors that are
    /// made later are on the device that was opened again.
    pub async fn read(&self, id: u32) -> Result<Vec<u8>, JsValue> {
        let tensor = self.get(id)?;
        let tensor = match tensor.dtype() {
            DType::F16 | DType::BF16 => tensor.cast(DType::F32),
            _ => tensor,
        };
        let read = paced(tensor.to_bytes_async()).await;
        if let Err(error) = &read
            && error.is_device_lost()
        {
            self.open_again().await;
        }
        read.map_err(placeless)
    }

    /// Runs what the tensors depend on, as one graph if they share operands, without a read. Their
    /// values stay on the device.
    ///
    /// # Errors
    /// As for `place`.
    pub async fn eval(&self, ids: Vec<u32>) -> Result<(), JsValue> {
        let tensors: Vec<Tensor> = ids.iter().map(|id| self.get(*id)).collect::<Result<_, _>>()?;
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let run = paced(Tensor::eval_async(&tensors)).await;
        if let Err(error) = &run
            && error.is_device_lost()
        {
            self.open_again().await;
        }
        run.map_err(placeless)
    }

    /// Runs what the tensor depends on, without a read. Resolves to where its elements are,
    /// `{device, buffer, offset, size}` with the objects of WebGPU, or to null if the device is not
    /// WebGPU's. Work that the caller submits in the same task reads the elements.
    ///
    /// # Errors
    /// As for `read`; on WebGPU, errors of running it are those of a later read.
    pub async fn place(&self, id: u32) -> Result<JsValue, JsValue> {
        let tensor = self.get(id)?;
        let placed = paced(placed(&tensor)).await;
        if let Err(error) = &placed
            && error.is_device_lost()
        {
            self.open_again().await;
        }
        placed.map_err(placeless)
    }

    /// Frees tensors.
    pub fn discard(&self, ids: &[u32]) {
        let mut held = self.held.borrow_mut();
        for id in ids {
            held.remove(id);
        }
    }

    /// Reads a kernel pack: its manifest, and JSON, `[[name, text]]`, of its files. Returns JSON:
    /// `{name, inputs: [{name, dtype}], outputs, values}`.
    ///
    /// # Errors
    /// Bad file or compile, with file and line.
    pub fn pack(&self, to: u32, manifest: &str, files: &str) -> Result<String, JsValue> {
        let read = || {
            let files: Vec<(String, String)> = options::parse("files of the pack", files)?;
            let files: Vec<(&str, &str)> =
                files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            Pack::from_sources(manifest, &files)
        };
        let pack = read().map_err(to_js)?;
        let names = |tensors: Vec<(String, DType)>| -> Vec<_> {
            let one =
                |(name, dtype): (String, DType)| json!({ "name": name, "dtype": dtype.name() });
            tensors.into_iter().map(one).collect()
        };
        let inputs = pack.inputs().map(|input| (input.name.to_owned(), input.dtype)).collect();
        let outputs = pack.outputs().map(|output| (output.name.to_owned(), output.dtype)).collect();
        let info = json!({
            "name": pack.name(),
            "inputs": names(inputs),
            "outputs": names(outputs),
            "values": pack.values(),
        });
        self.packs.borrow_mut().insert(to, pack);
        Ok(info.to_string())
    }

    /// Frees a pack; tensors made with it keep what they need.
    #[wasm_bindgen(js_name = discardPack)]
    pub fn discard_pack(&self, id: u32) {
        self.packs.borrow_mut().remove(&id);
    }
}

impl Tensors {
    fn get(&self, id: u32) -> Held {
        let gone = || Err(to_js(Error::invalid("the tensor is disposed")));
        self.held.borrow().get(&id).cloned().unwrap_or_else(gone)
    }

    /// Opens the lost device again for tensors that are made later.
    async fn open_again(&self) {
        let runtime = self.runtime.borrow().clone();
        // If this fails, so does the next read, with the same error.
        if let Ok(runtime) = runtime.reopen_async(warploom::runtime::Reopen::Same).await {
            self.runtime.replace(runtime);
        }
    }

    fn apply(&self, operation: &Recorded) -> std::result::Result<Vec<Tensor>, JsValue> {
        let mut operands = Vec::with_capacity(operation.of.len());
        for of in &operation.of {
            operands.push(match of {
                Of::Tensor { tensor } => Operand::Tensor(self.get(*tensor)?),
                Of::Float { float } => {
                    let value = float.parse().map_err(|_| {
                        to_js(Error::invalid(format!("the operand {float:?} is not a number")))
                    })?;
                    Operand::Scalar(Scalar::F32(value))
                }
                Of::Bool(value) => Operand::Scalar(Scalar::Bool(*value)),
                // An integer converts to every type of numbers.
                Of::Number(value) if value.fract() == 0.0 && value.abs() < 2_147_483_648.0 => {
                    Operand::Scalar(Scalar::I32(*value as i32))
                }
                Of::Number(value) => Operand::Scalar(Scalar::F32(*value as f32)),
            });
        }
        if operation.op == "pack" {
            return self.call(operation, &operands).map_err(to_js);
        }
        let runtime = self.runtime.borrow().clone();
        let first = operands.first();
        let made = match first {
            Some(Operand::Tensor(tensor)) => on_tensor(operation, tensor, &operands[1..]),
            _ => new(operation, &runtime, first),
        };
        made.map(|tensor| vec![tensor]).map_err(to_js)
    }

    fn call(&self, operation: &Recorded, operands: &[Operand]) -> Result<Vec<Tensor>> {
        let packs = self.packs.borrow();
        let pack = packs.get(&operation.pack);
        let pack = pack.ok_or_else(|| Error::invalid("the pack is disposed"))?;
        let tensors = operands.iter().map(|operand| tensor(operand, "pack"));
        let tensors: Vec<&Tensor> = tensors.collect::<Result<_>>()?;
        if tensors.is_empty() {
            let name = pack.name();
            return Err(Error::invalid(format!("pack {name} is called without operands")));
        }
        let values: Vec<(&str, f64)> =
            operation.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(Tensor::custom(pack, &tensors, &values))
    }
}

/// Runs a tensor and submits its work; returns the object of [`Tensors::place`].
async fn placed(tensor: &Tensor) -> Result<JsValue> {
    let runtime = tensor.runtime();
    let Some(gpu) = Provider::gpu_of(&**runtime.device()) else { return Ok(JsValue::NULL) };
    tensor.realize_async().await?;
    runtime.flush()?;
    let lost = || Error::device("the tensor has no memory on this device");
    let range = tensor.buffer()?.ok_or_else(lost)?;
    let buffer = Provider::buffer_of(&**runtime.device(), range).ok_or_else(lost)?;
    let (Some(device), Some(buffer)) = (gpu.as_webgpu(), buffer.as_webgpu()) else {
        return Err(lost());
    };
    let object = js_sys::Object::new();
    let (device, buffer): (&JsValue, &JsValue) = (device, buffer);
    let (offset, size) = ((range.offset as f64).into(), (range.bytes as f64).into());
    for (name, value) in
        [("device", device), ("buffer", buffer), ("offset", &offset), ("size", &size)]
    {
        // A new object takes every property.
        let _ = js_sys::Reflect::set(&object, &name.into(), value);
    }
    Ok(object.into())
}

/// Converts an error of a tensor. Its message has the place in the engine's source that recorded
/// the operation, which means nothing to a caller in JavaScript.
fn placeless(error: Error) -> JsValue {
    let thrown = to_js(error);
    let key = JsValue::from("message");
    let message = js_sys::Reflect::get(&thrown, &key).ok().and_then(|text| text.as_string());
    if let Some(message) = message {
        // A new error of JavaScript takes every property.
        let _ = js_sys::Reflect::set(&thrown, &key, &without_places(&message).into());
    }
    thrown
}

/// Removes every ` at src/file.rs:12:34` from a message.
fn without_places(message: &str) -> String {
    let mut words = message.split(' ').peekable();
    let mut out: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        let place = words.peek().filter(|_| word == "at").and_then(|next| next.split_once(".rs:"));
        match place {
            Some((_, numbers)) if numbers.starts_with(|c: char| c.is_ascii_digit()) => {
                words.next();
                // The colon that ends the place begins the reason.
                if let (true, Some(last)) = (numbers.ends_with(':'), out.pop()) {
                    out.extend([last, ":"]);
                }
            }
            _ => out.push(word),
        }
    }
    out.join(" ").replace(" : ", ": ")
}

fn dtype_of(name: &str) -> Result<DType> {
    let all = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::Bool];
    let found = all.into_iter().find(|dtype| dtype.name() == name);
    found.ok_or_else(|| {
        Error::invalid(format!("no element type {name:?}: f32, f16, bf16, i32, u32 or bool"))
    })
}

fn tensor<'a>(operand: &'a Operand, op: &str) -> Result<&'a Tensor> {
    match operand {
        Operand::Tensor(tensor) => Ok(tensor),
        Operand::Scalar(value) => {
            Err(Error::invalid(format!("{op}: the operand {value:?} must be a tensor")))
        }
    }
}

/// Returns the tensor of an operation without operands, or of one scalar.
fn new(
    operation: &Recorded,
    runtime: &warploom::Runtime,
    value: Option<&Operand>,
) -> Result<Tensor> {
    let shape = operation.sizes.clone();
    let number = |i: usize| operation.numbers.get(i).copied().unwrap_or_default();
    let seed = number(0) as u64;
    Ok(match (operation.op.as_str(), value) {
        ("full", Some(Operand::Scalar(value))) => {
            let dtype = match operation.dtype.as_str() {
                "" => DType::F32,
                name => dtype_of(name)?,
            };
            let exact = match (value, dtype) {
                (Scalar::I32(value), DType::F32) => Scalar::F32(*value as f32),
                (Scalar::I32(value), DType::U32) => {
                    Scalar::U32(u32::try_from(*value).map_err(|_| {
                        Error::invalid(format!("full: {value} is not a value of u32"))
                    })?)
                }
                (value, _) => *value,
            };
            Tensor::full(runtime, shape, exact).cast(dtype)
        }
        ("rand", None) => Tensor::rand(runtime, shape, seed),
        ("randn", None) => Tensor::randn(runtime, shape, seed),
        ("arange", None) => {
            Tensor::arange(runtime, number(0) as f32, number(1) as f32, number(2) as f32)
        }
        ("linspace", None) => {
            Tensor::linspace(runtime, number(0) as f32, number(1) as f32, number(2) as usize)
        }
        ("eye", None) => Tensor::eye(runtime, number(0) as usize),
        (other, _) => return Err(Error::invalid(format!("no operation {other:?} makes a tensor"))),
    })
}

/// Selects the method of an operation by its name.
macro_rules! methods {
    ($name:expr, $($method:ident)*) => {
        match $name {
            $(stringify!($method) => Some(Tensor::$method),)*
            _ => None,
        }
    };
}

/// Applies an operation to a tensor and the other operands.
fn on_tensor(operation: &Recorded, x: &Tensor, others: &[Operand]) -> Result<Tensor> {
    let name = operation.op.as_str();
    let unary: Option<fn(&Tensor) -> Tensor> = methods!(name,
        neg abs exp log sqrt rsqrt reciprocal sin cos tanh erf floor ceil round sigmoid silu gelu
        gelu_tanh relu logical_not square flatten t);
    if let (Some(apply), []) = (unary, others) {
        return Ok(apply(x));
    }
    let binary: Option<fn(&Tensor, Operand) -> Tensor> = methods!(name,
        add sub mul div rem pow minimum maximum eq ne lt le gt ge logical_and logical_or);
    if let (Some(apply), [other]) = (binary, others) {
        return Ok(apply(x, other.clone()));
    }
    let axes = || operation.axes.as_deref().map_or(Axes::from(..), Axes::from);
    let reduce: Option<fn(&Tensor, Axes) -> Tensor> = match operation.keep {
        true => match name {
            "sum" => Some(Tensor::sum_keep),
            "mean" => Some(Tensor::mean_keep),
            "prod" => Some(Tensor::prod_keep),
            "max" => Some(Tensor::max_keep),
            "min" => Some(Tensor::min_keep),
            _ => None,
        },
        false => methods!(name, sum mean prod max min var squeeze),
    };
    if let (Some(apply), []) = (reduce, others) {
        return Ok(apply(x, axes()));
    }
    let size = |i: usize| {
        let size = operation.sizes.get(i).copied();
        size.ok_or_else(|| Error::invalid(format!("{name}: argument {i} is missing")))
    };
    let axis = || Ok::<isize, Error>(size(0)? as isize);
    let along: Option<fn(&Tensor, isize) -> Tensor> =
        methods!(name, argmax argmin softmax log_softmax unsqueeze);
    if let (Some(apply), []) = (along, others) {
        return Ok(apply(x, axis()?));
    }
    let index = |i: usize| {
        usize::try_from(size(i)?).map_err(|_| Error::invalid(format!("{name}: a negative range")))
    };
    Ok(match (name, others) {
        ("clamp", [low, high]) => x.clamp(low.clone(), high.clone()),
        ("select", [a, b]) => x.select(a.clone(), b.clone()),
        ("cast", []) => x.cast(dtype_of(&operation.dtype)?),
        ("matmul", [other]) => x.matmul(tensor(other, name)?),
        ("linear", [weight]) => x.linear(tensor(weight, name)?),
        ("rms_norm", [weight]) => {
            let eps = operation.numbers.first().copied().unwrap_or(1e-5);
            x.rms_norm(tensor(weight, name)?, eps as f32)
        }
        ("layer_norm", [weight, bias]) => {
            let eps = operation.numbers.first().copied().unwrap_or(1e-5);
            x.layer_norm(tensor(weight, name)?, tensor(bias, name)?, eps as f32)
        }
        ("gather", [ids]) => x.gather(axis()?, tensor(ids, name)?),
        ("reshape", []) => x.reshape(operation.sizes.clone()),
        ("expand", []) => x.expand(operation.sizes.clone()),
        ("permute", []) => x.permute(operation.sizes.clone().as_slice()),
        ("transpose", []) => x.transpose(axis()?, size(1)? as isize),
        ("index", []) => x.index(axis()?, size(1)? as isize),
        ("narrow", []) => x.narrow(axis()?, index(1)?..index(2)?),
        ("concat" | "stack", others) => {
            let others = others.iter().map(|other| tensor(other, name));
            let others: Vec<&Tensor> = others.collect::<Result<_>>()?;
            match name {
                "concat" => x.concat(&others, axis()?),
                _ => x.stack(&others, axis()?),
            }
        }
        (_, others) => {
            let count = others.len() + 1;
            return Err(Error::invalid(format!("no operation {name:?} of {count} operands")));
        }
    })
}
