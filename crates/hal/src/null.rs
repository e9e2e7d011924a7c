//! A device that executes nothing: it validates and counts the calls that it receives.
//!
//! It serves tests of submits, waits and allocations without hardware or results, and is selected
//! only by name. Downloads hold NaN, so that they are not mistaken for results.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Args, BufferId, BufferRange, Command, Completion, Counters, Device, DeviceKind, DeviceProfile,
    OpenOptions, PreparedId, Provider, Recording, Resource, Ticket, Usage,
};
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_kernels::KernelSpec;

/// The provider of a single null device.
#[derive(Debug, Default)]
pub struct NullProvider;

impl NullProvider {
    /// Returns the profile of the null device: WebGPU's minimum limits, except that it has 16 GiB
    /// of memory, which a single buffer may fill.
    pub fn profile() -> DeviceProfile {
        DeviceProfile {
            provider: "null".into(),
            kind: DeviceKind::Null,
            memory_bytes: 16 << 30,
            max_buffer_bytes: 16 << 30,
            max_binding_bytes: 16 << 30,
            ..DeviceProfile::webgpu_floor("executes nothing")
        }
    }

    /// Opens the null device synchronously.
    pub fn device(options: &OpenOptions) -> Arc<dyn Device> {
        let profile = NullProvider::profile();
        let budget = options.memory_budget.unwrap_or(profile.memory_bytes);
        Arc::new(NullDevice { profile, budget, state: Mutex::default() })
    }
}

impl Provider for NullProvider {
    fn name(&self) -> &'static str {
        "null"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        ready(Ok(vec![NullProvider::profile()]))
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(match index {
            0 => Ok(NullProvider::device(&options)),
            _ => Err(Error::invalid(format!("null:{index} does not exist, there is null:0 only"))),
        })
    }
}

struct NullDevice {
    profile: DeviceProfile,
    budget: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buffers: Vec<Option<u64>>,
    prepared: Vec<Option<Recording>>,
    kernels: HashSet<KernelSpec>,
    pending: Vec<(Ticket, Completion)>,
    tickets: u64,
    counters: Counters,
}

impl NullDevice {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic elsewhere the plain counters are still usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self, range: BufferRange) -> Result<()> {
        let have = self.buffers.get(range.buffer.index as usize).copied().flatten();
        let have = have.ok_or_else(|| Error::invalid(format!("{:?} is not live", range.buffer)))?;
        match range.offset.checked_add(range.bytes) {
            Some(end) if end <= have => Ok(()),
            _ => Err(Error::invalid(format!("{range:?} passes the buffer's end at {have}"))),
        }
    }

    fn run(&mut self, work: &Recording, args: &Args, out: &mut Completion) -> Result<()> {
        for command in &work.commands {
            match command {
                Command::Dispatch(dispatch) => {
                    self.counters.dispatches += 1;
                    for word in &work.params[dispatch.params as usize].0 {
                        word.eval(&args.symbols)?;
                    }
                    for size in &dispatch.grid {
                        size.eval_size(&args.symbols)?;
                    }
                }
                Command::Upload { to, .. } => {
                    self.counters.uploaded_bytes += to.bytes.eval_size(&args.symbols)?;
                }
                Command::Download { from } => {
                    let bytes = from.bytes.eval_size(&args.symbols)?;
                    self.counters.downloaded_bytes += bytes;
                    out.downloads.push(undefined(bytes));
                }
                Command::Timestamp => out.timestamps.push(self.tickets),
                Command::Copy { .. } | Command::Clear { .. } => {}
            }
        }
        Ok(())
    }
}

impl Device for NullDevice {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        let mut state = self.state();
        if state.kernels.insert(spec.clone()) {
            state.counters.compiles += 1;
        }
        ready(warploom_kernels::catalogue::interface(spec).map(|_| ()))
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        let mut state = self.state();
        let have = self.budget.saturating_sub(state.counters.allocated_bytes);
        if bytes > have {
            return Err(Error::out_of_memory(format!("a {usage:?} buffer on null:0"), bytes, have));
        }
        state.buffers.push(Some(bytes));
        state.counters.allocations += 1;
        state.counters.allocated_bytes += bytes;
        Ok(BufferId { index: (state.buffers.len() - 1) as u32, generation: 0 })
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.counters.uploaded_bytes += bytes.len() as u64;
        state.check(to)
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        let mut state = self.state();
        slots.iter().flatten().try_for_each(|range| state.check(*range))?;
        if let Some(missing) = work.kernels.iter().find(|k| !state.kernels.contains(k)) {
            return Err(Error::invalid(format!("kernel {missing} is not compiled")));
        }
        state.prepared.push(Some(work.clone()));
        Ok(PreparedId { index: (state.prepared.len() - 1) as u32, generation: 0 })
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let mut state = self.state();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let mut completion = Completion::default();
        for (id, args) in work {
            let recording = state.prepared.get_mut(id.index as usize).and_then(Option::take);
            let recording =
                recording.ok_or_else(|| Error::invalid(format!("{id:?} is not prepared")))?;
            let done = state.run(&recording, args, &mut completion);
            state.prepared[id.index as usize] = Some(recording);
            done?;
        }
        state.counters.submits += 1;
        state.pending.push((ticket, completion));
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        let mut state = self.state();
        state.counters.waits += 1;
        let found = state.pending.iter().position(|(t, _)| *t == ticket);
        ready(match found {
            Some(i) => Ok(state.pending.swap_remove(i).1),
            None => Err(Error::invalid(format!("{ticket:?} is unknown or was awaited twice"))),
        })
    }

    fn free(&self, what: Resource) {
        let mut state = self.state();
        match what {
            Resource::Buffer(id) => {
                if let Some(bytes) = state.buffers.get_mut(id.index as usize).and_then(Option::take)
                {
                    state.counters.allocated_bytes -= bytes;
                }
            }
            Resource::Prepared(id) => {
                if let Some(slot) = state.prepared.get_mut(id.index as usize) {
                    *slot = None;
                }
            }
            Resource::Kernel(spec) => {
                state.kernels.remove(&spec);
            }
        }
    }

    fn counters(&self) -> Counters {
        self.state().counters
    }
}

/// Returns the bytes of a download. Each 32-bit float in it is NaN, and each 32-bit integer is
/// positive and greater than any index.
fn undefined(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| if at % 4 == 3 { 0x7F } else { 0xFF }).collect()
}
