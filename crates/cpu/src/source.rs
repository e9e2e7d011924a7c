//! A user's WGSL, run by the interpreter: slow, but with the same results as on a GPU.

use std::sync::atomic::AtomicU32;

use super::call::{Call, Span};
use warploom_core::error::{Error, Result};
use warploom_kernels::{Access, SourceSpec};
use warploom_wgsl::interpret::{Argument, Options, Program};

/// Maximum number of steps of one invocation. A loop that exceeds it is treated as endless, which
/// is an error at `wait`.
const MAX_STEPS: u64 = 1 << 28;

/// A checked WGSL kernel.
pub(super) struct Source(Program);

impl Source {
    /// Checks a kernel's text against its declared interface.
    ///
    /// # Errors
    /// Compile, with the source line or the binding that differs from its declaration; unsupported
    /// for WGSL that the interpreter does not support.
    pub(super) fn new(spec: &SourceSpec) -> Result<Source> {
        let constants: Vec<(String, f64)> =
            spec.constants.iter().map(|(name, value)| (name.clone(), value.value())).collect();
        let file = format!("{}.wgsl", spec.name);
        let program = Program::from_wgsl(&spec.wgsl, &file, Some(&spec.entry), &constants)
            .map_err(|e| if e.is_unsupported() { e } else { Error::compile(e.to_string()) })?;
        for binding in program.bindings() {
            let place = binding.binding.checked_sub(1);
            let declared = match place.map(|place| spec.bindings.get(place as usize)) {
                None => binding.uniform && binding.least_bytes <= block_bytes(spec.param_words),
                Some(Some(Access::ReadWrite)) => !binding.uniform,
                Some(Some(Access::Read)) => !binding.uniform && !binding.writable,
                Some(None) => false,
            };
            if binding.group != 0 || !declared {
                return Err(Error::compile(format!(
                    "kernel {}: @group({}) @binding({}) var {} is not as it is declared: {} words \
                     of parameters at binding 0 and {:?} from binding 1",
                    spec.name,
                    binding.group,
                    binding.binding,
                    binding.name,
                    spec.param_words,
                    spec.bindings
                )));
            }
        }
        Ok(Source(program))
    }

    /// Runs `groups` workgroups on the bound memory.
    ///
    /// # Errors
    /// Invalid for an endless loop or divergent barriers, with the source line, and for too many
    /// workgroups or a binding that is too small.
    pub(super) fn run(&self, call: &Call, grid: [u32; 3]) -> Result<()> {
        let params: Vec<AtomicU32> = call.params.iter().map(|word| AtomicU32::new(*word)).collect();
        let mut arguments = vec![Argument::new(0, 0, &params)];
        arguments.extend((1..).zip(call.spans).map(|(place, span)| {
            // SAFETY: the span is a checked range of a buffer, aligned to 4 bytes and live while
            // the device is locked; every access in that time goes through these atomics.
            Argument::new(0, place, unsafe { words(span) })
        }));
        let threads = call.context.pool.threads();
        let options = Options { max_steps: MAX_STEPS, threads, ..Options::default() };
        let run = self.0.run(grid, &arguments, &options);
        run.map(|_| ()).map_err(|failure| failure.into_error())
    }
}

fn block_bytes(words: u32) -> u32 {
    words.next_multiple_of(4).saturating_mul(4)
}

/// Returns memory as 32-bit words that invocations share.
///
/// # Safety
/// While the slice lives, the span is live and accessed only through atomics.
unsafe fn words<'a>(span: &Span) -> &'a [AtomicU32] {
    // SAFETY: by the caller's promise; an AtomicU32 has size, alignment and bits of a u32.
    unsafe { std::slice::from_raw_parts(span.ptr.cast::<AtomicU32>(), (span.bytes / 4) as usize) }
}
