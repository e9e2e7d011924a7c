//! Moves long work of futures, such as planning and compiling, off the polling thread.

use std::sync::Arc;

use super::Runtime;
use crate::base::platform::MaybeSendValue;
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::{block_on, blocking, runs_in_place};
use crate::error::Result;
use crate::kernel::KernelSpec;
use crate::provider::{BufferRange, Device, PreparedId, Recording, Resource};

impl Runtime {
    /// Runs `work` on this thread if the thread may block ([`runs_in_place`]), else on a background
    /// thread of this runtime, which runs one job at a time. Dropping the future does not stop work
    /// that has begun.
    ///
    /// # Errors
    /// The errors of `work`; a device error if it panics on the background thread.
    pub async fn offload<T: MaybeSendValue + 'static>(
        &self,
        work: impl FnOnce(&Runtime) -> Result<T> + MaybeSendValue + 'static,
    ) -> Result<T> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let runtime = self.clone();
            return self.0.planner.run(move || blocking(|| work(&runtime))).await;
        }
        work(self)
    }

    /// Compiles kernels, in parallel if the device supports it.
    ///
    /// # Errors
    /// Compile errors that name the kernel and the device.
    pub(super) async fn compile(&self, kernels: &[KernelSpec]) -> Result<()> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let kernels = kernels.to_vec();
            let compile = move |runtime: &Runtime| block_on(compile_on(runtime.device(), &kernels));
            return self.offload(compile).await;
        }
        compile_on(self.device(), kernels).await
    }
}

async fn compile_on(device: &Arc<dyn Device>, kernels: &[KernelSpec]) -> Result<()> {
    // All kernels are requested before the first is awaited: some devices compile in parallel.
    let compiling: Vec<_> = kernels.iter().map(|spec| device.compile(spec)).collect();
    for (spec, compiled) in kernels.iter().zip(compiling) {
        compiled.await.map_err(|e| {
            e.context(format_args!("compiling {spec} on {}", device.profile().id()))
        })?;
    }
    Ok(())
}

/// Prepared work, freed on drop.
pub(super) struct Prepared {
    device: Arc<dyn Device>,
    pub(super) id: PreparedId,
}

impl Prepared {
    /// Prepares a recording, with a buffer range for each bound slot.
    ///
    /// # Errors
    /// Same as [`Device::prepare`].
    pub(super) fn new(
        device: &Arc<dyn Device>,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<Prepared> {
        let id = device.prepare(recording, slots)?;
        Ok(Prepared { device: device.clone(), id })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.device.free(Resource::Prepared(self.id));
    }
}
