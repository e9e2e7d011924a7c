//! A user's kernel as an operation: everything that it takes to launch it, as data.
//!
//! `kernel::pack` makes one from a shader and its manifest, with every size resolved to the symbols
//! of the graph. It comes from files as well, so [`Custom::fault`] trusts nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{DType, Dim, Shape};
use crate::error::{Error, Result};

/// Tensors of one kernel; WebGPU guarantees 8 storage buffers.
const MAX_TENSORS: usize = 32;
/// Words of the block of parameters.
const MAX_PARAMS: usize = 1024;
/// Bytes of the shader.
const MAX_WGSL: usize = 1 << 20;

/// A kernel on tensors of these shapes. One kernel may have several results; a node is one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Custom {
    /// Name for messages and traces.
    pub name: String,
    /// The shader: group 0, parameters at binding 0, tensors from binding 1 on.
    pub wgsl: Wgsl,
    /// Name of the compute entry point.
    pub entry: String,
    /// Values in the place of `override` constants, by name or number.
    pub constants: BTreeMap<String, f64>,
    /// Words of the block of parameters; none means that there is no block.
    pub params: Vec<CustomWord>,
    /// What is bound from binding 1 on.
    pub bindings: Vec<CustomBinding>,
    /// What the operands must be.
    pub inputs: Vec<(Shape, DType)>,
    /// Every result of the kernel.
    pub outputs: Vec<(Shape, DType)>,
    /// Which of them the node is.
    pub output: u32,
    /// Workgroups in x, y and z.
    pub grid: [Dim; 3],
    /// Whether the kernel writes every element of its results. Else they are zeros at first.
    pub writes_all: bool,
    /// Whether the bits of a result depend on nothing but what it is made of, as its maker says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// The same kernel in languages of providers, each at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<Twin>,
}

/// The same kernel in the language of a provider, which compiles it in the place of the shader's translation.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Twin {
    /// Its language.
    pub language: TwinLanguage,
    /// The name of its file, for messages: of `a-z A-Z 0-9 _ - .`.
    pub file: String,
    /// Its text.
    pub text: Arc<str>,
}

/// A language of providers.
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
    /// The provider that compiles it.
    pub fn provider(self) -> &'static str {
        match self {
            TwinLanguage::Cuda => "cuda",
            TwinLanguage::OpenCl => "opencl",
        }
    }
}

impl fmt::Debug for Twin {
    /// The hash of the text, which stands for it in keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = blake3::hash(self.text.as_bytes());
        write!(f, "{:?} {}:{}", self.language, self.file, hash.to_hex())
    }
}

impl Twin {
    /// What is wrong with it, in words.
    pub fn fault(&self) -> Option<String> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if self.file.is_empty() || self.file.len() > 128 || !self.file.chars().all(fine) {
            return Some(format!("has a twin in {:?}, which is no name of a file", self.file));
        }
        let have = self.text.len();
        (have > MAX_WGSL).then(|| format!("has {have} bytes in {}, at most {MAX_WGSL}", self.file))
    }
}

/// A word of the block of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CustomWord {
    /// A number or the bits of a float.
    Bits(u32),
    /// A size that is evaluated at each run.
    Dim(Dim),
}

/// A storage buffer of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomBinding {
    /// The variable's name.
    pub name: String,
    /// What is bound.
    pub tensor: CustomTensor,
    /// Fewest bytes that the variable's type takes: all of an array of fixed size, one element of
    /// a runtime-sized one.
    pub least_bytes: u32,
    /// Whether the kernel asks for the length of the array, so that not a byte more may be bound.
    pub exact: bool,
}

/// What is bound to a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CustomTensor {
    /// An operand, read only.
    Input(u32),
    /// A result.
    Output(u32),
    /// A result that starts as a copy of an operand.
    InPlace {
        /// The operand.
        input: u32,
        /// The result.
        output: u32,
    },
}

/// The text of a shader, shared by the nodes that run it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wgsl(pub Arc<str>);

impl fmt::Debug for Wgsl {
    /// The hash of the text, which stands for it in keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgsl:{}", blake3::hash(self.0.as_bytes()).to_hex())
    }
}

impl CustomTensor {
    /// The operand that it reads.
    pub fn input(self) -> Option<u32> {
        match self {
            CustomTensor::Input(input) | CustomTensor::InPlace { input, .. } => Some(input),
            CustomTensor::Output(_) => None,
        }
    }

    /// The result that it writes.
    pub fn output(self) -> Option<u32> {
        match self {
            CustomTensor::Output(output) | CustomTensor::InPlace { output, .. } => Some(output),
            CustomTensor::Input(_) => None,
        }
    }
}

impl Custom {
    /// Shape and type of the node's result; an error where the kernel makes no sense.
    ///
    /// # Errors
    /// Invalid, naming the kernel and what is wrong with it.
    pub fn result(&self) -> Result<(Shape, DType)> {
        match self.fault() {
            Some(fault) => Err(Error::invalid(format!("kernel {:?} {fault}", self.name))),
            None => Ok(self.outputs[self.output as usize].clone()),
        }
    }

    /// What is wrong with it, in words.
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

    /// A tensor whose size is known and not enough for the variable that it is bound to.
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
            // Nothing at all is bound as some bytes of nothing.
            if elements > 0 && elements.saturating_mul(dtype.bytes() as i64) < least {
                return Some(format!(
                    "reads {least} bytes of {}, which is {dtype}{shape}",
                    binding.name
                ));
            }
        }
        None
    }

    /// Whether another one is another result of the same kernel.
    pub fn is_sibling(&self, other: &Custom) -> bool {
        self.output != other.output && Custom { output: self.output, ..other.clone() } == *self
    }

    /// The twin that a provider compiles.
    pub fn twin(&self, provider: &str) -> Option<&Twin> {
        self.twins.iter().find(|twin| twin.language.provider() == provider)
    }

    /// Every size in it.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        let tensors = self.inputs.iter().chain(&self.outputs).flat_map(|(shape, _)| shape.dims());
        let words = self.params.iter().filter_map(|word| match word {
            CustomWord::Dim(dim) => Some(dim),
            CustomWord::Bits(_) => None,
        });
        tensors.chain(words).chain(&self.grid)
    }

    /// The same with every size replaced.
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
