//! Conformance cases, and the builder that the table uses to create them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use half::{bf16, f16};

use crate::compare::Tolerance;
use crate::inputs::Random;
use crate::run::NamedBytes;
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape, Symbol, SymbolValues};
use warploom_core::error::broken_invariant;
use warploom_core::ir::{Graph, MergedPart, Node, NodeId, Op, UnaryOp};
use warploom_core::quant;
use warploom_core::reference::{Data, Tensor};
use warploom_hal::{DeviceKind, DeviceProfile};

/// One row of the table: a graph, its inputs, and the tolerance of its results.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name, family first: `linear/q4_k/m5`.
    pub name: String,
    /// The graph, which has at least one output or update.
    pub graph: Graph,
    /// Values of every symbol in the graph.
    pub symbols: SymbolValues,
    /// Every input and weight by name, and the states that are not initially zero.
    pub bindings: BTreeMap<String, Binding>,
    /// Tolerance of every output.
    pub tolerance: Tolerance,
    /// Purpose of the case, unless its name states it.
    pub note: &'static str,
}

/// The value bound to an input, weight or state.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The bytes in device memory, little-endian; a weight is in its storage format.
    pub bytes: Vec<u8>,
    /// The decoded values.
    pub tensor: Tensor,
}

impl Case {
    /// Returns the case with the tolerance for a device. A device with tensor cores may round the
    /// operands of matrix products and attention to f16 if their compute mode is
    /// `ComputeMode::Int8` or `F16`.
    pub fn on(&self, profile: &DeviceProfile) -> Cow<'_, Case> {
        let rounds = |op: &Op| op.mode().is_some_and(|mode| mode != ComputeMode::F32);
        match profile.has_matrix_hw && self.graph.nodes().iter().any(|node| rounds(&node.op)) {
            false => Cow::Borrowed(self),
            true => Cow::Owned(Case { tolerance: self.tolerance.of_f16(), ..self.clone() }),
        }
    }

    /// Returns the case with the tolerance for f16 sums (`Options::f16_accumulate`); unchanged if
    /// nothing is computed in `f16`.
    pub fn with_f16_accumulate(&self) -> Case {
        let is_half = |node: &Node| node.dtype == DType::F16 && !node.inputs.is_empty();
        if !self.graph.nodes().iter().any(is_half) {
            return self.clone();
        }
        let length = |id: NodeId| {
            let node = self.graph.node(id);
            let x = node.inputs.first().filter(|_| node.op == Op::MatMul);
            let columns = x.and_then(|x| self.graph.node(*x).shape.dims().last());
            columns.and_then(|dim| dim.eval_size(&self.symbols).ok())
        };
        match self.graph.ids().filter_map(length).max() {
            Some(k) => Case { tolerance: self.tolerance.of_f16_accumulate(k), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Returns whether the case applies to this kind of device: a CPU does not read GPU weight
    /// layouts.
    pub fn is_for(&self, kind: DeviceKind) -> bool {
        let kept = |op: &Op| op.stored().is_some_and(Format::is_kept);
        kind != DeviceKind::Cpu || !self.graph.nodes().iter().any(|node| kept(&node.op))
    }

    /// Returns the bytes of every binding, for a device.
    pub fn bytes(&self) -> NamedBytes {
        self.bindings.iter().map(|(name, b)| (name.clone(), b.bytes.clone())).collect()
    }

    /// Returns the values of every binding, for the reference.
    pub fn tensors(&self) -> BTreeMap<String, Tensor> {
        self.bindings.iter().map(|(name, b)| (name.clone(), b.tensor.clone())).collect()
    }
}

/// Rounds values to `dtype` if it is a 2-byte type; else keeps them as `f32`.
pub(super) fn halves(dtype: DType, values: &[f32]) -> Data {
    match dtype {
        DType::F16 => Data::F16(values.iter().map(|v| f16::from_f32(*v)).collect()),
        DType::BF16 => Data::BF16(values.iter().map(|v| bf16::from_f32(*v)).collect()),
        _ => Data::F32(values.to_vec()),
    }
}

/// Builds a case. Panics on an invalid graph, which is a mistake in the table.
pub(super) struct Build {
    case: Case,
}

impl Build {
    /// Starts a case with exact tolerance; see [`Build::within`].
    pub(super) fn new(name: impl Into<String>) -> Build {
        let name = name.into();
        let graph = Graph::new(name.clone());
        Build {
            case: Case {
                name,
                graph,
                symbols: SymbolValues::new(),
                bindings: BTreeMap::new(),
                tolerance: Tolerance::EXACT,
                note: "",
            },
        }
    }

    pub(super) fn within(mut self, tolerance: Tolerance) -> Build {
        self.case.tolerance = tolerance;
        self
    }

    pub(super) fn note(mut self, note: &'static str) -> Build {
        self.case.note = note;
        self
    }

    /// Binds a symbol and returns it as a size. Call it before using the size in shapes.
    pub(super) fn symbol(&mut self, name: &str, value: u64) -> Dim {
        let symbol = Symbol::parse(name).unwrap_or_else(|e| self.wrong(e));
        self.case.symbols.set(symbol, value);
        Dim::symbol(symbol)
    }

    /// Creates a random generator seeded by the names of case and tensor.
    pub(super) fn random(&self, tensor: &str) -> Random {
        Random::new(&[&self.case.name, tensor])
    }

    /// Adds an `f32` input of [`Random::shaped`] values.
    pub(super) fn f32<D: Into<Dim>>(
        &mut self,
        name: &str,
        dims: impl IntoIterator<Item = D>,
    ) -> NodeId {
        let shape = Shape::new(dims);
        let values = self.random(name).shaped(self.count(&shape));
        self.input(name, shape, Data::F32(values))
    }

    /// Adds an input of [`Random::shaped`] values, rounded to a 2-byte type.
    pub(super) fn half<D: Into<Dim>>(
        &mut self,
        dtype: DType,
        name: &str,
        dims: impl IntoIterator<Item = D>,
    ) -> NodeId {
        let shape = Shape::new(dims);
        let values = self.random(name).shaped(self.count(&shape));
        self.input(name, shape, halves(dtype, &values))
    }

    /// Adds a state of a 2-byte type, initialised with [`Random::shaped`] values.
    pub(super) fn f16_state(&mut self, dtype: DType, name: &str, dims: &[u64]) -> NodeId {
        let values = self.random(name).shaped(dims.iter().product::<u64>() as usize);
        self.state_with(name, dims, halves(dtype, &values))
    }

    /// Adds a one-dimensional `f32` input with these values.
    pub(super) fn f32_row(&mut self, name: &str, values: &[f32]) -> NodeId {
        self.input(name, Shape::new([values.len()]), Data::F32(values.to_vec()))
    }

    /// Adds a one-dimensional `i32` input with these values.
    pub(super) fn i32_row(&mut self, name: &str, values: &[i32]) -> NodeId {
        self.input(name, Shape::new([values.len()]), Data::I32(values.to_vec()))
    }

    /// Adds an input of any type with these values.
    pub(super) fn input(&mut self, name: &str, shape: Shape, data: Data) -> NodeId {
        let tensor = self.tensor(&shape, data);
        let id = self.case.graph.input(name, shape, tensor.dtype());
        self.bind(name, Binding { bytes: tensor.to_bytes(), tensor });
        id
    }

    /// Adds a weight of [`Random::shaped`] values, rounded to its format.
    pub(super) fn weight(&mut self, name: &str, dims: &[u64], format: Format) -> NodeId {
        let values = self.random(name).shaped(dims.iter().product::<u64>() as usize);
        self.weight_of(name, dims, format, values)
    }

    /// Adds a weight with these values, rounded to its format.
    pub(super) fn weight_of(
        &mut self,
        name: &str,
        dims: &[u64],
        format: Format,
        values: Vec<f32>,
    ) -> NodeId {
        let shape = Shape::new(dims.iter().copied());
        self.bind_weight(name, &shape, format, values);
        self.case.graph.weight(name, shape, format)
    }

    /// Adds merged weights with these rows, each of [`Random::shaped`] values rounded to the
    /// format.
    pub(super) fn merged(&mut self, parts: &[(&str, u64)], k: u64, format: Format) -> NodeId {
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let part = |(name, rows): &(&str, u64)| {
            let values = self.random(name).shaped((rows * k) as usize);
            self.bind_weight(name, &Shape::new([*rows, k]), format, values);
            MergedPart { name: name.to_string(), rows: *rows }
        };
        let op = Op::Merged { parts: parts.iter().map(part).collect(), format };
        self.leaf(op, &[rows, k])
    }

    /// Adds a leaf whose name is already bound.
    pub(super) fn leaf(&mut self, op: Op, dims: &[u64]) -> NodeId {
        let shape = Shape::new(dims.iter().copied());
        let (inputs, label) = (Default::default(), String::new());
        self.case.graph.push(Node { op, inputs, shape, dtype: DType::F32, label })
    }

    fn bind_weight(&mut self, name: &str, shape: &Shape, format: Format, mut values: Vec<f32>) {
        let bytes = quant::encode(format, &values).unwrap_or_else(|e| self.wrong(e));
        quant::decode(format, &bytes, &mut values).unwrap_or_else(|e| self.wrong(e));
        let tensor = self.tensor(shape, Data::F32(values));
        self.bind(name, Binding { bytes, tensor });
    }

    /// Adds a state initialised with zeros.
    pub(super) fn zero_state(&mut self, name: &str, dims: &[u64]) -> NodeId {
        self.zero_state_of(DType::F32, name, dims)
    }

    /// Adds a state of a given type, initialised with zeros.
    pub(super) fn zero_state_of(&mut self, dtype: DType, name: &str, dims: &[u64]) -> NodeId {
        self.case.graph.state(name, Shape::new(dims.iter().copied()), dtype)
    }

    /// Adds a state initialised with [`Random::shaped`] values.
    pub(super) fn state(&mut self, name: &str, dims: &[u64]) -> NodeId {
        let values = self.random(name).shaped(dims.iter().product::<u64>() as usize);
        self.state_of(name, dims, values)
    }

    /// Adds a state initialised with these values.
    pub(super) fn state_of(&mut self, name: &str, dims: &[u64], values: Vec<f32>) -> NodeId {
        self.state_with(name, dims, Data::F32(values))
    }

    /// Adds a state of any type, initialised with these values.
    pub(super) fn state_with(&mut self, name: &str, dims: &[u64], data: Data) -> NodeId {
        let shape = Shape::new(dims.iter().copied());
        let tensor = self.tensor(&shape, data);
        let dtype = tensor.dtype();
        self.bind(name, Binding { bytes: tensor.to_bytes(), tensor });
        self.case.graph.state(name, shape, dtype)
    }

    /// Adds a constant: one value for all elements, or one per element.
    pub(super) fn constant(&mut self, dims: &[u64], values: &[f32]) -> NodeId {
        self.case.graph.constant_f32(Shape::new(dims.iter().copied()), values)
    }

    pub(super) fn op(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.case.graph.add(op, inputs).unwrap_or_else(|e| self.wrong(e))
    }

    pub(super) fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.op(Op::Unary(op), &[x])
    }

    pub(super) fn slice(
        &mut self,
        x: NodeId,
        axis: usize,
        start: impl Into<Dim>,
        len: impl Into<Dim>,
        step: u64,
    ) -> NodeId {
        self.op(Op::Slice { axis, start: start.into(), len: len.into(), step }, &[x])
    }

    pub(super) fn transpose(&mut self, x: NodeId, perm: &[usize]) -> NodeId {
        self.op(Op::Transpose(perm.to_vec()), &[x])
    }

    /// Returns the graph built so far.
    pub(super) fn graph(&self) -> &Graph {
        &self.case.graph
    }

    /// Returns the shape of a node.
    pub(super) fn shape(&self, id: NodeId) -> Shape {
        self.case.graph.node(id).shape.clone()
    }

    pub(super) fn output(&mut self, name: &str, id: NodeId) {
        self.case.graph.output(name, id).unwrap_or_else(|e| self.wrong(e));
    }

    /// Finishes the case with one output, `y`.
    pub(super) fn done(mut self, y: NodeId) -> Case {
        self.output("y", y);
        self.case
    }

    /// Finishes the case with the outputs added so far.
    pub(super) fn finish(self) -> Case {
        self.case
    }

    /// Returns the number of elements of a shape, with the case's values of symbols.
    pub(super) fn count(&self, shape: &Shape) -> usize {
        let sizes = shape.eval(&self.case.symbols).unwrap_or_else(|e| self.wrong(e));
        sizes.iter().product::<u64>() as usize
    }

    fn tensor(&self, shape: &Shape, data: Data) -> Tensor {
        let sizes = shape.eval(&self.case.symbols).unwrap_or_else(|e| self.wrong(e));
        Tensor::new(sizes, data).unwrap_or_else(|e| self.wrong(e))
    }

    fn bind(&mut self, name: &str, binding: Binding) {
        if self.case.bindings.insert(name.to_string(), binding).is_some() {
            self.wrong(format!("{name:?} is bound twice"));
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> ! {
        broken_invariant(format!("case {}: {what}", self.case.name))
    }
}
