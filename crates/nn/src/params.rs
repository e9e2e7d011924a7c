//! The parameters of a network by name, and safetensors files of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use warploom::tensor::Var;
use warploom::{DType, Error, Result, Runtime, Tensor};

use crate::Init;

/// Named parameters of a network, and a position among the names: layers take a `Params` that
/// [`Params::at`] made, and add theirs below it. A clone is another handle to the same parameters.
///
/// A name is a path with dots, such as `layers.0.attention.q.weight`.
#[derive(Clone)]
pub struct Params {
    shared: Arc<Shared>,
    prefix: String,
}

struct Shared {
    runtime: Runtime,
    seed: u64,
    vars: Mutex<BTreeMap<String, Var>>,
}

impl Params {
    /// Creates an empty set. Initial values depend on the seed and the name of a parameter alone.
    pub fn new(runtime: &Runtime, seed: u64) -> Params {
        let vars = Mutex::new(BTreeMap::new());
        let shared = Shared { runtime: runtime.clone(), seed, vars };
        Params { shared: Arc::new(shared), prefix: String::new() }
    }

    /// Returns the position `name` below this one.
    #[must_use]
    pub fn at(&self, name: impl std::fmt::Display) -> Params {
        Params { shared: self.shared.clone(), prefix: self.full(name) }
    }

    /// Returns the runtime of the parameters.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    fn full(&self, name: impl std::fmt::Display) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}.{name}", self.prefix) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Var>> {
        // Only whole entries are inserted, so a poisoned lock is safe.
        self.shared.vars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parameter `name` below this position, which is created with initial values if it
    /// does not exist.
    ///
    /// # Errors
    /// Invalid if it exists with another shape; a device error.
    pub fn var(&self, name: &str, shape: &[usize], init: Init) -> Result<Var> {
        let full = self.full(name);
        if let Some(var) = self.lock().get(&full) {
            let have = var.shape();
            if have != shape {
                return Err(Error::invalid(format!("parameter {full} is {have:?}, not {shape:?}")));
            }
            return Ok(var.clone());
        }
        let value = init.tensor(self.runtime(), shape, seed_of(self.shared.seed, &full));
        value.check()?;
        let var = Var::new(&value);
        self.lock().insert(full, var.clone());
        Ok(var)
    }

    /// Returns an existing parameter below this position.
    pub fn get(&self, name: &str) -> Option<Var> {
        self.lock().get(&self.full(name)).cloned()
    }

    /// Returns the parameters at and below this position, by full name.
    pub fn named(&self) -> Vec<(String, Var)> {
        let below = format!("{}.", self.prefix);
        let is_here = |name: &String| {
            self.prefix.is_empty() || *name == self.prefix || name.starts_with(&below)
        };
        let vars = self.lock();
        vars.iter().filter(|(name, _)| is_here(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
    }

    /// Returns the parameters at and below this position, in the order of their names.
    pub fn vars(&self) -> Vec<Var> {
        self.named().into_iter().map(|(_, var)| var).collect()
    }

    /// Returns the number of elements of all parameters at and below this position.
    pub fn elements(&self) -> usize {
        self.vars().iter().map(|var| var.shape().iter().product::<usize>()).sum()
    }

    /// Returns the parameters at and below this position as a safetensors file, in their types.
    ///
    /// # Errors
    /// Any error of reading a parameter.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for (name, var) in self.named() {
            let value = var.value();
            let (dtype, bytes) =
                bytes_of(&value).map_err(|e| e.context(format!("parameter {name}")))?;
            all.push((name, dtype, value.shape().to_vec(), bytes));
        }
        let mut views = Vec::with_capacity(all.len());
        for (name, dtype, shape, bytes) in &all {
            let view = TensorView::new(*dtype, shape.clone(), bytes)
                .map_err(|e| Error::invalid(format!("parameter {name}: {e}")))?;
            views.push((name.as_str(), view));
        }
        safetensors::serialize(views, None).map_err(|e| Error::invalid(format!("safetensors: {e}")))
    }

    /// Writes [`Params::to_safetensors`] to a file. A file of that name is replaced only when the
    /// new one is complete.
    ///
    /// # Errors
    /// Any error of reading a parameter; an I/O error that names the file.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = self.to_safetensors()?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let io = |e: std::io::Error| Error::io(format!("{}", path.display()), e);
        std::fs::write(&partial, bytes).map_err(io)?;
        std::fs::rename(&partial, path).map_err(io)
    }

    /// Sets the parameters at and below this position to the tensors of a safetensors file, which
    /// are converted to the parameters' types. Nothing is changed if there is an error.
    ///
    /// # Errors
    /// Invalid if the file is not one, lacks a parameter or holds it with another shape, or holds a
    /// tensor below this position that is no parameter; a device error.
    pub fn set_safetensors(&self, file: &[u8]) -> Result<()> {
        let file = SafeTensors::deserialize(file)
            .map_err(|e| Error::invalid(format!("safetensors: {e}")))?;
        let named = self.named();
        let below =
            if self.prefix.is_empty() { String::new() } else { format!("{}.", self.prefix) };
        let unknown = file
            .names()
            .into_iter()
            .find(|name| name.starts_with(&below) && !named.iter().any(|(known, _)| known == name));
        if let Some(name) = unknown {
            return Err(Error::invalid(format!("safetensors: {name} is no parameter")));
        }
        let mut values = Vec::with_capacity(named.len());
        for (name, var) in named {
            let view =
                file.tensor(&name).map_err(|e| Error::invalid(format!("safetensors: {e}")))?;
            let (want, have) = (var.shape(), view.shape());
            if want != have {
                let what = format!("safetensors: {name} is {have:?}, the parameter {want:?}");
                return Err(Error::invalid(what));
            }
            let value = tensor_of(self.runtime(), &name, &view)?.cast(var.value().dtype());
            value.check()?;
            values.push((var, value));
        }
        values.into_iter().try_for_each(|(var, value)| var.set(&value))
    }

    /// Reads a file for [`Params::set_safetensors`].
    ///
    /// # Errors
    /// Same as [`Params::set_safetensors`], and an I/O error that names the file.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let file = std::fs::read(path).map_err(|e| Error::io(format!("{}", path.display()), e))?;
        self.set_safetensors(&file).map_err(|e| e.context(path.display()))
    }
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}

/// Mixes the name into the seed (FNV-1a), so that the order of creation does not matter.
pub(crate) fn seed_of(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(not(target_arch = "wasm32"))]
fn bytes_of(value: &Tensor) -> Result<(Dtype, Vec<u8>)> {
    Ok(match value.dtype() {
        DType::F16 => {
            let values = value.to_vec::<f16>()?;
            (Dtype::F16, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        DType::BF16 => {
            let values = value.to_vec::<bf16>()?;
            (Dtype::BF16, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        _ => {
            let values = value.to_vec::<f32>()?;
            (Dtype::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
    })
}

fn tensor_of(runtime: &Runtime, name: &str, view: &TensorView<'_>) -> Result<Tensor> {
    let (bytes, shape) = (view.data(), view.shape());
    let halves = || bytes.as_chunks::<2>().0.iter();
    Ok(match view.dtype() {
        Dtype::F32 => {
            let values = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            Tensor::from_vec::<f32>(runtime, values, shape)
        }
        Dtype::F16 => {
            let values = halves().map(|b| f16::from_le_bytes(*b)).collect();
            Tensor::from_vec::<f16>(runtime, values, shape)
        }
        Dtype::BF16 => {
            let values = halves().map(|b| bf16::from_le_bytes(*b)).collect();
            Tensor::from_vec::<bf16>(runtime, values, shape)
        }
        other => {
            let what = format!("safetensors: {name} is of {other:?}: F32, F16 and BF16 are read");
            return Err(Error::unsupported(what));
        }
    })
}
