//! Buffer pool with a memory budget.
//!
//! Drivers allocate slowly and do not always report failure in time, so freed buffers are kept by
//! size class and reused, and a budget is checked before the driver is called. If a request would
//! exceed the budget, idle buffers are freed first. If the request still does not fit, it fails
//! with an out-of-memory error that gives the bytes needed and available, and the pool stays
//! usable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::provider::{BufferId, BufferRange, Device, Resource, Usage};

/// Reusable buffers of one device, under a budget.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

crate::base::debug_as!(Pool, |this| device: this.shared.device.profile().id(), budget: this.shared.budget);

struct Shared {
    device: Arc<dyn Device>,
    budget: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: BTreeMap<u64, Vec<BufferId>>,
    idle_bytes: u64,
    live_bytes: u64,
}

/// A buffer from a pool, returned to the pool on drop. Its initial contents are undefined.
pub struct PooledBuffer {
    shared: Arc<Shared>,
    id: BufferId,
    /// Size class in bytes; `None` for memory that is not the pool's.
    class: Option<u64>,
    offset: u64,
    bytes: u64,
}

crate::base::debug_as!(PooledBuffer, |this| id: this.id, bytes: this.bytes);

/// Rounds a size up to its size class: to a multiple of 256 bytes or, if that is more, of an eighth
/// of the next power of two. So a buffer is less than 256 bytes or a quarter larger than requested.
/// Returns `None` above 2^63 bytes.
fn size_class(bytes: u64) -> Option<u64> {
    let step = (bytes.max(1).checked_next_power_of_two()? / 8).max(256);
    bytes.max(1).checked_next_multiple_of(step)
}

impl Pool {
    /// Creates an empty pool. `budget` is in bytes; `None` leaves only the device's own limit.
    pub fn new(device: Arc<dyn Device>, budget: Option<u64>) -> Pool {
        Pool { shared: Arc::new(Shared { device, budget, state: Mutex::default() }) }
    }

    /// Takes a buffer of at least `bytes` bytes: an idle one of the same size class, or a new one.
    ///
    /// # Errors
    /// Out of memory, with the bytes needed and available, if the buffer does not fit after every
    /// idle buffer was freed; any other error of the device.
    pub fn take(&self, bytes: u64, usage: Usage) -> Result<PooledBuffer> {
        let Some(class) = size_class(bytes) else {
            let have = self.shared.device.profile().memory_bytes;
            return Err(Error::out_of_memory(format!("a {usage:?} buffer"), bytes, have));
        };
        let mut state = self.shared.state();
        let idle = state.idle.get_mut(&class).and_then(Vec::pop);
        let id = match idle {
            Some(id) => {
                state.idle_bytes -= class;
                id
            }
            None => self.shared.alloc(&mut state, class, usage)?,
        };
        state.live_bytes += class;
        drop(state);
        let shared = self.shared.clone();
        Ok(PooledBuffer { shared, id, class: Some(class), offset: 0, bytes })
    }

    /// Wraps memory that is not the pool's: its buffer is freed on drop, and never used for anything
    /// else.
    #[cfg(feature = "webgpu")]
    pub(crate) fn adopt(&self, range: BufferRange) -> PooledBuffer {
        let BufferRange { buffer: id, offset, bytes } = range;
        PooledBuffer { shared: self.shared.clone(), id, class: None, offset, bytes }
    }

    /// Frees every idle buffer.
    pub fn trim(&self) {
        self.shared.trim(&mut self.shared.state());
    }

    /// Returns the budget in bytes, or `None` if only the device's own limit applies.
    pub fn budget(&self) -> Option<u64> {
        self.shared.budget
    }

    /// Returns the total sizes in bytes of the buffers in use and of the idle buffers.
    pub fn usage(&self) -> (u64, u64) {
        let state = self.shared.state();
        (state.live_bytes, state.idle_bytes)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every update of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trim(&self, state: &mut State) {
        for id in std::mem::take(&mut state.idle).into_values().flatten() {
            self.device.free(Resource::Buffer(id));
        }
        state.idle_bytes = 0;
    }

    fn alloc(&self, state: &mut State, bytes: u64, usage: Usage) -> Result<BufferId> {
        if let Some(budget) = self.budget {
            let fits = |state: &State| {
                let used = state.live_bytes.saturating_add(state.idle_bytes);
                bytes <= budget.saturating_sub(used)
            };
            if !fits(state) {
                self.trim(state);
            }
            if !fits(state) {
                let have = budget.saturating_sub(state.live_bytes);
                let what = format!("a {usage:?} buffer within a budget of {budget} bytes");
                return Err(Error::out_of_memory(what, bytes, have));
            }
        }
        match self.device.alloc(bytes, usage) {
            Err(error) if error.is_out_of_memory() && state.idle_bytes > 0 => {
                self.trim(state);
                self.device.alloc(bytes, usage)
            }
            result => result,
        }
    }
}

impl PooledBuffer {
    /// Returns the requested range, without the rest of the size class.
    pub fn range(&self) -> BufferRange {
        BufferRange { buffer: self.id, offset: self.offset, bytes: self.bytes }
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(class) = self.class else {
            return self.shared.device.free(Resource::Buffer(self.id));
        };
        let mut state = self.shared.state();
        state.live_bytes -= class;
        state.idle_bytes += class;
        state.idle.entry(class).or_default().push(self.id);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.state());
        self.trim(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{NullProvider, OpenOptions};

    /// The buffer pool reuses a freed buffer and keeps to its budget.
    #[test]
    fn reuses_evicts_and_refuses() {
        let device = NullProvider::device(&OpenOptions::default());
        let pool = Pool::new(device.clone(), Some(4096));
        let first = pool.take(1000, Usage::Working).unwrap();
        let id = first.range().buffer;
        drop(first);
        let again = pool.take(1024, Usage::Working).unwrap();
        assert_eq!(again.range().buffer, id);
        assert_eq!(device.counters().allocations, 1);
        drop(again);
        // The idle kilobyte is freed before the budget refuses.
        let large = pool.take(3500, Usage::Working).unwrap();
        assert_eq!(pool.usage().1, 0);
        let error = pool.take(1024, Usage::Working).err().unwrap();
        assert!(error.is_out_of_memory() && error.to_string().contains("1024"), "{error}");
        assert!(pool.take(u64::MAX, Usage::Working).is_err_and(|error| error.is_out_of_memory()));
        drop(large);
        assert!(pool.take(1024, Usage::Working).is_ok());
        drop(pool);
        assert_eq!(device.counters().allocated_bytes, 0);
    }

    #[test]
    fn random_takes_stay_under_the_cap() {
        let device = NullProvider::device(&OpenOptions::default());
        let cap = 256 << 20;
        let pool = Pool::new(device.clone(), Some(cap));
        let mut held = Vec::new();
        let mut seed = 0x2545_F491_4F6C_DD1D_u64;
        for _ in 0..200_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            if held.len() > 40 || seed.is_multiple_of(3) {
                if !held.is_empty() {
                    held.swap_remove((seed >> 8) as usize % held.len());
                }
            } else if let Ok(buffer) = pool.take(1 + (seed >> 16) % (16 << 20), Usage::Working) {
                held.push(buffer);
            }
            assert!(device.counters().allocated_bytes <= cap);
        }
    }
}
