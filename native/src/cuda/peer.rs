//! Copies from one GPU to another: over a direct link if the driver reports one, else through the
//! driver's staging buffer.

use std::any::Any;
use std::sync::{Arc, MutexGuard, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::device::{CudaDevice, State};
use super::gpu::Gpu;
use super::memory::Event;
use warploom_core::error::{Error, Result};
use warploom_hal::{BufferRange, Device};

impl CudaDevice {
    /// Implements `Device::copy_from`. The copy runs in this device's stream, between two events:
    /// this stream waits for the earlier work of the source's stream, and the source's stream waits
    /// for the copy. So the source is written before it is read, and freed only afterwards.
    pub(super) fn copy_from_device(
        &self,
        to: BufferRange,
        source: &dyn Device,
        from: BufferRange,
    ) -> Result<()> {
        let (own, other) = (self.profile.id(), source.profile().id());
        let any: &dyn Any = source;
        let Some(source) = any.downcast_ref::<CudaDevice>() else {
            return Err(Error::unsupported(format!("{own} takes no copies from {other}")));
        };
        if std::ptr::eq(self, source) {
            // Both locks would be the same one; within a device, recordings copy.
            return Err(Error::unsupported(format!("{own} is the source and the target")));
        }
        let whole = [from.offset, from.bytes, to.offset].iter().all(|n| n.is_multiple_of(4));
        if from.bytes != to.bytes || !whole {
            return Err(Error::invalid(format!(
                "a copy from {} bytes at {} on {other} to {} bytes at {} on {own}: sizes differ, or \
                 not whole words",
                from.bytes, from.offset, to.bytes, to.offset
            )));
        }
        self.gpu.check_lost()?;
        source.gpu.check_lost()?;
        let (mut here, mut there) = lock_both(self, source);
        let target = here.buffers.find(to)?.address + to.offset;
        let origin = there.buffers.find(from)?.address + from.offset;
        if to.bytes == 0 {
            return Ok(());
        }
        self.gpu.reach(&source.gpu)?;
        let before = {
            let _current = source.gpu.enter()?;
            let before = match there.events.pop() {
                Some(event) => event,
                None => Event::new(&source.gpu, false)?,
            };
            before.record()?;
            before
        };
        let after = {
            let _current = self.gpu.enter()?;
            // Not from the pool of events, since both devices keep it.
            let after = Event::new(&self.gpu, false)?;
            self.gpu.wait_for(&before)?;
            let (gpu, bytes) = (&self.gpu, to.bytes as usize);
            let contexts = (gpu.context, source.gpu.context);
            // SAFETY: ranges of live buffers, each with its context; buffers do not overlap.
            let copied = unsafe {
                match contexts.0 == contexts.1 {
                    true => result::memcpy_dtod_async(target, origin, bytes, gpu.stream),
                    false => {
                        let (own, other) = contexts;
                        result::memcpy_peer_async(own, target, other, origin, bytes, gpu.stream)
                    }
                }
            };
            gpu.check(&format!("a copy from {other}"), copied)?;
            after.record().inspect_err(|_| {
                // Otherwise the other device could write to the memory that is being read.
                let _ = gpu.synchronize();
            })?;
            after
        };
        let held = source.gpu.enter().and_then(|_current| source.gpu.wait_for(&after));
        held.inspect_err(|_| {
            // As above.
            let _ = self.gpu.synchronize();
        })?;
        here.counters.peer_bytes += to.bytes;
        // An enqueued wait does not read its event again.
        there.events.push(before);
        let after = Arc::new(after);
        there.peer = Some(Arc::clone(&after));
        here.peer = Some(after);
        Ok(())
    }
}

/// Locks the tables of two devices, in a global order that prevents deadlock.
fn lock_both<'a>(
    a: &'a CudaDevice,
    b: &'a CudaDevice,
) -> (MutexGuard<'a, State>, MutexGuard<'a, State>) {
    let place = |device: &CudaDevice| std::ptr::from_ref(device).addr();
    if place(a) < place(b) {
        let first = a.state();
        (first, b.state())
    } else {
        let first = b.state();
        (a.state(), first)
    }
}

impl Gpu {
    /// Grants this GPU access to another GPU's memory if they are connected; once per pair.
    fn reach(&self, source: &Gpu) -> Result<()> {
        let mut readers = source.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.device == source.device || readers.contains(&self.device) {
            return Ok(());
        }
        let _current = self.enter()?;
        let mut can = 0;
        // SAFETY: devices that the driver returned; writes one integer.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, source.device) };
        self.check("peer access", asked.result())?;
        let (own, other) = (&self.id, &source.id);
        if can == 0 {
            tracing::info!("{own} copies from {other} through the driver: no peer access");
        } else {
            let granted = match source.pool {
                Some(pool) => self.grant(pool),
                None => self.enable(source),
            };
            self.check(&format!("peer access to {other}"), granted)?;
            tracing::info!("{own} copies from {other} by peer access");
        }
        readers.push(self.device);
        Ok(())
    }

    /// Adds this GPU to those that may access the memory of another GPU's pool.
    fn grant(&self, pool: sys::CUmemoryPool) -> Result<(), DriverError> {
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: self.device,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: a pool that lives, and one description.
        unsafe { sys::cuMemPoolSetAccess(pool, &access, 1) }.result()
    }

    /// Enables the current context, that of this GPU, to access another GPU's memory outside a
    /// pool.
    fn enable(&self, source: &Gpu) -> Result<(), DriverError> {
        // SAFETY: both contexts are retained.
        match unsafe { sys::cuCtxEnablePeerAccess(source.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            answer => answer.result(),
        }
    }
}
