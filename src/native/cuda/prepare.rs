//! Prepared work: checked steps, parameters on the device, and the calls that need no more looking.

use std::sync::Arc;

use super::compile::Kernel;
use super::device::{CudaDevice, State};
use super::graph::{Call, Graph};
use super::memory::Memory;
use crate::error::{Error, Result};
use crate::native::{Argument, Launch, Program, Work};
use crate::provider::{BufferRange, PreparedId, Recording};

/// A recording with everything looked up and written that can be.
pub(super) struct Prepared {
    // Before the kernels, whose functions it names: dropped in this order.
    pub(super) graphs: Vec<Option<Graph>>,
    pub(super) work: Work,
    pub(super) kernels: Vec<Arc<Kernel>>,
    /// The parameter blocks.
    pub(super) params: Option<Memory>,
    /// What each launch passes, by its index.
    pub(super) calls: Vec<Call>,
    /// Submits so far.
    pub(super) submits: u64,
}

impl CudaDevice {
    pub(super) fn prepare_recording(
        &self,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<PreparedId> {
        self.gpu.check_lost()?;
        let _current = self.gpu.enter()?;
        let mut guard = self.state();
        let State { buffers, kernels, staging, prepared, .. } = &mut *guard;
        let kernels = recording.kernels.iter().map(|spec| {
            let kernel = kernels.get(spec).cloned();
            kernel.ok_or_else(|| {
                let label = &recording.label;
                Error::invalid(format!("recording {label:?}: kernel {spec} is not compiled"))
            })
        });
        let kernels = kernels.collect::<Result<Vec<Arc<Kernel>>>>()?;
        let programs: Vec<&Program> = kernels.iter().map(|kernel| &kernel.program).collect();
        let work = Work::check(recording, &programs, &self.profile, buffers, slots)?;
        let bytes = work.params();
        let params = if bytes.is_empty() {
            None
        } else {
            let what = format!("the parameters of recording {:?}", work.label);
            let memory = Memory::zeroed(&self.gpu, bytes.len() as u64, &what)?;
            staging.upload(&self.gpu, memory.address, bytes)?;
            Some(memory)
        };
        let params_at = params.as_ref().map_or(0, |memory| memory.address);
        let call = |launch: &Launch| {
            let kernel = &kernels[launch.kernel as usize];
            let mut call = Call {
                function: kernel.function,
                block: kernel.program.translated.workgroup_size,
                pointers: Default::default(),
                lengths: kernel.program.lengths(launch),
            };
            let bound = |i: usize| {
                let binding = &launch.bindings[i];
                let range = slots[binding.slot as usize]?;
                let memory = buffers.memory(range.buffer).ok()?;
                Some(memory.address + range.offset + binding.offset)
            };
            // Those of slots that are left open are set at each submit.
            let pointers = kernel.program.arguments.iter().map(|argument| match argument {
                Argument::Params => params_at + launch.params.unwrap_or(0),
                Argument::Storage(i) => bound(*i).unwrap_or(0),
            });
            call.pointers = pointers.collect();
            call
        };
        let calls = work.launches().map(call).collect();
        let graphs = Vec::new();
        let (index, generation) =
            prepared.insert(Prepared { graphs, work, kernels, params, calls, submits: 0 });
        Ok(PreparedId { index, generation })
    }
}
