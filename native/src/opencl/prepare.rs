//! Prepared recordings: checked, with a kernel instance and its arguments for each launch.

use std::sync::Arc;

use super::cl::Kernel as Handle;
use super::compile::Kernel;
use super::device::{OpenClDevice, State};
use super::memory::Buffer;
use crate::{Argument, Buffers, Program};
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{CheckedRecording, Launch};
use warploom_hal::{Binding, BufferRange, PreparedId, Recording};

/// A recording with everything resolved, built and set in advance.
pub(super) struct Prepared {
    pub(super) work: CheckedRecording,
    /// The recording's kernels, which the caller may free before the recording.
    pub(super) kernels: Vec<Arc<Kernel>>,
    /// A kernel instance with its arguments for each launch.
    pub(super) launches: Vec<Handle>,
    /// The parameter blocks in device memory; `None` if there are none.
    pub(super) params: Option<Buffer>,
}

impl OpenClDevice {
    pub(super) fn prepare_recording(
        &self,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<PreparedId> {
        self.faults.check_lost()?;
        let mut guard = self.state();
        let ready = self.make_ready(&mut guard, recording, slots)?;
        let (index, generation) = guard.prepared.insert(ready);
        Ok(PreparedId { index, generation })
    }

    fn make_ready(
        &self,
        state: &mut State,
        recording: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<Prepared> {
        let State { kernels, buffers, staged, .. } = state;
        let named = |error: Error| error.context(format!("recording {:?}", recording.label));
        let found = recording.kernels.iter().map(|spec| {
            let missing = || named(Error::invalid(format!("kernel {spec} is not compiled")));
            kernels.get(spec).cloned().ok_or_else(missing)
        });
        let kernels: Vec<Arc<Kernel>> = found.collect::<Result<_>>()?;
        let programs: Vec<&Program> = kernels.iter().map(|kernel| &kernel.program).collect();
        let work = CheckedRecording::check(recording, &programs, &self.profile, buffers, slots)?;
        let mut params = None;
        if !work.params().is_empty() {
            let bytes = work.params();
            let made = Buffer::new(self.context(), &self.queue, bytes.len() as u64, false);
            let made = made.map_err(|code| named(self.fault(code, "its parameters")))?;
            let written = staged.write(&self.queue, made.whole(), 0, bytes);
            written.map_err(|code| named(self.fault(code, "its parameters")))?;
            params = Some(made);
        }
        let mut launches = Vec::new();
        for launch in work.launches() {
            let kernel = &kernels[launch.kernel as usize];
            let instance = kernel.instance();
            let mut handle = instance.map_err(|code| named(self.fault(code, &launch.label)))?;
            if !launch.is_open() {
                // None of its slots is open.
                let range = |binding: &Binding| work.fixed_range(binding);
                let set = Setting { kernel, launch, params: params.as_ref(), buffers };
                self.set_arguments(&mut handle, &set, range).map_err(named)?;
            }
            launches.push(handle);
        }
        Ok(Prepared { work, kernels, launches, params })
    }

    /// Sets all arguments of a launch; `range` resolves a binding.
    pub(super) fn set_arguments(
        &self,
        handle: &mut Handle,
        setting: &Setting<'_>,
        range: impl Fn(&Binding) -> Option<BufferRange>,
    ) -> Result<()> {
        let Setting { kernel, launch, params, buffers } = *setting;
        let refused = |code| self.fault(code, &format!("the arguments of {:?}", launch.label));
        let mut index = 0;
        for argument in &kernel.program.arguments {
            let place = match argument {
                Argument::Params => params.zip(launch.params),
                Argument::Storage(place) => match launch.bindings.get(*place).and_then(&range) {
                    Some(range) => Some((buffers.memory(range.buffer)?, range.offset)),
                    None => None,
                },
            };
            // Checked with the work: each argument has its block or its buffer.
            let (buffer, at) = place.ok_or_else(|| {
                let label = &launch.label;
                Error::invalid(format!("{label:?}: argument {index} has no buffer"))
            })?;
            // SAFETY: the kernel takes a buffer and an offset for each. A buffer that is freed
            // meanwhile is detected before the next launch.
            unsafe { handle.set_memory(index, buffer.whole()) }.map_err(refused)?;
            // SAFETY: as above.
            unsafe { handle.set_ulong(index + 1, at) }.map_err(refused)?;
            index += 2;
        }
        let lengths = kernel.program.lengths(launch);
        if !lengths.is_empty() {
            // SAFETY: the struct after the buffers has this number of words.
            unsafe { handle.set_words(index, &lengths) }.map_err(refused)?;
        }
        Ok(())
    }
}

/// The objects that the arguments of a launch are set from.
pub(super) struct Setting<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) launch: &'a Launch,
    pub(super) params: Option<&'a Buffer>,
    pub(super) buffers: &'a Buffers<Buffer>,
}
