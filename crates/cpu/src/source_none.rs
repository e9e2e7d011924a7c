//! A user's WGSL in a build without the interpreter (the feature `translate` of the main crate).

use super::call::Call;
use warploom_core::error::{Error, Result};
use warploom_kernels::SourceSpec;

/// A WGSL kernel, which this build cannot create.
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

    /// Never called, since no value of [`Source`] exists.
    pub(super) fn run(&self, _call: &Call, _groups: [u32; 3]) -> Result<()> {
        match *self {}
    }
}
