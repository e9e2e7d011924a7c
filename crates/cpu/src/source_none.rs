//! A user's WGSL in a build without the feature `translate`, which contains the interpreter.

use super::call::Call;
use warploom_core::error::{Error, Result};
use warploom_kernels::SourceSpec;

/// WGSL, which this build cannot run.
pub(super) enum Source {}

impl Source {
    /// Refuses the kernel.
    ///
    /// # Errors
    /// Unsupported, always.
    pub(super) fn new(spec: &SourceSpec) -> Result<Source> {
        Err(Error::unsupported(format!(
            "kernel {:?} is WGSL, which the CPU runs only in builds with the feature translate",
            spec.name
        )))
    }

    /// Unreachable: no value exists.
    pub(super) fn run(&self, _call: &Call, _groups: [u64; 3]) -> Result<()> {
        match *self {}
    }
}
