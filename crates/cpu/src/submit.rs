//! Executes prepared work: first all checks, then the commands in order.

use smallvec::SmallVec;

use super::call::{Call, Context, Span};
use super::clock::Clock;
use super::memory::Memory;
use super::prepare::{Body, Prepared};
use warploom_core::error::{Error, Result};
use warploom_hal::checked::{Launch, Resolved, ResolvedCommand};
use warploom_hal::{Args, BufferRange, Completion, Counters};

/// The current work, resolved: what changes, and the memory of its slots. Memory that is freed
/// meanwhile is kept, so that queued work needs no table of buffers.
#[derive(Default)]
pub(super) struct Scratch {
    resolved: Vec<Resolved>,
    spans: Vec<Span>,
    /// Start of each work item in `spans`.
    starts: Vec<usize>,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.resolved.clear();
        self.spans.clear();
        self.starts.clear();
    }

    /// Checks and resolves one more work item.
    ///
    /// # Errors
    /// Same as [`warploom_hal::checked::CheckedRecording::evaluate`].
    pub(super) fn resolve(&mut self, work: &Prepared, args: &Args, memory: &Memory) -> Result<()> {
        let resolved = work.work.evaluate(memory, args)?;
        self.starts.push(self.spans.len());
        for slot in resolved.slots() {
            self.spans.push(memory.span(*slot)?);
        }
        self.resolved.push(resolved);
        Ok(())
    }

    /// Executes the resolved work item at `index`, and adds its results to `done`.
    ///
    /// # Errors
    /// Invalid, naming the launch, if a kernel's access exceeds its binding; the remaining commands
    /// are skipped.
    pub(super) fn run(
        &self,
        index: usize,
        prepared: &Prepared,
        args: &Args,
        machine: &Machine<'_>,
        counters: &mut Counters,
        done: &mut Completion,
    ) -> Result<()> {
        let resolved = &self.resolved[index];
        let spans = &self.spans[self.starts[index]..][..resolved.slots().len()];
        let mut run = Run { prepared, resolved, spans, machine, counters, done };
        for command in prepared.work.commands(resolved, args) {
            match command {
                ResolvedCommand::Launch { launch, grid } => {
                    let label = &launch.label;
                    run.launch(launch, grid).map_err(|e| {
                        e.context(format!("recording {:?}, {label:?}", prepared.work.label))
                    })?;
                }
                command => run.transfer(command),
            }
        }
        Ok(())
    }
}

/// The parts of a device that execute work: threads, vector functions and the clock.
pub(super) struct Machine<'a> {
    pub(super) context: &'a Context,
    pub(super) clock: &'a Clock,
}

struct Run<'a> {
    prepared: &'a Prepared,
    resolved: &'a Resolved,
    /// The memory of each slot.
    spans: &'a [Span],
    machine: &'a Machine<'a>,
    counters: &'a mut Counters,
    done: &'a mut Completion,
}

impl Run<'_> {
    fn launch(&mut self, launch: &Launch, grid: [u32; 3]) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let Some(kernel) = self.prepared.kernels.get(launch.kernel as usize) else {
            return Err(Error::invalid(format!("kernel {} does not exist", launch.kernel)));
        };
        let spans: SmallVec<[Span; 8]> = launch
            .bindings
            .iter()
            .map(|binding| {
                // The binding lies within the slot, and the slot within its buffer, which ends with
                // a whole word; all was checked.
                let ptr = self.spans[binding.slot as usize].ptr;
                Span { ptr: ptr.wrapping_add(binding.offset as usize), bytes: binding.bytes }
            })
            .collect();
        let count = kernel.interface.param_words as usize;
        let params = self.resolved.words(&self.prepared.work, launch, count);
        let call = Call {
            params: &params,
            spans: &spans,
            format: kernel.format,
            in_order: kernel.in_order,
            rounded: kernel.rounded,
            token: kernel.token,
            names: &kernel.bindings,
            fusion: kernel.fusion.as_ref(),
            context: self.machine.context,
        };
        self.counters.dispatches += 1;
        match &kernel.body {
            Body::Function(function) => function(&call),
            Body::Fused(program) => super::fused::run(program, &call),
            Body::Source(source) => source.run(&call, grid),
        }
    }

    fn transfer(&mut self, command: ResolvedCommand<'_>) {
        match command {
            ResolvedCommand::Launch { .. } => {}
            ResolvedCommand::Upload { to, bytes } => {
                let Some(to) = self.span(to) else { return };
                let rest = to.bytes as usize - bytes.len();
                // SAFETY: the range is checked and has up to three bytes more; host bytes are never
                // part of a device's buffer.
                unsafe {
                    bytes.as_ptr().copy_to_nonoverlapping(to.ptr, bytes.len());
                    to.ptr.add(bytes.len()).write_bytes(0, rest);
                }
                self.counters.uploaded_bytes += bytes.len() as u64;
            }
            ResolvedCommand::Copy { from, to } => {
                let (Some(from), Some(to)) = (self.span(from), self.span(to)) else { return };
                // SAFETY: both ranges are checked and have the same size; `copy_to` allows any
                // overlap.
                unsafe { from.ptr.copy_to(to.ptr, to.bytes as usize) };
            }
            ResolvedCommand::Clear { range } => {
                let Some(to) = self.span(range) else { return };
                // SAFETY: the range is checked.
                unsafe { to.ptr.write_bytes(0, to.bytes as usize) };
            }
            ResolvedCommand::Download { from } => {
                let bytes = self.span(from).map(|from| {
                    // SAFETY: the range is checked and initialised, and nothing writes meanwhile.
                    unsafe { std::slice::from_raw_parts(from.ptr, from.bytes as usize) }.to_vec()
                });
                self.done.downloads.push(bytes.unwrap_or_default());
                self.counters.downloaded_bytes += from.bytes;
            }
            ResolvedCommand::Timestamp => {
                self.done.timestamps.push(self.machine.clock.nanoseconds());
            }
        }
    }

    /// Returns the memory of a range within the buffer of a slot, or `None` if it is empty.
    fn span(&self, range: BufferRange) -> Option<Span> {
        let slots = self.resolved.slots();
        let slot = slots.iter().position(|slot| slot.buffer == range.buffer)?;
        let begin = self.spans[slot].ptr.wrapping_sub(slots[slot].offset as usize);
        let ptr = begin.wrapping_add(range.offset as usize);
        (range.bytes > 0).then_some(Span { ptr, bytes: range.bytes })
    }
}
