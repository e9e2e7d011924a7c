//! Kernel packs: operations given by a folder with a shader and a manifest, `pack.toml`.
//!
//! A pack is read once. The manifest is checked line by line, the shader by naga, and each against
//! the other, so errors are reported with file and line before any device is involved. Bindings are
//! renumbered to the crate's convention in the shader's text, whose line numbers do not change. A
//! call ([`Pack::call`]) binds sizes to the shapes of its operands and returns a
//! [`Custom`](warploom_core::ir::Custom), which is all that a plan needs: lower layers do not
//! depend on packs.
//!
//! A manifest that names an operation (`implements`) also makes the pack an engine for it:
//! `engine::PackEngine`.
//!
//! Manifests are not trusted: sizes are checked expressions, files are names in the pack's own
//! folder, and everything has a limit. `docs/kernels.md` explains how to write a pack.

mod assemble;
mod call;
mod case;
mod expr;
mod implements;
mod load;
mod manifest;
mod places;
mod shader;
mod tuned;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use case::{Case, Numbers};
pub use implements::PackCost;
pub use load::MANIFEST;

use expr::Expr;
use implements::Implements;
use manifest::Declared;
use shader::Shader;
use warploom_core::base::DType;
use warploom_core::ir::{CustomBinding, Twin, Wgsl};

/// A user's kernel, read and checked.
#[derive(Clone, Debug)]
pub struct Pack {
    name: String,
    /// The manifest's name, for messages.
    file: String,
    /// The hash of the manifest's text.
    manifest: blake3::Hash,
    /// The folder, if it was read from one.
    folder: Option<PathBuf>,
    /// Every file that was read, with the hash of its text.
    files: Vec<(PathBuf, blake3::Hash)>,
    shader: Shader,
    wgsl: Wgsl,
    /// Threads per workgroup in x, y and z.
    workgroup: [u32; 3],
    inputs: Vec<Declared>,
    outputs: Vec<Declared>,
    /// For each tensor, by name, its type and the words per element of the shader's array.
    elements: BTreeMap<String, (DType, u32)>,
    bindings: Vec<CustomBinding>,
    words: u32,
    fields: Vec<Value>,
    launch: Launch,
    writes_all: bool,
    deterministic: bool,
    /// Default values of sizes and of numbers in the uniform block, by name.
    defaults: BTreeMap<String, f64>,
    constants: BTreeMap<String, f64>,
    tune: BTreeMap<String, Vec<f64>>,
    /// The fastest constants found, by device name.
    tuned: BTreeMap<String, tuned::Tuned>,
    tolerance: (f64, f64),
    cases: Vec<Case>,
    /// The reference: the same operation in plain loops, as one workgroup.
    reference: Option<Box<Pack>>,
    /// Native kernels: the same kernel in the providers' languages.
    twins: Vec<Twin>,
    /// The operation that the pack executes, if it implements one.
    implements: Option<Implements>,
}

/// The meaning of a word of the uniform block.
#[derive(Clone, Debug)]
struct Value {
    /// Index of the word in the block.
    at: u32,
    dtype: DType,
    /// Name of the word, such as `radius` or `center.x`.
    name: String,
    /// The expression of a size; `None` for a number that a call passes by name.
    size: Option<Expr>,
}

/// How the number of workgroups of a call is determined.
#[derive(Clone, Debug)]
enum Launch {
    /// The threads in x, y and z, divided by the size of a workgroup and rounded up.
    Threads(Vec<Expr>),
    /// One thread per element of the first output.
    Elements,
    Groups(Vec<Expr>),
}

/// A tensor of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorSpec<'a> {
    /// The variable's name.
    pub name: &'a str,
    /// Type of its elements.
    pub dtype: DType,
    /// Number of dimensions.
    pub rank: usize,
}

impl Pack {
    /// Returns the pack's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder that the pack was read from, if any.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the hash of the pack's sources: manifest, shader and native kernels.
    pub fn texts_hash(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        hash.update(self.manifest.as_bytes());
        for text in [self.shader().1].into_iter().chain(self.twins.iter().map(|twin| &*twin.text)) {
            hash.update(blake3::hash(text.as_bytes()).as_bytes());
        }
        *hash.finalize().as_bytes()
    }

    /// Returns the shader's file name and its text as written.
    pub fn shader(&self) -> (&str, &str) {
        (&self.shader.file, &self.shader.text)
    }

    /// Returns the native kernels: the same kernel in the providers' languages, compiled instead of
    /// the shader's translation.
    pub fn twins(&self) -> &[Twin] {
        &self.twins
    }

    /// Iterates over the inputs, in the order of a call's operands.
    pub fn inputs(&self) -> impl Iterator<Item = TensorSpec<'_>> {
        self.inputs.iter().map(|declared| self.spec(declared))
    }

    /// Iterates over the outputs, in the order of a call's results.
    pub fn outputs(&self) -> impl Iterator<Item = TensorSpec<'_>> {
        self.outputs.iter().map(|declared| self.spec(declared))
    }

    /// Returns the names of the sizes and numbers that a call may pass, sorted.
    pub fn values(&self) -> Vec<&str> {
        let mut names = self.symbols();
        let numbers = self.fields.iter().filter(|value| value.size.is_none());
        names.extend(numbers.map(|value| value.name.as_str()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the default of a size or number, if it has one.
    pub fn default(&self, name: &str) -> Option<f64> {
        self.defaults.get(name).copied()
    }

    /// Returns the `override` constants to tune, with the values to try.
    pub fn tune(&self) -> &BTreeMap<String, Vec<f64>> {
        &self.tune
    }

    /// Returns the `override` constants that are set.
    pub fn constants(&self) -> &BTreeMap<String, f64> {
        &self.constants
    }

    /// Returns the allowed absolute and relative error of floats.
    pub fn tolerance(&self) -> (f64, f64) {
        self.tolerance
    }

    /// Returns the test cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Returns the reference, the same operation in plain loops, if the manifest names a shader for
    /// it.
    pub fn reference(&self) -> Option<&Pack> {
        self.reference.as_deref()
    }

    /// Returns the names of the sizes: those in shapes, in parameters and in the launch.
    fn symbols(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let shapes = self.inputs.iter().chain(&self.outputs).flat_map(|tensor| &tensor.shape);
        let sizes = self.fields.iter().filter_map(|value| value.size.as_ref());
        let launch = match &self.launch {
            Launch::Threads(sizes) | Launch::Groups(sizes) => sizes.as_slice(),
            Launch::Elements => &[],
        };
        for size in shapes.chain(sizes).chain(launch) {
            size.names(&mut names);
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    fn spec<'a>(&self, declared: &'a Declared) -> TensorSpec<'a> {
        let dtype = self.elements.get(&declared.name).map_or(DType::F32, |(dtype, _)| *dtype);
        TensorSpec { name: &declared.name, dtype, rank: declared.shape.len() }
    }
}
