//! The OpenCL calls of the provider, with owned handles and named errors.
//!
//! The calls go through `cl3`: the objects of `opencl3` panic if a release fails, as it does once a
//! device is lost. A release that fails here leaks the object to the driver.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr;

use cl3::command_queue as queue;
use cl3::error_codes::error_text;
use cl3::types::{CL_FALSE, CL_TRUE, cl_bool, cl_device_id, cl_int, cl_mem, cl_ulong};
use cl3::{context, event, kernel, memory, program};

/// An OpenCL error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) cl_int);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", error_text(self.0), self.0)
    }
}

impl From<cl_int> for Code {
    fn from(code: cl_int) -> Code {
        Code(code)
    }
}

/// The result of a call.
pub(super) type Cl<T> = Result<T, Code>;

/// The driver's id of a device.
#[derive(Clone, Copy)]
pub(super) struct DeviceId(pub(super) cl_device_id);

// SAFETY: the id of a root device stays valid on every thread.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $release:path) => {
        $(#[$doc])*
        pub(super) struct $name(*mut c_void);

        // SAFETY: every call of OpenCL but clSetKernelArg may be made from any thread, and that
        // one takes the kernel by `&mut`.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle is owned, and released only here.
                let _ = unsafe { $release(self.0) };
            }
        }
    };
}

handle!(
    /// A context of one device.
    Context,
    context::release_context
);
handle!(
    /// An in-order queue with profiling enabled.
    Queue,
    queue::release_command_queue
);
handle!(
    /// Device memory.
    Memory,
    memory::release_mem_object
);
handle!(
    /// A built program.
    Program,
    program::release_program
);
handle!(
    /// A kernel of a program, with its arguments.
    Kernel,
    kernel::release_kernel
);
handle!(
    /// The completion of a command.
    Event,
    event::release_event
);

impl Context {
    /// Creates a context of one device.
    pub(super) fn new(device: DeviceId) -> Cl<Context> {
        let made = context::create_context(&[device.0], ptr::null(), None, ptr::null_mut());
        Ok(Context(made?))
    }

    /// Creates a queue on this context's device.
    #[allow(deprecated, reason = "its successor is missing before OpenCL 2.0")]
    pub(super) fn queue(&self, device: DeviceId) -> Cl<Queue> {
        // SAFETY: the context was made for this device.
        let made = unsafe {
            queue::create_command_queue(self.0, device.0, queue::CL_QUEUE_PROFILING_ENABLE)
        };
        Ok(Queue(made?))
    }

    /// Allocates `bytes` bytes without clearing them. `shared` requests memory that the host maps
    /// without a copy.
    pub(super) fn memory(&self, bytes: u64, shared: bool) -> Cl<Memory> {
        let place = if shared { memory::CL_MEM_ALLOC_HOST_PTR } else { 0 };
        let flags = memory::CL_MEM_READ_WRITE | place;
        // SAFETY: no host pointer is given.
        let made = unsafe { memory::create_buffer(self.0, flags, size(bytes)?, ptr::null_mut()) };
        Ok(Memory(made?))
    }

    /// Creates a program from its text, without building it.
    pub(super) fn program(&self, text: &str) -> Cl<Program> {
        Ok(Program(program::create_program_with_source(self.0, &[text])?))
    }

    /// Creates a program from a [`Program::binary`] of this device, without building it.
    pub(super) fn program_from(&self, device: DeviceId, binary: &[u8]) -> Cl<Program> {
        // SAFETY: the context was made for this device.
        let made = unsafe { program::create_program_with_binary(self.0, &[device.0], &[binary]) };
        Ok(Program(made?))
    }
}

impl Program {
    /// Builds the program; the error contains the compiler's log.
    pub(super) fn build(&self, device: DeviceId, options: &str) -> Result<(), (Code, String)> {
        let none = |code: cl_int| (Code(code), String::new());
        let text = CString::new(options).map_err(|_| none(cl3::error_codes::CL_INVALID_VALUE))?;
        program::build_program(self.0, &[device.0], &text, None, ptr::null_mut()).map_err(|code| {
            let log =
                program::get_program_build_data(self.0, device.0, program::CL_PROGRAM_BUILD_LOG);
            let log = log.unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_owned();
            (Code(code), log)
        })
    }

    /// Returns the compiled binary, if the driver has one.
    pub(super) fn binary(&self) -> Option<Vec<u8>> {
        let binaries = program::get_program_info(self.0, program::CL_PROGRAM_BINARIES).ok()?;
        match binaries {
            cl3::info_type::InfoType::VecVecUchar(list) => list.into_iter().find(|b| !b.is_empty()),
            _ => None,
        }
    }

    /// Creates a kernel of the program, with no arguments set.
    pub(super) fn kernel(&self, name: &CStr) -> Cl<Kernel> {
        Ok(Kernel(kernel::create_kernel(self.0, name)?))
    }
}

impl Kernel {
    /// Returns the maximum number of threads in a workgroup of this kernel.
    pub(super) fn max_threads(&self, device: DeviceId) -> Cl<u64> {
        let asked = kernel::CL_KERNEL_WORK_GROUP_SIZE;
        let bytes = kernel::get_kernel_work_group_data(self.0, device.0, asked)?;
        Ok(number(&bytes))
    }

    /// Returns the number of the kernel's arguments.
    pub(super) fn arguments(&self) -> Cl<usize> {
        let bytes = kernel::get_kernel_data(self.0, kernel::CL_KERNEL_NUM_ARGS)?;
        Ok(number(&bytes) as usize)
    }

    /// Returns the kernel's sub-group size in one-dimensional workgroups of this number of threads.
    pub(super) fn subgroup_size(&self, device: DeviceId, threads: usize) -> Cl<u64> {
        let asked = cl3::ext::CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE_KHR;
        let (bytes, input) = (size_of::<usize>(), (&raw const threads).cast());
        let found = cl3::ext::get_kernel_sub_group_info_khr(self.0, device.0, asked, bytes, input)?;
        Ok(found as u64)
    }

    /// Sets an argument to a buffer.
    ///
    /// # Safety
    /// The kernel takes a buffer at this index, and the memory lives until the next launch is
    /// enqueued.
    pub(super) unsafe fn set_memory(&mut self, index: u32, memory: &Memory) -> Cl<()> {
        let value = (&raw const memory.0).cast();
        // SAFETY: the caller's promise; the value is copied by the call.
        unsafe { kernel::set_kernel_arg(self.0, index, size_of::<cl_mem>(), value) }?;
        Ok(())
    }

    /// Sets an argument to a `ulong`.
    ///
    /// # Safety
    /// The kernel takes a `ulong` at this index.
    pub(super) unsafe fn set_ulong(&mut self, index: u32, value: cl_ulong) -> Cl<()> {
        let value = (&raw const value).cast();
        // SAFETY: the caller's promise; the value is copied by the call.
        unsafe { kernel::set_kernel_arg(self.0, index, size_of::<cl_ulong>(), value) }?;
        Ok(())
    }

    /// Sets an argument to a struct of 32-bit words.
    ///
    /// # Safety
    /// The kernel takes a struct of this number of words at this index.
    pub(super) unsafe fn set_words(&mut self, index: u32, words: &[u32]) -> Cl<()> {
        let (bytes, value) = (size_of_val(words), words.as_ptr().cast());
        // SAFETY: the caller's promise; the value is copied by the call.
        unsafe { kernel::set_kernel_arg(self.0, index, bytes, value) }?;
        Ok(())
    }
}

impl Event {
    /// Waits for the command. The error is that of the command or of the driver.
    pub(super) fn wait(&self) -> Cl<()> {
        event::wait_for_events(&[self.0])?;
        match self.status()? {
            code if code < 0 => Err(Code(code)),
            _ => Ok(()),
        }
    }

    /// Returns whether the command has ended, with or without an error.
    pub(super) fn is_done(&self) -> bool {
        // If the driver cannot answer, no completion will follow.
        self.status().map_or(true, |code| code <= 0)
    }

    fn status(&self) -> Cl<cl_int> {
        let asked = event::CL_EVENT_COMMAND_EXECUTION_STATUS;
        let bytes = event::get_event_data(self.0, asked)?;
        let bytes = bytes.first_chunk().copied().unwrap_or_default();
        Ok(cl_int::from_ne_bytes(bytes))
    }

    /// Returns the device time at the end of the command, in nanoseconds.
    pub(super) fn end_nanoseconds(&self) -> Cl<cl_ulong> {
        let bytes = event::get_event_profiling_data(self.0, event::CL_PROFILING_COMMAND_END)?;
        Ok(number(&bytes))
    }
}

impl Queue {
    /// Enqueues a launch of this number of workgroups.
    ///
    /// # Safety
    /// Every argument of the kernel is set, to memory that lives until the launch is done.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        groups: [u32; 3],
        threads: [u32; 3],
    ) -> Cl<Event> {
        let local = threads.map(|n| n as usize);
        let mut global = [0; 3];
        for axis in 0..3 {
            global[axis] = size(u64::from(groups[axis]) * u64::from(threads[axis]))?;
        }
        let (global, local, none) = (global.as_ptr(), local.as_ptr(), ptr::null());
        // SAFETY: the caller's promise; the sizes are read by the call.
        let done = unsafe {
            queue::enqueue_nd_range_kernel(self.0, kernel.0, 3, none, global, local, 0, ptr::null())
        };
        Ok(Event(done?))
    }

    /// Enqueues a write, and waits for it if `wait` is set.
    ///
    /// # Safety
    /// The range lies in the memory. Without `wait`, the bytes live until the event is done.
    pub(super) unsafe fn write(
        &self,
        to: &Memory,
        offset: u64,
        bytes: &[u8],
        wait: bool,
    ) -> Cl<Event> {
        let (offset, from) = (size(offset)?, bytes.as_ptr().cast());
        let (wait, none) = (flag(wait), ptr::null());
        // SAFETY: the caller's promise.
        let done = unsafe {
            queue::enqueue_write_buffer(self.0, to.0, wait, offset, bytes.len(), from, 0, none)
        };
        Ok(Event(done?))
    }

    /// Enqueues a read.
    ///
    /// # Safety
    /// The range lies in the memory; the bytes live, and are not accessed, until the event is done.
    pub(super) unsafe fn read(&self, from: &Memory, offset: u64, bytes: &mut [u8]) -> Cl<Event> {
        let (offset, to, none) = (size(offset)?, bytes.as_mut_ptr().cast(), ptr::null());
        // SAFETY: the caller's promise.
        let done = unsafe {
            queue::enqueue_read_buffer(self.0, from.0, CL_FALSE, offset, bytes.len(), to, 0, none)
        };
        Ok(Event(done?))
    }

    /// Enqueues a copy between two memories, or between ranges of one that do not overlap.
    ///
    /// # Safety
    /// Both ranges lie in their memory.
    pub(super) unsafe fn copy(
        &self,
        (from, from_offset): (&Memory, u64),
        (to, to_offset): (&Memory, u64),
        bytes: u64,
    ) -> Cl<Event> {
        let (a, b, bytes) = (size(from_offset)?, size(to_offset)?, size(bytes)?);
        // SAFETY: the caller's promise.
        let done = unsafe {
            queue::enqueue_copy_buffer(self.0, from.0, to.0, a, b, bytes, 0, ptr::null())
        };
        Ok(Event(done?))
    }

    /// Enqueues a clear to zero; offset and size are multiples of 4.
    ///
    /// # Safety
    /// The range lies in the memory.
    pub(super) unsafe fn clear(&self, memory: &Memory, offset: u64, bytes: u64) -> Cl<Event> {
        let zero = 0u32;
        let pattern = (&raw const zero).cast();
        let (offset, bytes) = (size(offset)?, size(bytes)?);
        // SAFETY: the caller's promise; the pattern is copied by the call.
        let done = unsafe {
            queue::enqueue_fill_buffer(self.0, memory.0, pattern, 4, offset, bytes, 0, ptr::null())
        };
        Ok(Event(done?))
    }

    /// Enqueues a marker that completes after all earlier commands.
    pub(super) fn marker(&self) -> Cl<Event> {
        // SAFETY: there is no list of events to wait for.
        let done = unsafe { queue::enqueue_marker_with_wait_list(self.0, 0, ptr::null()) };
        Ok(Event(done?))
    }

    /// Maps a range, overwrites it with `bytes` and unmaps it; waits only for the mapping.
    ///
    /// # Safety
    /// The range, which is as long as `bytes`, lies in the memory.
    pub(super) unsafe fn write_mapped(&self, to: &Memory, offset: u64, bytes: &[u8]) -> Cl<Event> {
        let mut place: cl_mem = ptr::null_mut();
        let flags = memory::CL_MAP_WRITE_INVALIDATE_REGION;
        let (length, offset, none) = (bytes.len(), size(offset)?, ptr::null());
        // SAFETY: the caller's promise.
        let mapped = unsafe {
            queue::enqueue_map_buffer(
                self.0, to.0, CL_TRUE, flags, offset, length, &mut place, 0, none,
            )
        };
        drop(Event(mapped?));
        // SAFETY: a blocking map has made `length` bytes at `place` the host's, and no other
        // pointer to them exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), length) };
        // SAFETY: it was mapped above, and the pointer is not used after this.
        let done = unsafe { queue::enqueue_unmap_mem_object(self.0, to.0, place, 0, none) };
        Ok(Event(done?))
    }

    /// Submits enqueued commands to the device.
    pub(super) fn flush(&self) -> Cl<()> {
        Ok(queue::flush(self.0)?)
    }

    /// Waits for all commands.
    pub(super) fn finish(&self) -> Cl<()> {
        Ok(queue::finish(self.0)?)
    }
}

/// Reads a number of 8 or 4 bytes that a driver returned; 0 if there are fewer.
pub(super) fn number(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(eight), _) => u64::from_ne_bytes(*eight),
        (None, Some(four)) => u64::from(u32::from_ne_bytes(*four)),
        (None, None) => 0,
    }
}

fn size(bytes: u64) -> Cl<usize> {
    usize::try_from(bytes).map_err(|_| Code(cl3::error_codes::CL_INVALID_VALUE))
}

fn flag(value: bool) -> cl_bool {
    if value { CL_TRUE } else { CL_FALSE }
}
