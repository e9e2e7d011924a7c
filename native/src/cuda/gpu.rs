//! One GPU: its primary context, its single stream, and whether it is lost.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use super::driver::{convert, is_loss, words};
use super::memory::Event;
use super::profile::capability;
use warploom_core::error::{Error, Result};

/// Handles of one GPU. Any thread that has entered the context may use CUDA's handles.
pub(super) struct Gpu {
    /// The device's id, for messages.
    pub(super) id: String,
    pub(super) device: sys::CUdevice,
    /// Compute capability as `10 * major + minor`.
    pub(super) capability: i32,
    pub(super) stream: sys::CUstream,
    /// The memory pool; `None` on devices without pools.
    pub(super) pool: Option<sys::CUmemoryPool>,
    pub(super) context: sys::CUcontext,
    /// Other GPUs with access to this GPU's memory.
    pub(super) readers: Mutex<Vec<sys::CUdevice>>,
    lost: Mutex<Option<String>>,
}

// SAFETY: the handles are pointers into the driver, which locks for itself.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// Keeps the context current on this thread until dropped.
pub(super) struct Current(PhantomData<*const ()>);

impl Gpu {
    /// Retains the primary context of a device and creates a stream and a memory pool.
    pub(super) fn open(index: usize) -> Result<Arc<Gpu>> {
        let id = format!("cuda:{index}");
        let wrong = |error| Error::device(format!("{id} cannot be opened: {}", words(error)));
        let device = result::device::get(index as i32).map_err(wrong)?;
        let capability = capability(device)?;
        // SAFETY: a device that the driver returned; released when the value is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(wrong)?;
        let stream = std::ptr::null_mut();
        let (readers, lost) = (Mutex::default(), Mutex::default());
        let mut gpu = Gpu { id, device, capability, stream, pool: None, context, readers, lost };
        {
            let _current = gpu.enter()?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
            let stream = gpu.check("a stream", stream)?;
            gpu.stream = stream;
            gpu.pool = gpu.make_pool()?;
        }
        Ok(Arc::new(gpu))
    }

    /// Reads a device attribute.
    pub(super) fn attribute(
        device: sys::CUdevice,
        which: sys::CUdevice_attribute,
    ) -> Result<i32, DriverError> {
        // SAFETY: a device that the driver returned.
        unsafe { result::device::get_attribute(device, which) }
    }

    /// Creates a pool that retains freed memory for later allocations; `None` if the device has no
    /// pools.
    fn make_pool(&self) -> Result<Option<sys::CUmemoryPool>> {
        let which = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        if self.check("memory pools", Gpu::attribute(self.device, which))? == 0 {
            return Ok(None);
        }
        // SAFETY: plain data; zero is a value of every field, and means "none" where it matters.
        let mut wanted: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        wanted.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        wanted.location.id = self.device;
        // SAFETY: valid properties.
        let pool = self.check("a memory pool", unsafe { result::mem_pool::create(&wanted) })?;
        let mut keep = u64::MAX;
        let which = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let at = (&raw mut keep).cast();
        // SAFETY: this attribute is a 64-bit integer.
        let set = unsafe { result::mem_pool::set_attribute(pool, which, at) };
        self.check("a memory pool", set)?;
        Ok(Some(pool))
    }

    /// Makes the context current on this thread until the returned value is dropped.
    pub(super) fn enter(&self) -> Result<Current> {
        // SAFETY: a context that is retained.
        let pushed = unsafe { sys::cuCtxPushCurrent_v2(self.context) }.result();
        self.check("entering the context", pushed)?;
        Ok(Current(PhantomData))
    }

    /// Converts the result of a call and records a loss of the device. `what` is the purpose of the
    /// call.
    pub(super) fn check<T>(&self, what: &str, answer: Result<T, DriverError>) -> Result<T> {
        answer.map_err(|error| {
            if is_loss(error) {
                let mut lost = self.lost();
                let reason = lost.get_or_insert_with(|| format!("{what}: {}", words(error)));
                return Error::device_lost(format!("{} is lost: {reason}", self.id));
            }
            convert(&format!("{}: {what}", self.id), error)
        })
    }

    /// Returns an error if the device is lost.
    pub(super) fn check_lost(&self) -> Result<()> {
        match &*self.lost() {
            Some(reason) => Err(Error::device_lost(format!("{} is lost: {reason}", self.id))),
            None => Ok(()),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delays later work in the stream until an event completes, on this or another GPU.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event live; the driver remembers what the event stands for now.
        let held = unsafe { result::stream::wait_event(self.stream, event.raw(), flags) };
        self.check("waiting for another device", held)
    }

    /// Waits until all work in the stream is complete.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: a stream that lives.
        self.check("waiting", unsafe { result::stream::synchronize(self.stream) })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed on this thread. It fails only if the context is lost.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut context) }.result();
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter() {
            // SAFETY: nothing else holds these handles. Errors are those of a lost context.
            unsafe {
                if !self.stream.is_null() {
                    let _ = result::stream::synchronize(self.stream);
                    let _ = result::stream::destroy(self.stream);
                }
                if let Some(pool) = self.pool {
                    let _ = result::mem_pool::destroy(pool);
                }
            }
        }
        // SAFETY: retained once by `open`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
