//! Looks up kernels and prepares recordings.

use std::sync::Arc;

use super::epilogue::Epilogue;
use super::fused;
use super::kernels::{self, KernelFn};
use super::memory::Memory;
use super::source::Source;
use warploom_core::base::{DType, Format};
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Callee, CheckedRecording};
use warploom_hal::{BufferRange, Command, DeviceProfile, Recording};
use warploom_kernels::{Access, Interface, KernelSpec, catalogue};

/// A kernel ready to be called.
pub(super) struct Kernel {
    pub(super) body: Body,
    /// The fused prologue and epilogues.
    pub(super) fusion: Option<Epilogue>,
    pub(super) format: Format,
    /// Whether [`catalogue::IN_ORDER`] is requested.
    pub(super) in_order: bool,
    /// Whether [`catalogue::TOKEN`] is requested.
    pub(super) token: bool,
    /// Whether [`catalogue::ROUNDED`] is requested.
    pub(super) rounded: bool,
    /// Name for messages.
    pub(super) name: String,
    /// Names and accesses of its bindings.
    pub(super) bindings: Vec<(&'static str, Access)>,
    /// Number of its parameter words, padded, and the accesses of its bindings.
    pub(super) interface: Interface,
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
                let (token, rounded) = (defined(catalogue::TOKEN), defined(catalogue::ROUNDED));
                let usual = if halves { Format::Plain(DType::F16) } else { Format::F32 };
                let (body, format) = (Body::Function(function), format.unwrap_or(usual));
                let kernel = Kernel::plain(spec, body, bindings, words);
                Ok(Kernel { fusion, format, in_order, token, rounded, ..kernel })
            }
            KernelSpec::Fused(expr) => {
                let program = fused::Program::new(expr, fused::Role::Kernel)?;
                let mut bindings = vec![("x", Access::Read); expr.reads() as usize];
                bindings.resize((expr.reads() + expr.writes()) as usize, ("y", Access::ReadWrite));
                let words = expr.raw_param_words() as usize;
                Ok(Kernel::plain(spec, Body::Fused(program), bindings, words))
            }
            KernelSpec::Routine(routine) => {
                Err(Error::unsupported(format!("{routine}: the CPU calls no vendor's library")))
            }
            KernelSpec::Source(source) => {
                let body = Body::Source(Box::new(Source::new(source)?));
                let bindings = source.bindings.iter().map(|access| ("buffer", *access)).collect();
                Ok(Kernel::plain(spec, body, bindings, source.param_words as usize))
            }
        }
    }

    /// Creates a kernel without fusion or defines. `words` is the number of its parameter words.
    fn plain(
        spec: &KernelSpec,
        body: Body,
        bindings: Vec<(&'static str, Access)>,
        words: usize,
    ) -> Kernel {
        let accesses = bindings.iter().map(|(_, access)| *access).collect();
        let param_words = words.next_multiple_of(4) as u32;
        Kernel {
            body,
            fusion: None,
            format: Format::F32,
            in_order: false,
            token: false,
            rounded: false,
            name: spec.name().to_string(),
            bindings,
            interface: Interface { param_words, bindings: accesses },
        }
    }
}

impl Callee for Kernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn least_bytes(&self, _binding: usize) -> u64 {
        // Every access is checked against its binding.
        4
    }
}

/// A prepared recording.
pub(super) struct Prepared {
    pub(super) work: CheckedRecording,
    pub(super) kernels: Vec<Arc<Kernel>>,
    /// Whether it downloads or takes timestamps.
    pub(super) has_results: bool,
}

/// Checks a recording and looks up its kernels with `find`.
///
/// # Errors
/// Invalid if a kernel is not compiled. Otherwise same as [`CheckedRecording::check`].
pub(super) fn prepare(
    work: &Recording,
    slots: &[Option<BufferRange>],
    profile: &DeviceProfile,
    memory: &Memory,
    find: impl Fn(&KernelSpec) -> Option<Arc<Kernel>>,
) -> Result<Prepared> {
    let mut kernels = Vec::with_capacity(work.kernels.len());
    for spec in &work.kernels {
        kernels.push(find(spec).ok_or_else(|| {
            let missing = Error::invalid(format!("kernel {spec} is not compiled"));
            missing.context(format!("recording {:?}", work.label))
        })?);
    }
    let callees: Vec<&Kernel> = kernels.iter().map(Arc::as_ref).collect();
    let checked = CheckedRecording::check(work, &callees, profile, memory, slots)?;
    let is_result =
        |command: &Command| matches!(command, Command::Download { .. } | Command::Timestamp);
    let has_results = work.commands.iter().any(is_result);
    Ok(Prepared { work: checked, kernels, has_results })
}
