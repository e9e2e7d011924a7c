//! Resolves the parts of a recording that do not change from run to run into steps.

use std::sync::Arc;

use smallvec::SmallVec;

use super::epilogue::Epilogue;
use super::kernels::{self, KernelFn};
use super::memory::{ALIGNMENT, Memory};
use super::source::Source;
use super::{clock, fused};
use warploom_core::base::{DType, Dim, Format, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_hal::{
    BufferRange, Command, Dispatch, Recording, SlotDecl, SlotRange, UploadSource, Word,
};
use warploom_kernels::{Access, KernelSpec, catalogue};

/// A kernel ready to be called.
pub(super) struct Kernel {
    pub(super) body: Body,
    /// Its fused prologue and epilogues.
    pub(super) fusion: Option<Epilogue>,
    pub(super) format: Format,
    /// Whether [`catalogue::IN_ORDER`] is requested.
    pub(super) in_order: bool,
    /// Whether [`catalogue::TOKEN`] is requested.
    pub(super) token: bool,
    /// Names and accesses of its bindings.
    pub(super) bindings: Vec<(&'static str, Access)>,
    /// Number of its parameter words, without padding.
    pub(super) words: usize,
}

/// The implementation of a kernel.
pub(super) enum Body {
    /// A function of the module `kernels`.
    Function(KernelFn),
    /// A translated expression.
    Fused(fused::Program),
    /// A user's WGSL.
    Source(Box<Source>),
}

impl Kernel {
    /// Looks up a catalogue kernel, or translates any other kernel.
    ///
    /// # Errors
    /// Compile for invalid WGSL. Unsupported for a name that is not in the catalogue, for a fusion
    /// that the kernel does not accept, for a routine of a vendor's library, and for an operation
    /// that is undefined for its operand types. Invalid for a malformed expression.
    pub(super) fn new(spec: &KernelSpec) -> Result<Kernel> {
        match spec {
            KernelSpec::Asset(asset) => {
                let unknown = || Error::unsupported(format!("kernel {:?} on the CPU", asset.name));
                let (entry, format) = catalogue::find(&asset.name).ok_or_else(unknown)?;
                if format.is_some_and(Format::is_kept) {
                    return Err(unknown());
                }
                let function = kernels::find(entry.name).ok_or_else(unknown)?;
                let (mut bindings, mut words) = (entry.bindings.to_vec(), entry.params.len());
                let mut fusion = None;
                if let Some(attachment) = &asset.fusion {
                    let with = Epilogue::new(&asset.name, entry, attachment);
                    // By name only: a malformed body must not be printed.
                    let with = with.map_err(|e| e.context(format!("kernel {:?}", asset.name)))?;
                    bindings = with.bindings(entry, attachment);
                    words += attachment.words(entry.is_linear()) as usize;
                    fusion = Some(with);
                }
                let defined = |name: &str| asset.defines.iter().any(|define| define == name);
                let (halves, in_order) = (defined(catalogue::F16_KV), defined(catalogue::IN_ORDER));
                let token = defined(catalogue::TOKEN);
                let usual = if halves { Format::Plain(DType::F16) } else { Format::F32 };
                let (body, format) = (Body::Function(function), format.unwrap_or(usual));
                Ok(Kernel { body, fusion, format, in_order, token, bindings, words })
            }
            KernelSpec::Fused(expr) => {
                let program = fused::Program::new(expr, fused::Role::Kernel)?;
                let mut bindings = vec![("x", Access::Read); expr.reads() as usize];
                bindings.resize((expr.reads() + expr.writes()) as usize, ("y", Access::ReadWrite));
                let words = expr.raw_param_words() as usize;
                Ok(Kernel::plain(Body::Fused(program), bindings, words))
            }
            KernelSpec::Routine(routine) => {
                Err(Error::unsupported(format!("{routine}: the CPU calls no vendor's library")))
            }
            KernelSpec::Source(source) => {
                let body = Body::Source(Box::new(Source::new(source)?));
                let bindings = source.bindings.iter().map(|access| ("buffer", *access)).collect();
                Ok(Kernel::plain(body, bindings, source.param_words as usize))
            }
        }
    }

    /// Creates a kernel that is not in the catalogue.
    fn plain(body: Body, bindings: Vec<(&'static str, Access)>, words: usize) -> Kernel {
        let (fusion, format) = (None, Format::F32);
        Kernel { body, fusion, format, in_order: false, token: false, bindings, words }
    }
}

/// A prepared recording.
pub(super) struct Prepared {
    pub(super) label: String,
    pub(super) slots: Vec<Slot>,
    /// Every parameter block, contiguous; words that change from run to run are 0.
    pub(super) words: Vec<u32>,
    /// Words that change from run to run: index in `words`, and expression.
    pub(super) changing: Vec<(usize, Word)>,
    pub(super) steps: Vec<Step>,
    /// Whether it downloads or takes timestamps.
    pub(super) has_results: bool,
}

/// A buffer slot of a recording.
pub(super) struct Slot {
    pub(super) decl: SlotDecl,
    /// The buffer, if `prepare` bound one.
    pub(super) fixed: Option<BufferRange>,
}

/// A size or an offset in bytes, constant or changing from run to run.
pub(super) enum Size {
    Fixed(u64),
    Changing(Dim),
}

impl Size {
    fn new(dim: &Dim) -> Result<Size> {
        match dim.as_const() {
            Some(_) => Ok(Size::Fixed(dim.eval_size(&SymbolValues::new())?)),
            None => Ok(Size::Changing(dim.clone())),
        }
    }

    pub(super) fn eval(&self, symbols: &SymbolValues) -> Result<u64> {
        match self {
            Size::Fixed(size) => Ok(*size),
            Size::Changing(dim) => dim.eval_size(symbols),
        }
    }
}

/// A range of a slot.
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) offset: Size,
    pub(super) bytes: Size,
}

/// A binding: index of the slot, byte offset, and size in bytes.
pub(super) type Bound = (usize, u64, u64);

/// A resolved command.
pub(super) enum Step {
    Dispatch {
        kernel: Arc<Kernel>,
        /// Range of its parameter words in [`Prepared::words`].
        params: std::ops::Range<usize>,
        bindings: SmallVec<[Bound; 4]>,
        /// Workgroups in x, y and z.
        grid: [Dim; 3],
        label: String,
    },
    Upload {
        to: Place,
        source: UploadSource,
    },
    Copy {
        from: Place,
        to: Place,
    },
    Clear(Place),
    Download(Place),
    Timestamp,
}

/// Resolves a recording. `find` looks up a compiled kernel.
///
/// # Errors
/// Invalid, naming the command, if it refers to an object that does not exist or to a range past
/// the end of one. Unsupported for timestamps if there is no clock.
pub(super) fn prepare(
    work: &Recording,
    slots: &[Option<BufferRange>],
    memory: &Memory,
    find: impl Fn(&KernelSpec) -> Option<Arc<Kernel>>,
) -> Result<Prepared> {
    let in_recording = |e: Error| e.context(format!("recording {:?}", work.label));
    if slots.len() > work.slots.len() {
        let (have, want) = (slots.len(), work.slots.len());
        return Err(in_recording(Error::invalid(format!("{have} buffers for {want} slots"))));
    }
    let mut resolved = Vec::with_capacity(work.slots.len());
    for (i, decl) in work.slots.iter().enumerate() {
        let fixed = slots.get(i).copied().flatten();
        if let Some(range) = fixed {
            memory.span(range).and_then(|_| fits(decl, range)).map_err(in_recording)?;
        }
        resolved.push(Slot { decl: decl.clone(), fixed });
    }
    let mut kernels = Vec::with_capacity(work.kernels.len());
    for spec in &work.kernels {
        let missing = || in_recording(Error::invalid(format!("kernel {spec} is not compiled")));
        kernels.push(find(spec).ok_or_else(missing)?);
    }
    let (mut words, mut changing, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    for block in &work.params {
        let start = words.len();
        for word in &block.0 {
            match word {
                Word::Bits(bits) => words.push(*bits),
                Word::Dim(_) => {
                    changing.push((words.len(), word.clone()));
                    words.push(0);
                }
            }
        }
        blocks.push(start..words.len());
    }
    let tables = Tables { work, kernels, blocks };
    let mut steps = Vec::with_capacity(work.commands.len());
    for (i, command) in work.commands.iter().enumerate() {
        let step = tables.step(command);
        steps.extend(step.map_err(|e| in_recording(e.context(format!("command {i}"))))?);
    }
    let result = |step: &Step| matches!(step, Step::Download(_) | Step::Timestamp);
    let has_results = steps.iter().any(result);
    let label = work.label.clone();
    Ok(Prepared { label, slots: resolved, words, changing, steps, has_results })
}

/// Checks that a buffer is large enough for a slot and is aligned.
pub(super) fn fits(decl: &SlotDecl, range: BufferRange) -> Result<()> {
    if range.bytes < decl.bytes {
        return Err(Error::invalid(format!(
            "slot {:?} needs {} bytes, its buffer has {}",
            decl.name, decl.bytes, range.bytes
        )));
    }
    if !range.offset.is_multiple_of(ALIGNMENT) {
        return Err(Error::invalid(format!(
            "slot {:?} starts at byte {}, not a multiple of {ALIGNMENT}",
            decl.name, range.offset
        )));
    }
    Ok(())
}

struct Tables<'a> {
    work: &'a Recording,
    kernels: Vec<Arc<Kernel>>,
    blocks: Vec<std::ops::Range<usize>>,
}

impl Tables<'_> {
    /// Resolves a command to a step; `None` if it has no effect.
    fn step(&self, command: &Command) -> Result<Option<Step>> {
        Ok(Some(match command {
            Command::Dispatch(dispatch) => return self.dispatch(dispatch),
            Command::Upload { to, source } => {
                Step::Upload { to: self.place(to)?, source: source.clone() }
            }
            Command::Copy { from, to } => {
                Step::Copy { from: self.place(from)?, to: self.place(to)? }
            }
            Command::Clear { range } => Step::Clear(self.place(range)?),
            Command::Download { from } => Step::Download(self.place(from)?),
            Command::Timestamp if clock::AVAILABLE => Step::Timestamp,
            Command::Timestamp => {
                return Err(Error::unsupported("timestamps: this device has no clock"));
            }
        }))
    }

    fn slot(&self, slot: u32) -> Result<&SlotDecl> {
        let have = self.work.slots.len();
        let missing = || Error::invalid(format!("slot {slot} of {have} does not exist"));
        self.work.slots.get(slot as usize).ok_or_else(missing)
    }

    fn place(&self, range: &SlotRange) -> Result<Place> {
        self.slot(range.slot)?;
        let (offset, bytes) = (Size::new(&range.offset)?, Size::new(&range.bytes)?);
        Ok(Place { slot: range.slot as usize, offset, bytes })
    }

    fn dispatch(&self, dispatch: &Dispatch) -> Result<Option<Step>> {
        let label = &dispatch.label;
        let kernel = self.kernels.get(dispatch.kernel as usize);
        let kernel = kernel.ok_or_else(|| {
            Error::invalid(format!("{label:?}: kernel {} does not exist", dispatch.kernel))
        })?;
        let params = self.blocks.get(dispatch.params as usize).cloned().ok_or_else(|| {
            Error::invalid(format!("{label:?}: parameter block {} does not exist", dispatch.params))
        })?;
        if params.len() < kernel.words || params.len() > kernel.words.next_multiple_of(4) {
            let (have, want) = (params.len(), kernel.words);
            return Err(Error::invalid(format!("{label:?}: {have} parameters, not {want}")));
        }
        if dispatch.bindings.len() != kernel.bindings.len() {
            let (have, want) = (dispatch.bindings.len(), kernel.bindings.len());
            return Err(Error::invalid(format!("{label:?}: {have} bindings, not {want}")));
        }
        let mut bindings = SmallVec::new();
        for (binding, (name, access)) in dispatch.bindings.iter().zip(&kernel.bindings) {
            let decl = self.slot(binding.slot)?;
            let end = binding.offset.checked_add(binding.bytes);
            if end.is_none_or(|end| end > decl.bytes)
                || !binding.offset.is_multiple_of(ALIGNMENT)
                || binding.access != *access
            {
                return Err(Error::invalid(format!(
                    "{label:?}: binding {name} ({access:?}) is {binding:?} of slot {:?} with {} \
                     bytes; offsets are multiples of {ALIGNMENT}",
                    decl.name, decl.bytes
                )));
            }
            bindings.push((binding.slot as usize, binding.offset, binding.bytes));
        }
        if dispatch.grid.iter().any(|size| size.is(0)) {
            return Ok(None);
        }
        Ok(Some(Step::Dispatch {
            kernel: Arc::clone(kernel),
            params,
            bindings,
            grid: dispatch.grid.clone(),
            label: label.clone(),
        }))
    }
}
