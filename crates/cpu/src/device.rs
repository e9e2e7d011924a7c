//! The device: its tables, its lock, and the trait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arch::{Arch, int8};
use super::call::Context;
use super::clock::Clock;
use super::memory::Memory;
use super::pool::Pool;
use super::prepare::{Kernel, Prepared, prepare};
use super::submit::{Machine, Scratch};
use super::system;
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Recording, Resource, Support, Ticket, Usage, support,
};
use warploom_kernels::KernelSpec;

/// Maximum number of results and failures kept for `wait`; older ones are dropped.
const KEPT: usize = 1 << 16;

/// The open device `cpu:0`.
pub(super) struct CpuDevice {
    profile: DeviceProfile,
    context: Context,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    memory: Memory,
    kernels: HashMap<KernelSpec, Arc<Kernel>>,
    prepared: Vec<(u32, Option<Arc<Prepared>>)>,
    free: Vec<u32>,
    /// Submits so far.
    submits: u64,
    /// Results and failures not yet waited for.
    finished: VecDeque<(Ticket, Result<Completion>)>,
    counters: Counters,
    scratch: Scratch,
    /// The work of the current submit.
    work: Vec<Arc<Prepared>>,
}

impl CpuDevice {
    /// Opens the device with an instruction set.
    pub(super) fn new(arch: &'static Arch, options: &OpenOptions) -> CpuDevice {
        // More threads than any machine has cores would only contend.
        let pool = Pool::new(options.threads.unwrap_or_else(system::cores).clamp(1, 1024));
        let profile = system::profile(arch, pool.threads());
        let known = (profile.memory_bytes > 0).then_some(profile.memory_bytes);
        let budget = options.memory_budget.or(known).unwrap_or(u64::MAX);
        CpuDevice {
            profile,
            context: Context { pool, arch, int8: int8::beside(arch) },
            clock: Clock::new(),
            state: Mutex::new(State {
                memory: Memory::new(budget),
                kernels: HashMap::new(),
                prepared: Vec::new(),
                free: Vec::new(),
                submits: 0,
                finished: VecDeque::new(),
                counters: Counters::default(),
                scratch: Scratch::default(),
                work: Vec::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe: each table is changed in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, id: PreparedId) -> Result<&Arc<Prepared>> {
        match self.prepared.get(id.index as usize) {
            Some((generation, Some(prepared))) if *generation == id.generation => Ok(prepared),
            _ => Err(Error::invalid(format!(
                "prepared work {} of generation {} is not live",
                id.index, id.generation
            ))),
        }
    }

    /// Checks and resolves a submit; nothing is executed yet.
    fn gather(&mut self, work: &[(PreparedId, Args)]) -> Result<()> {
        self.scratch.clear();
        self.work.clear();
        for (id, args) in work {
            let prepared = Arc::clone(self.find(*id)?);
            self.scratch.resolve(&prepared, args, &self.memory)?;
            self.work.push(prepared);
        }
        Ok(())
    }

    /// Keeps the results of a submit until they are waited for.
    fn keep(&mut self, ticket: Ticket, done: Result<Completion>) {
        if self.finished.len() == KEPT {
            self.finished.pop_front();
        }
        self.finished.push_back((ticket, done));
    }

    fn take(&mut self, ticket: Ticket) -> Result<Completion> {
        if ticket.0 >> 1 == 0 || ticket.0 >> 1 > self.submits {
            return Err(Error::invalid(format!("{ticket:?} is unknown")));
        }
        // A failure up to this ticket is reported first, and once.
        let failed = |(t, done): &(Ticket, Result<Completion>)| *t <= ticket && done.is_err();
        let own = |(t, _): &(Ticket, Result<Completion>)| *t == ticket;
        let place = self.finished.iter().position(failed);
        let place = place.or_else(|| self.finished.iter().position(own));
        match place.and_then(|place| self.finished.remove(place)) {
            Some((_, done)) => done,
            None if ticket.0 & 1 == 0 => Ok(Completion::default()),
            None => Err(Error::invalid(format!(
                "{ticket:?} was awaited before, or {KEPT} submits with results came after it"
            ))),
        }
    }
}

impl Device for CpuDevice {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        let mut state = self.state();
        if state.kernels.contains_key(spec) {
            return ready(Ok(()));
        }
        // Validated first: `support` must not print a malformed spec.
        let kernel = Kernel::new(spec).and_then(|kernel| match support(&self.profile, spec) {
            Support::Yes => Ok(kernel),
            Support::No(reason) => Err(Error::unsupported(reason)),
        });
        ready(kernel.map(|kernel| {
            state.counters.compiles += 1;
            state.kernels.insert(spec.clone(), Arc::new(kernel));
        }))
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        let mut state = self.state();
        let id = state.memory.alloc(bytes, usage)?;
        state.counters.allocations += 1;
        Ok(id)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        let span = state.memory.span(to)?;
        if bytes.len() as u64 > to.bytes || !to.offset.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "{} bytes to {} bytes from byte {} of buffer {}; offsets are multiples of 4",
                bytes.len(),
                to.bytes,
                to.offset,
                to.buffer.index
            )));
        }
        // SAFETY: the range is checked, and the lock keeps everyone else off it.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(span.ptr, bytes.len()) };
        state.counters.uploaded_bytes += bytes.len() as u64;
        Ok(())
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        let mut state = self.state();
        let find = |spec: &KernelSpec| state.kernels.get(spec).cloned();
        let prepared = Arc::new(prepare(work, slots, &state.memory, find)?);
        let index = match state.free.pop() {
            Some(index) => index,
            None => {
                state.prepared.push((0, None));
                (state.prepared.len() - 1) as u32
            }
        };
        let place = &mut state.prepared[index as usize];
        place.1 = Some(prepared);
        Ok(PreparedId { index, generation: place.0 })
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let mut state = self.state();
        let state = &mut *state;
        state.gather(work)?;
        let mut done = Completion::default();
        let machine = Machine { context: &self.context, clock: &self.clock };
        let mut result = Ok(());
        for (i, (prepared, (_, args))) in state.work.iter().zip(work).enumerate() {
            let counters = &mut state.counters;
            result = state.scratch.run(i, prepared, args, &machine, counters, &mut done);
            if result.is_err() {
                break;
            }
        }
        let has_results = state.work.iter().any(|prepared| prepared.has_results);
        state.submits += 1;
        state.counters.submits += 1;
        // The lowest bit marks submits with results, so that the others need not be remembered.
        let ticket = Ticket(state.submits << 1 | u64::from(has_results));
        match result {
            Err(error) => state.keep(ticket, Err(error)),
            Ok(()) if has_results => state.keep(ticket, Ok(done)),
            Ok(()) => {}
        }
        state.work.clear();
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        let mut state = self.state();
        state.counters.waits += 1;
        ready(state.take(ticket))
    }

    fn free(&self, what: Resource) {
        let mut state = self.state();
        match what {
            Resource::Buffer(id) => state.memory.free(id),
            Resource::Prepared(id) => {
                if state.find(id).is_ok() {
                    let place = &mut state.prepared[id.index as usize];
                    *place = (place.0.wrapping_add(1), None);
                    state.free.push(id.index);
                }
            }
            Resource::Kernel(spec) => {
                state.kernels.remove(&spec);
            }
        }
    }

    fn counters(&self) -> Counters {
        let state = self.state();
        Counters { allocated_bytes: state.memory.used, ..state.counters }
    }
}
