//! Adaptive sync: started work is submitted when the device has nothing to do.
//!
//! [`Batcher::start`] marks a thread's queue as started and wakes a thread of the batcher. After a
//! short grace, in which a read that follows takes the work along, that thread submits it, waits for
//! the device, and submits what was started meanwhile, until nothing is. So an idle device begins
//! after the grace, and a busy one gets few, large submits.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use super::batcher::{Batcher, Shared, Waits};
use crate::base::platform::block_on;
use crate::error::Result;
use crate::provider::Device;

/// Time from the start of work on an idle device to its submit. Linux adds some 50 us.
const GRACE: Duration = Duration::from_micros(30);

/// Ends the starting thread's duty if it panics, so that the next start begins another.
struct Duty<'a>(&'a Shared);

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().is_followed = false;
        }
    }
}

impl Batcher {
    /// Lets this thread's work be submitted as soon as the device has nothing to do. Waits for
    /// nothing; errors of the submit are those of the results.
    ///
    /// # Errors
    /// I/O if the system cannot create a thread. Then the work is submitted at a read.
    pub(super) fn start(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            let queue = state.queues.get_mut(&std::thread::current().id());
            let Some(queue) = queue.filter(|queue| !queue.work.is_empty()) else { return Ok(()) };
            queue.is_started = true;
            if std::mem::replace(&mut state.is_followed, true) {
                return Ok(());
            }
        }
        let (device, shared) = (self.device.clone(), self.state.clone());
        let spawned = self.starter.spawn(move || follow(&*device, &shared));
        spawned.inspect_err(|_| self.state.lock().is_followed = false)
    }
}

/// Submits started work, waits for it, and goes on with what was started meanwhile.
fn follow(device: &dyn Device, shared: &Shared) {
    let _duty = Duty(shared);
    std::thread::sleep(GRACE);
    loop {
        let batch = {
            let mut state = shared.lock();
            let started = state.queues.iter().filter(|(_, queue)| queue.is_started);
            let started: Vec<ThreadId> = started.map(|(thread, _)| *thread).collect();
            let mut last = None;
            for thread in started {
                last = state.queues.get(&thread).map(|queue| Arc::clone(&queue.batch));
                // The error is stored in the batch. The CPU provider queues the work, since this
                // call is not inside of `block_on`.
                let _ = state.submit(device, thread);
            }
            let Some(last) = last else {
                state.is_followed = false;
                return;
            };
            last
        };
        // The wait for a submit covers those before it. Work that failed has no wait.
        if let Some(ticket) = batch.begin_wait() {
            let waits = Waits(batch);
            let result = block_on(device.wait(ticket));
            shared.confirm(ticket, &result);
            waits.0.finish(result);
        }
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
