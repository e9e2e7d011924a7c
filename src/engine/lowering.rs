//! Lowering: how engines emit steps (kernel launches), on tensors that have no memory yet.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::elementwise;
use super::fusion::LoweredFusion;
use super::{Cost, EngineId, Query};
use crate::base::{DType, Dim, Format, Layout, Shape, ShapeClass};
use crate::broken_invariant;
use crate::error::{Error, Result};
use crate::kernel::{Access, AssetSpec, KernelSpec, Specialization, catalogue};
use crate::provider::{DeviceKind, DeviceProfile, GRANULE, Word};

/// Index of a tensor (one memory allocation) in a plan's list of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorId(pub u32);

impl TensorId {
    /// Returns the index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Purpose of a tensor, which decides where it is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TensorRole {
    /// An intermediate, which lives in the arena from its first to its last step.
    Intermediate,
    /// An input, by name; uploaded or bound at each run.
    Input(String),
    /// A weight, by name.
    Weight(String),
    /// Several weights by name, concatenated in this order.
    Merged(Vec<String>),
    /// A state, by name; it keeps its contents from run to run.
    State(String),
    /// A constant of the graph: its 32-bit words.
    Constant(Vec<u32>),
    /// Counter words, zero before a run; the kernels that count in them reset them to zero.
    Counters,
}

/// One memory allocation of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Name for display.
    pub name: String,
    /// Purpose of the tensor.
    pub role: TensorRole,
    /// Size in bytes at the upper ends of the shape class; a multiple of [`GRANULE`].
    pub bytes: u64,
}

/// Strided access to a tensor, with the shape and element type that an operation sees.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The tensor that holds the elements.
    pub tensor: TensorId,
    /// Size of each dimension.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Storage format. Only weights have a format other than plain elements.
    pub format: Format,
    /// Offset and strides, in elements.
    pub layout: Layout,
}

impl View {
    /// Returns a row-major view of a whole tensor.
    pub fn whole(tensor: TensorId, shape: Shape, dtype: DType, format: Format) -> View {
        let layout = Layout::contiguous(&shape);
        View { tensor, shape, dtype, format, layout }
    }

    /// Returns whether the view's elements are row-major without gaps, at any offset.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous(&self.shape)
    }

    /// Returns the view as contiguous rows along the last axis: number of rows, row length and row
    /// stride in elements. Returns `None` if the rows have no common stride.
    pub fn as_rows(&self) -> Option<(Dim, Dim, Dim)> {
        let Some(last) = self.shape.rank().checked_sub(1) else {
            return Some((Dim::new(1), Dim::new(1), Dim::new(1)));
        };
        let cols = self.shape[last].clone();
        if !cols.is(1) && !self.layout.strides[last].is(1) {
            return None;
        }
        let mut rows = Dim::new(1);
        let mut stride: Option<Dim> = None;
        for axis in (0..last).rev() {
            let (size, step) = (&self.shape[axis], &self.layout.strides[axis]);
            if size.is(1) {
                continue;
            }
            match &stride {
                None => stride = Some(step.clone()),
                Some(s) if *step == s.clone() * rows.clone() => {}
                Some(_) => return None,
            }
            rows = rows * size.clone();
        }
        Some((rows, cols.clone(), stride.unwrap_or(cols)))
    }
}

/// A tensor, or a part of one, bound to a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepBinding {
    /// The bound tensor.
    pub tensor: TensorId,
    /// Offset in the tensor, in bytes; a multiple of the device's binding alignment.
    pub offset: u64,
    /// Length in bytes; `None` means up to the end of the tensor.
    pub bytes: Option<u64>,
    /// Whether the kernel writes to it.
    pub access: Access,
}

/// One kernel launch of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The engine that emitted it.
    pub engine: EngineId,
    /// Label for display.
    pub label: String,
    /// The kernel to launch.
    pub kernel: KernelSpec,
    /// Words of the kernel's parameter block.
    pub params: Vec<Word>,
    /// The tensors that it binds, in the order of the kernel's interface.
    pub bindings: SmallVec<[StepBinding; 4]>,
    /// Workgroups in x, y and z.
    pub grid: [Dim; 3],
    /// Estimated traffic and arithmetic; the planner fills it in after lowering.
    pub estimate: Estimate,
}

/// Estimated traffic and arithmetic of a step at the upper ends of the shape class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Operands and result of the step's group: `f32[1, 576] q4_k[1536, 576] -> f32[1, 1536]`.
    pub shapes: String,
    /// The step's share of the engine's cost.
    pub cost: Cost,
    /// Estimated seconds, by the heuristic that ranks engines.
    pub seconds: f64,
}

/// Collects the steps that one engine emits for one query.
pub struct Lowering<'a> {
    /// Profile of the device that the plan is for.
    pub profile: &'a DeviceProfile,
    /// The shape class of the plan.
    pub class: &'a ShapeClass,
    /// The engine that emits the steps.
    pub engine: EngineId,
    /// Label of the query, for display.
    pub label: String,
    /// The plan's tensors so far; engines add temporaries.
    pub tensors: &'a mut Vec<Tensor>,
    /// The plan's steps so far.
    pub steps: &'a mut Vec<Step>,
}

impl Lowering<'_> {
    /// Returns the size in bytes of the temporaries that `lower` requests; its steps are discarded.
    ///
    /// # Errors
    /// Same as `lower`.
    pub(super) fn on_paper(
        query: &Query,
        engine: &EngineId,
        lower: impl FnOnce(&mut Lowering) -> Result<()>,
    ) -> Result<u64> {
        let mut known: Vec<TensorId> = query.operands.iter().map(|view| view.tensor).collect();
        known.push(query.output.tensor);
        known.extend(query.body.iter().flat_map(|body| body.views()).map(|view| view.tensor));
        known.extend(query.fusion.iter().flat_map(|a| a.reads().into_iter().chain(a.writes())));
        known.extend(query.given.map(|given| given.tensor()));
        let count = known.iter().map(|id| id.index() + 1).max().unwrap_or(0);
        // Placeholders: existing tensors of any size.
        let known = Tensor { name: String::new(), role: TensorRole::Intermediate, bytes: 0 };
        let (mut tensors, mut steps) = (vec![known; count], Vec::new());
        lower(&mut Lowering {
            profile: query.profile,
            class: query.class,
            engine: engine.clone(),
            label: query.label.into(),
            tensors: &mut tensors,
            steps: &mut steps,
        })?;
        // Counters live across runs.
        let own = tensors[count..].iter().filter(|tensor| tensor.role != TensorRole::Counters);
        Ok(own.map(|tensor| tensor.bytes).sum())
    }

    /// Adds a temporary with elements of a type and returns a view of it.
    ///
    /// # Errors
    /// Invalid if the size is unbounded or does not fit in 64 bits.
    pub fn temp(&mut self, name: String, shape: &Shape, dtype: DType) -> Result<View> {
        let bytes = tensor_bytes(self.class, shape, dtype)?;
        self.tensors.push(Tensor { name, role: TensorRole::Intermediate, bytes });
        let id = TensorId((self.tensors.len() - 1) as u32);
        Ok(View::whole(id, shape.clone(), dtype, Format::Plain(dtype)))
    }

    /// Adds `count` counter words, zero before a run; the kernels that write them reset them.
    ///
    /// # Errors
    /// Invalid if `count` is unbounded or the size does not fit in 64 bits.
    pub fn counters(&mut self, name: String, count: &Dim) -> Result<TensorId> {
        let bytes = tensor_bytes(self.class, &Shape::new([count.clone()]), DType::U32)?;
        self.tensors.push(Tensor { name, role: TensorRole::Counters, bytes });
        Ok(TensorId((self.tensors.len() - 1) as u32))
    }

    /// Returns the view itself if it is contiguous, else a contiguous copy.
    ///
    /// # Errors
    /// Same as [`Lowering::copied`].
    pub fn contiguous(&mut self, view: &View) -> Result<View> {
        match view.is_contiguous() {
            true => Ok(view.clone()),
            false => self.copied(view),
        }
    }

    /// Copies a view to a new, contiguous temporary and returns a view of that.
    ///
    /// # Errors
    /// Same as [`Lowering::temp`] and [`super::copy`].
    pub fn copied(&mut self, view: &View) -> Result<View> {
        let copy = self.temp(format!("{}.contiguous", self.label), &view.shape, view.dtype)?;
        elementwise::copy(view, &copy, self)?;
        Ok(copy)
    }

    /// Returns the view itself if its rows have a common stride, else a contiguous copy; also
    /// returns the number of rows, the number of columns and the row stride.
    ///
    /// # Errors
    /// Same as [`Lowering::copied`].
    pub fn rows(&mut self, view: &View) -> Result<(View, Dim, Dim, Dim)> {
        if let Some((rows, cols, stride)) = view.as_rows() {
            return Ok((view.clone(), rows, cols, stride));
        }
        let copy = self.contiguous(view)?;
        let (rows, cols, stride) = copy
            .as_rows()
            .unwrap_or_else(|| broken_invariant("a tensor without gaps has rows at one distance"));
        Ok((copy, rows, cols, stride))
    }

    /// Returns a grid with at least `groups` workgroups, folded over x and y.
    pub fn fold(&self, groups: Dim) -> [Dim; 3] {
        let most = Dim::from(self.profile.max_workgroups_per_dim);
        let y = groups.ceil_div(&most);
        [groups.minimum(&most), y, Dim::new(1)]
    }

    /// Adds the launch of a catalogue kernel.
    ///
    /// # Errors
    /// Same as [`Lowering::step`].
    pub fn call(&mut self, call: Call) -> Result<()> {
        let Some((entry, _)) = catalogue::find(&call.spec.name) else {
            broken_invariant(format_args!("no kernel {} in the catalogue", call.spec.name));
        };
        let mut params = vec![Word::Bits(0); entry.param_words() as usize];
        for (place, name) in entry.params.iter().enumerate() {
            let found = call.params.iter().find(|(n, _)| n == name);
            let Some((_, word)) = found else {
                broken_invariant(format_args!("{} lacks parameter {name}", call.spec.name));
            };
            params[place] = word.clone();
        }
        if call.params.len() != entry.params.len() || call.bindings.len() != entry.bindings.len() {
            broken_invariant(format_args!("{}: wrong number of parameters", call.spec.name));
        }
        let own = call.bindings.into_iter().zip(entry.bindings);
        let mut bindings: SmallVec<[StepBinding; 4]> = own
            .map(|((tensor, offset, bytes), (_, access))| StepBinding {
                tensor,
                offset,
                bytes,
                access: *access,
            })
            .collect();
        if let Some(fusion) = call.fusion {
            let whole = |tensor: &TensorId, access| StepBinding {
                tensor: *tensor,
                offset: 0,
                bytes: None,
                access,
            };
            let output = bindings.pop();
            bindings.extend(fusion.reads.iter().map(|t| whole(t, Access::Read)));
            match fusion.writes.is_empty() {
                true => bindings.extend(output),
                false => {
                    bindings.extend(fusion.writes.iter().map(|t| whole(t, Access::ReadWrite)));
                }
            }
            params.truncate(entry.params.len());
            params.extend(fusion.words);
            params.resize(params.len().next_multiple_of(4), Word::Bits(0));
        }
        let spec = match entry.is_specialized() {
            true => {
                let settled = call.spec.defines.iter().any(|name| name == catalogue::SETTLED);
                let early = |place: u32| {
                    let own = entry.bindings.get(place as usize);
                    settled && own.is_some_and(|(name, _)| matches!(*name, "k" | "v"))
                };
                call.spec.known(self.known(&params, &bindings, early))
            }
            false => call.spec,
        };
        self.step(KernelSpec::Asset(spec), params, bindings, call.grid)
    }

    /// Returns the specialisation constants of a launch: none except on GPUs, where a variant per
    /// size is worth compiling. `early` returns whether the binding at an index may be read before
    /// earlier launches complete.
    fn known(
        &self,
        params: &[Word],
        bindings: &[StepBinding],
        early: impl Fn(u32) -> bool,
    ) -> Specialization {
        if !matches!(self.profile.kind, DeviceKind::Discrete | DeviceKind::Integrated) {
            return Specialization::default();
        }
        let words = params.iter().enumerate().filter_map(|(place, word)| match word {
            Word::Bits(bits) => Some((place as u32, *bits)),
            Word::Dim(_) => None,
        });
        let bound_once = |binding: &StepBinding| {
            let role = &self.tensors[binding.tensor.index()].role;
            matches!(role, TensorRole::Weight(_) | TensorRole::Merged(_) | TensorRole::Constant(_))
        };
        let places = (0..).zip(bindings);
        let steady = places
            .filter(|(place, b)| b.access == Access::Read && (bound_once(b) || early(*place)));
        let steady = steady.map(|(place, _)| place).collect();
        Specialization { words: words.collect(), steady, ..Specialization::default() }
    }

    /// Adds the launch of a kernel, with words, tensors and workgroups in the kernel's order.
    ///
    /// # Errors
    /// Unsupported if a tensor is larger than one binding of the device, or if the grid exceeds the
    /// device's limit along an axis.
    pub fn step(
        &mut self,
        kernel: KernelSpec,
        params: Vec<Word>,
        bindings: SmallVec<[StepBinding; 4]>,
        grid: [Dim; 3],
    ) -> Result<()> {
        for binding in &bindings {
            let tensor = &self.tensors[binding.tensor.index()];
            let bytes = binding.bytes.unwrap_or_else(|| tensor.bytes - binding.offset);
            if bytes > self.profile.max_binding_bytes {
                return Err(Error::unsupported(format!(
                    "{}: tensor {} has {bytes} bytes, one binding of {} holds {}",
                    self.label, tensor.name, self.profile.name, self.profile.max_binding_bytes
                )));
            }
        }
        let most = u64::from(self.profile.max_workgroups_per_dim);
        for (axis, groups) in ["x", "y", "z"].iter().zip(&grid) {
            let groups = self.class.upper(groups)?;
            if groups > most {
                return Err(Error::unsupported(format!(
                    "{}: {kernel} takes {groups} workgroups in {axis}, {} has {most}",
                    self.label, self.profile.name
                )));
            }
        }
        let (engine, label) = (self.engine.clone(), self.label.clone());
        let estimate = Estimate::default();
        self.steps.push(Step { engine, label, kernel, params, bindings, grid, estimate });
        Ok(())
    }
}

/// Returns the maximum bytes of a tensor in a shape class, as a nonzero multiple of [`GRANULE`].
///
/// # Errors
/// Invalid if the size is unbounded or does not fit in 64 bits.
pub fn tensor_bytes(class: &ShapeClass, shape: &Shape, dtype: DType) -> Result<u64> {
    let mut bytes = dtype.bytes();
    for dim in shape.dims() {
        bytes = bytes
            .checked_mul(class.upper(dim)?)
            .ok_or_else(|| Error::invalid(format!("tensor {shape} does not fit 64 bits")))?;
    }
    Ok(bytes.max(1).next_multiple_of(GRANULE))
}

/// The launch of a catalogue kernel, with parameters by name.
pub struct Call {
    spec: AssetSpec,
    params: Vec<(&'static str, Word)>,
    bindings: Vec<(TensorId, u64, Option<u64>)>,
    fusion: Option<LoweredFusion>,
    grid: [Dim; 3],
}

impl Call {
    /// Creates a launch of one workgroup without parameters.
    pub fn new(spec: AssetSpec) -> Call {
        let grid = [Dim::new(1), Dim::new(1), Dim::new(1)];
        Call { spec, params: Vec::new(), bindings: Vec::new(), fusion: None, grid }
    }

    /// Sets a parameter to a size.
    ///
    /// # Errors
    /// Invalid for a constant that does not fit in 32 bits.
    pub fn dim(mut self, name: &'static str, value: &Dim) -> Result<Call> {
        self.params.push((name, Word::dim(value)?));
        Ok(self)
    }

    /// Sets a parameter to an integer.
    pub fn u32(mut self, name: &'static str, value: u32) -> Call {
        self.params.push((name, Word::Bits(value)));
        self
    }

    /// Sets a parameter to a float.
    pub fn f32(mut self, name: &'static str, value: f32) -> Call {
        self.params.push((name, Word::f32(value)));
        self
    }

    /// Binds a whole tensor to the next binding.
    pub fn bind(mut self, tensor: TensorId) -> Call {
        self.bindings.push((tensor, 0, None));
        self
    }

    /// Binds a byte range of a tensor to the next binding.
    pub fn bind_part(mut self, tensor: TensorId, offset: u64, bytes: u64) -> Call {
        self.bindings.push((tensor, offset, Some(bytes)));
        self
    }

    /// Fuses work into the kernel. The last tensor bound is the output of the kernel itself; it is
    /// dropped if the fusion writes other tensors instead.
    pub fn fusion(mut self, fusion: LoweredFusion) -> Call {
        self.spec = self.spec.attach(fusion.attachment.clone());
        self.fusion = Some(fusion);
        self
    }

    /// Adds the fusion of the query, if it has one.
    ///
    /// # Errors
    /// Same as [`super::Fusion::attach`].
    pub fn around_query(self, query: &Query) -> Result<Call> {
        match query.fusion {
            Some(fusion) if !fusion.is_empty() => Ok(self.fusion(fusion.attach(false)?)),
            _ => Ok(self),
        }
    }

    /// Sets the grid in workgroups.
    pub fn grid(mut self, grid: [Dim; 3]) -> Call {
        self.grid = grid;
        self
    }
}

impl Query<'_> {
    /// Returns the total stored bytes of operands and result at the upper ends of the shape class.
    pub fn total_bytes(&self) -> f64 {
        let bytes = |view: &View| {
            let elements = view.shape.dims().iter().map(|d| self.upper(d).unwrap_or(1) as f64);
            let each = view.format.block_bytes() as f64 / view.format.block_len() as f64;
            elements.product::<f64>() * each
        };
        self.operands.iter().map(bytes).sum::<f64>() + bytes(self.output)
    }

    /// Returns the elements of the result at the upper ends of the shape class.
    pub fn output_elements(&self) -> f64 {
        let dims = self.output.shape.dims().iter();
        dims.map(|d| self.upper(d).unwrap_or(1) as f64).product()
    }
}
