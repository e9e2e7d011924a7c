//! A user's kernel as an operation, with everything that a launch needs as plain data.
//!
//! `warploom_kernels::pack` creates a [`Custom`] from a shader and its manifest, with every size
//! resolved to symbols of the graph. Graph files contain such kernels too, so [`Custom::result`]
//! validates everything.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{DType, Dim, Shape};
use crate::error::{Error, Result};

/// Maximum number of tensors that a kernel binds; WebGPU guarantees only 8 storage buffers.
const MAX_TENSORS: usize = 32;
/// Maximum size of the parameter block in 32-bit words.
const MAX_PARAMS: usize = 1024;
/// Maximum size of a source text in bytes.
const MAX_WGSL: usize = 1 << 20;

/// A user's kernel for operands of declared shapes. A kernel may have several results; a node
/// represents one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Custom {
    /// Name for messages and traces.
    pub name: String,
    /// The shader source. Group 0 has the parameters at binding 0 and the tensors from binding 1
    /// on.
    pub wgsl: Wgsl,
    /// Name of the compute entry point.
    pub entry: String,
    /// Values of `override` constants, by name or `@id`.
    pub constants: BTreeMap<String, f64>,
    /// Words of the parameter block; empty if there is none.
    pub params: Vec<CustomWord>,
    /// Storage buffers of the tensors, from binding 1 on.
    pub bindings: Vec<CustomBinding>,
    /// Shapes and types of the operands.
    pub inputs: Vec<(Shape, DType)>,
    /// Shapes and types of all results of the kernel.
    pub outputs: Vec<(Shape, DType)>,
    /// Index in `outputs` of the result that this node represents.
    pub output: u32,
    /// Number of workgroups in x, y and z.
    pub grid: [Dim; 3],
    /// Whether the kernel writes every element of its results. If not, they are zeroed first.
    pub writes_all: bool,
    /// Whether the author declares that the bits of the results depend only on the operands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// The native kernels, at most one per language.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<Twin>,
}

/// A native kernel: the same kernel in a provider's language, compiled instead of the translated
/// shader.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Twin {
    /// The language.
    pub language: TwinLanguage,
    /// File name for messages: up to 128 characters out of `a-z A-Z 0-9 _ - .`.
    pub file: String,
    /// The source text.
    pub text: Arc<str>,
}

/// The language of a native kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TwinLanguage {
    /// CUDA C++, compiled by NVRTC.
    Cuda,
    /// OpenCL C.
    OpenCl,
}

impl TwinLanguage {
    /// Returns the name of the provider that compiles the language.
    pub fn provider(self) -> &'static str {
        match self {
            TwinLanguage::Cuda => "cuda",
            TwinLanguage::OpenCl => "opencl",
        }
    }
}

impl fmt::Debug for Twin {
    /// Prints a hash of the source instead of the text, to keep the keys of nodes short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = blake3::hash(self.text.as_bytes());
        write!(f, "{:?} {}:{}", self.language, self.file, hash.to_hex())
    }
}

impl Twin {
    /// Returns the first problem found, or `None` if the kernel is valid.
    pub fn fault(&self) -> Option<String> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if self.file.is_empty() || self.file.len() > 128 || !self.file.chars().all(fine) {
            return Some(format!("has a twin in {:?}, which is not a file name", self.file));
        }
        let have = self.text.len();
        (have > MAX_WGSL).then(|| format!("has {have} bytes in {}, at most {MAX_WGSL}", self.file))
    }
}

/// A 32-bit word of the parameter block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CustomWord {
    /// An integer, or the bits of an `f32`.
    Bits(u32),
    /// A size, evaluated for each run.
    Dim(Dim),
}

/// A storage buffer of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomBinding {
    /// Name of the shader variable.
    pub name: String,
    /// The tensor that is bound.
    pub tensor: CustomTensor,
    /// Minimum binding size of the variable's type, in bytes: a whole fixed-size array, or one
    /// element of a runtime-sized array.
    pub least_bytes: u32,
    /// Whether the kernel queries the array length, so that the binding size must be exact.
    pub exact: bool,
}

/// The operand or result that a storage buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CustomTensor {
    /// The operand at this index, read-only.
    Input(u32),
    /// The result at this index.
    Output(u32),
    /// A result that initially holds a copy of an operand.
    InPlace {
        /// Index of the operand.
        input: u32,
        /// Index of the result.
        output: u32,
    },
}

/// WGSL source, shared by the nodes that run it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wgsl(pub Arc<str>);

impl fmt::Debug for Wgsl {
    /// Prints a hash of the source instead of the text, to keep the keys of nodes short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgsl:{}", blake3::hash(self.0.as_bytes()).to_hex())
    }
}

impl CustomTensor {
    /// Returns the index of the operand that the kernel reads, if any.
    pub fn input(self) -> Option<u32> {
        match self {
            CustomTensor::Input(input) | CustomTensor::InPlace { input, .. } => Some(input),
            CustomTensor::Output(_) => None,
        }
    }

    /// Returns the index of the result that the kernel writes, if any.
    pub fn output(self) -> Option<u32> {
        match self {
            CustomTensor::Output(output) | CustomTensor::InPlace { output, .. } => Some(output),
            CustomTensor::Input(_) => None,
        }
    }
}

impl Custom {
    /// Validates the kernel, and returns the shape and type of the node's result.
    ///
    /// # Errors
    /// Invalid, naming the kernel and the problem.
    pub fn result(&self) -> Result<(Shape, DType)> {
        match self.fault() {
            Some(fault) => Err(Error::invalid(format!("kernel {:?} {fault}", self.name))),
            None => Ok(self.outputs[self.output as usize].clone()),
        }
    }

    /// Returns the first problem found, or `None` if the kernel is valid.
    fn fault(&self) -> Option<String> {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        if self.wgsl.0.len() > MAX_WGSL {
            return Some(format!("has {} bytes of WGSL, at most {MAX_WGSL}", self.wgsl.0.len()));
        }
        let again = |(i, twin): (usize, &Twin)| {
            self.twins[..i].iter().any(|other| other.language == twin.language)
        };
        if self.twins.iter().enumerate().any(again) {
            return Some("has two twins in one language".into());
        }
        if let Some(fault) = self.twins.iter().find_map(Twin::fault) {
            return Some(fault);
        }
        if self.bindings.len() > MAX_TENSORS || inputs.max(outputs) > MAX_TENSORS {
            return Some(format!("binds more than {MAX_TENSORS} tensors"));
        }
        if self.params.len() > MAX_PARAMS {
            let have = self.params.len();
            return Some(format!("takes {have} words of parameters, at most {MAX_PARAMS}"));
        }
        if self.output as usize >= outputs {
            return Some(format!("has {outputs} results, and no number {}", self.output));
        }
        let types = self.inputs.iter().chain(&self.outputs);
        if let Some((_, dtype)) = types.clone().find(|(_, dtype)| dtype.is_half()) {
            return Some(format!("binds {dtype}; kernels read and write elements of 4 bytes"));
        }
        let (mut read, mut written) = (vec![0; inputs], vec![0; outputs]);
        for binding in &self.bindings {
            for (place, uses) in
                [(binding.tensor.input(), &mut read), (binding.tensor.output(), &mut written)]
            {
                match place.map(|place| uses.get_mut(place as usize)) {
                    Some(Some(uses)) => *uses += 1,
                    Some(None) => return Some(format!("binds {} to no tensor", binding.name)),
                    None => {}
                }
            }
            if let CustomTensor::InPlace { input, output } = binding.tensor
                && self.inputs[input as usize] != self.outputs[output as usize]
            {
                return Some(format!("changes {} in place to another shape", binding.name));
            }
        }
        if read.iter().chain(&written).any(|uses| *uses != 1) {
            return Some("does not bind every operand and every result once".into());
        }
        self.short_binding()
    }

    /// Returns a problem if a tensor of constant size is smaller than its shader variable requires.
    fn short_binding(&self) -> Option<String> {
        for binding in &self.bindings {
            let (shape, dtype) = match binding.tensor {
                CustomTensor::Input(input) => &self.inputs[input as usize],
                CustomTensor::Output(output) | CustomTensor::InPlace { output, .. } => {
                    &self.outputs[output as usize]
                }
            };
            let Some(elements) = shape.elements().as_const() else { continue };
            let least = i64::from(binding.least_bytes);
            // An empty tensor is bound as a dummy buffer.
            if elements > 0 && elements.saturating_mul(dtype.bytes() as i64) < least {
                return Some(format!(
                    "reads {least} bytes of {}, which is {dtype}{shape}",
                    binding.name
                ));
            }
        }
        None
    }

    /// Returns whether `other` is a different result of the same kernel.
    pub fn is_sibling(&self, other: &Custom) -> bool {
        self.output != other.output && Custom { output: self.output, ..other.clone() } == *self
    }

    /// Returns the native kernel for a provider, if there is one.
    pub fn twin(&self, provider: &str) -> Option<&Twin> {
        self.twins.iter().find(|twin| twin.language.provider() == provider)
    }

    /// Iterates over every size in the tensors, the parameters and the grid.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        let tensors = self.inputs.iter().chain(&self.outputs).flat_map(|(shape, _)| shape.dims());
        let words = self.params.iter().filter_map(|word| match word {
            CustomWord::Dim(dim) => Some(dim),
            CustomWord::Bits(_) => None,
        });
        tensors.chain(words).chain(&self.grid)
    }

    /// Applies `map` to every size.
    pub(super) fn map_dims(&mut self, map: &dyn Fn(&Dim) -> Dim) {
        for (shape, _) in self.inputs.iter_mut().chain(&mut self.outputs) {
            *shape = shape.dims().iter().map(map).collect();
        }
        for word in &mut self.params {
            if let CustomWord::Dim(dim) = word {
                *dim = map(dim);
            }
        }
        for dim in &mut self.grid {
            *dim = map(dim);
        }
    }
}
