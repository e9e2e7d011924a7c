//! The open device: its profile, and its implementation of [`Device`].

use std::sync::Arc;

use super::arch::{Arch, int8};
use super::call::Context;
use super::clock::Clock;
use super::memory::Memory;
use super::pool::Pool;
use super::prepare::{Kernel, prepare};
use super::queue::Inner;
use super::system;
use warploom_core::base::platform::{BoxFuture, ready, runs_in_place};
use warploom_core::error::{Error, Result};
#[cfg(not(target_arch = "wasm32"))]
use warploom_hal::worker::Worker;
use warploom_hal::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Recording, Resource, Support, Ticket, Usage, support,
};
use warploom_kernels::KernelSpec;

/// The open device `cpu:0`.
pub(super) struct CpuDevice {
    profile: DeviceProfile,
    inner: Arc<Inner>,
    /// Background thread that executes queued work.
    #[cfg(not(target_arch = "wasm32"))]
    executor: Worker,
}

impl CpuDevice {
    /// Opens the device with the given instruction set.
    pub(super) fn new(arch: &'static Arch, options: &OpenOptions) -> CpuDevice {
        // More threads than any machine has cores would only contend.
        let pool = Pool::new(options.threads.unwrap_or_else(system::cores).clamp(1, 1024));
        let profile = system::profile(arch, pool.threads());
        let known = (profile.memory_bytes > 0).then_some(profile.memory_bytes);
        let budget = options.memory_budget.or(known).unwrap_or(u64::MAX);
        let context = Context { pool, arch, int8: int8::beside(arch) };
        CpuDevice {
            profile,
            inner: Arc::new(Inner::new(context, Clock::new(), Memory::new(budget))),
            #[cfg(not(target_arch = "wasm32"))]
            executor: Worker::new("warploom cpu"),
        }
    }

    /// Executes the queued work on the background thread, or on the calling thread if there is
    /// none.
    fn execute_queued(&self) {
        #[cfg(not(target_arch = "wasm32"))]
        {
            let inner = Arc::clone(&self.inner);
            match self.executor.spawn(move || inner.drain(&mut inner.turn())) {
                Ok(()) => return,
                Err(error) => tracing::warn!("cpu:0 executes on the calling thread: {error}"),
            }
        }
        self.inner.drain(&mut self.inner.turn());
    }
}

impl Device for CpuDevice {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        if self.inner.tables().kernels.contains_key(spec) {
            return ready(Ok(()));
        }
        // Validated first: `support` must not print a malformed spec.
        let kernel = Kernel::new(spec).and_then(|kernel| match support(&self.profile, spec) {
            Support::Yes => Ok(kernel),
            Support::No(reason) => Err(Error::unsupported(reason)),
        });
        ready(kernel.map(|kernel| {
            let mut tables = self.inner.tables();
            if tables.kernels.insert(spec.clone(), Arc::new(kernel)).is_none() {
                tables.counters.compiles += 1;
            }
        }))
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        let mut tables = self.inner.tables();
        let id = tables.memory.alloc(bytes, usage)?;
        tables.counters.allocations += 1;
        Ok(id)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        let turn = match runs_in_place() {
            true => {
                let mut turn = self.inner.turn();
                self.inner.drain(&mut turn);
                Some(turn)
            }
            false => self.inner.idle_turn(),
        };
        let mut tables = self.inner.tables();
        let span = tables.memory.span(to)?;
        if bytes.len() as u64 > to.bytes || !to.offset.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "{} bytes to {} bytes from byte {} of buffer {}; offsets are multiples of 4",
                bytes.len(),
                to.bytes,
                to.offset,
                to.buffer.index
            )));
        }
        tables.counters.uploaded_bytes += bytes.len() as u64;
        match turn {
            // SAFETY: the range is checked, the locked table keeps its memory, and the turn keeps
            // everything else off it.
            Some(_) => unsafe { bytes.as_ptr().copy_to_nonoverlapping(span.ptr, bytes.len()) },
            None => {
                tables.write_later(span, bytes);
                drop(tables);
                self.execute_queued();
            }
        }
        Ok(())
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        let mut tables = self.inner.tables();
        let find = |spec: &KernelSpec| tables.kernels.get(spec).cloned();
        let prepared = Arc::new(prepare(work, slots, &self.profile, &tables.memory, find)?);
        let index = match tables.free.pop() {
            Some(index) => index,
            None => {
                tables.prepared.push((0, None));
                (tables.prepared.len() - 1) as u32
            }
        };
        let place = &mut tables.prepared[index as usize];
        place.1 = Some(prepared);
        Ok(PreparedId { index, generation: place.0 })
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        if runs_in_place() {
            return self.inner.submit_now(work);
        }
        let ticket = self.inner.submit_later(work)?;
        self.execute_queued();
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        Box::pin(async move {
            self.inner.tables().counters.waits += 1;
            match runs_in_place() {
                true => self.inner.wait_here(ticket),
                false => {
                    std::future::poll_fn(|context| self.inner.poll_wait(ticket, context)).await
                }
            }
        })
    }

    fn free(&self, what: Resource) {
        let mut tables = self.inner.tables();
        match what {
            Resource::Buffer(id) => {
                let block = tables.memory.free(id).and_then(|block| tables.retire(block));
                drop(tables);
                drop(block);
            }
            Resource::Prepared(id) => {
                if tables.find(id).is_ok() {
                    let place = &mut tables.prepared[id.index as usize];
                    *place = (place.0.wrapping_add(1), None);
                    tables.free.push(id.index);
                }
            }
            Resource::Kernel(spec) => {
                tables.kernels.remove(&spec);
            }
        }
    }

    fn counters(&self) -> Counters {
        let tables = self.inner.tables();
        Counters { allocated_bytes: tables.memory.used, ..tables.counters }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, failing_recording, softmax_args, softmax_recording, whole};
    use super::*;
    use warploom_core::base::platform::{block_on, blocking, poll_once};

    fn open() -> (CpuDevice, PreparedId, [BufferId; 2]) {
        let options =
            OpenOptions { memory_budget: Some(1 << 20), threads: Some(2), ..Default::default() };
        let device = CpuDevice::new(super::super::arch::choose(), &options);
        let work = softmax_recording();
        block_on(device.compile(&work.kernels[0])).unwrap();
        let [x, y] = [64, 128].map(|size| device.alloc(size, Usage::Working).unwrap());
        let id = device.prepare(&work, &[Some(whole(x, 64)), Some(whole(y, 128))]).unwrap();
        (device, id, [x, y])
    }

    #[test]
    fn calls_from_async_code_return_before_the_work_and_keep_its_order() {
        let (device, id, [x, y]) = open();
        let slots = [Some(whole(x, 64)), Some(whole(y, 128))];
        let failing = device.prepare(&failing_recording(), &slots).unwrap();
        // Whatever executes has to wait for this.
        let turn = device.inner.turn();
        let first = device.submit(&[(id, softmax_args(&[1.0, 1.0]))]).unwrap();
        let bad = device.submit(&[(failing, softmax_args(&[1.0]))]).unwrap();
        device.write(whole(y, 8), &[0xAB; 8]).unwrap();
        let later = device.submit(&[(id, softmax_args(&[5.0]))]).unwrap();
        // The ids are gone at once, the memory lasts.
        device.free(Resource::Buffer(x));
        device.free(Resource::Buffer(y));
        device.free(Resource::Prepared(id));
        assert!(device.submit(&[(id, softmax_args(&[1.0]))]).unwrap_err().is_invalid());
        let z = device.alloc(64, Usage::Working).unwrap();
        let mut waiting = device.wait(first);
        assert!(poll_once(&mut waiting).is_none());
        drop(turn);
        assert_eq!(block_on(waiting).unwrap().downloads[1], bytes(&[0.5, 0.5]));
        assert!(block_on(device.wait(later)).unwrap_err().to_string().contains("soft.0"));
        let done = block_on(device.wait(later)).unwrap();
        assert_eq!(done.downloads[0], [0, 0, 0, 0, 0xAB, 0xAB, 0xAB, 0xAB]);
        assert_eq!(done.downloads[1], bytes(&[1.0]));
        assert!(bad < later);
        let counters = device.counters();
        assert_eq!((counters.submits, counters.allocated_bytes), (3, 64));
        device.free(Resource::Buffer(z));
    }

    #[test]
    fn a_caller_that_may_block_executes_what_is_queued_and_then_its_own_work() {
        let (device, id, [_, y]) = open();
        let turn = device.inner.turn();
        let queued = device.submit(&[(id, softmax_args(&[1.0, 1.0]))]).unwrap();
        drop(turn);
        let own = blocking(|| {
            device.write(whole(y, 4), &[9; 4]).unwrap();
            device.submit(&[(id, softmax_args(&[1.0, 1.0, 1.0, 1.0]))]).unwrap()
        });
        // Executed by now: a single poll finds the results.
        let done = poll_once(device.wait(own)).unwrap().unwrap();
        assert_eq!(done.downloads[1], bytes(&[0.25; 4]));
        let done = poll_once(device.wait(queued)).unwrap().unwrap();
        assert_eq!(done.downloads[1], bytes(&[0.5; 2]));
    }

    #[test]
    fn a_waiting_task_is_woken_by_the_executor() {
        let (device, id, _) = open();
        for n in 1..=16 {
            let ticket = device.submit(&[(id, softmax_args(&vec![2.0; n]))]).unwrap();
            // Polled outside `block_on`, so only the executor can finish it.
            let device = &device;
            let (sender, receiver) = std::sync::mpsc::channel();
            struct Woken(std::sync::mpsc::Sender<()>);
            impl std::task::Wake for Woken {
                fn wake(self: Arc<Self>) {
                    let _ = self.0.send(());
                }
            }
            let waker = std::task::Waker::from(Arc::new(Woken(sender)));
            let mut context = std::task::Context::from_waker(&waker);
            let mut waiting = device.wait(ticket);
            let done = loop {
                match waiting.as_mut().poll(&mut context) {
                    std::task::Poll::Ready(done) => break done.unwrap(),
                    std::task::Poll::Pending => receiver.recv().unwrap(),
                }
            };
            assert_eq!(done.downloads[1], bytes(&vec![1.0 / n as f32; n]));
        }
    }
}
