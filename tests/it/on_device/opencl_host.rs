//! OpenCL for tests of translated text: the first device, a build, a launch.

use std::ptr;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{Kernel, set_kernel_arg};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, cl_uchar, cl_ulong};
use warploom_wgsl::translate::{OPENCL_FLAGS, OPENCL_SUBGROUP_FLAGS, Translated};

/// Bytes of each buffer before the bound range, to check that kernels start at their offset.
const LEAD: usize = 64;

/// A device and its queue.
pub(crate) struct Host {
    pub(crate) name: String,
    extensions: String,
    context: Context,
    queue: CommandQueue,
}

/// The first device of the first platform, or the reason if there is none.
pub(crate) fn open() -> Result<Host, String> {
    let message = |e: opencl3::error_codes::ClError| e.to_string();
    for platform in get_platforms().map_err(message)? {
        let Some(id) =
            platform.get_devices(CL_DEVICE_TYPE_ALL).map_err(message)?.into_iter().next()
        else {
            continue;
        };
        let device = Device::new(id);
        let context = Context::from_device(&device).map_err(message)?;
        let queue = CommandQueue::create_default(&context, 0).map_err(message)?;
        let (name, version) = (device.name().map_err(message)?, device.version().map_err(message)?);
        let extensions = device.extensions().map_err(message)?;
        return Ok(Host { name: format!("{name} ({version})"), extensions, context, queue });
    }
    Err("no platform has a device".to_string())
}

impl Host {
    /// Whether the device has the features that a text needs.
    pub(crate) fn has(&self, extensions: &[&str]) -> bool {
        extensions.iter().all(|e| self.extensions.split_whitespace().any(|has| has == *e))
    }

    pub(crate) fn build(&self, work: &Translated) -> Result<Kernel, String> {
        let flags = if work.extensions.is_empty() {
            OPENCL_FLAGS.join(" ")
        } else {
            OPENCL_SUBGROUP_FLAGS.join(" ")
        };
        let program = Program::create_and_build_from_source(&self.context, &work.text, &flags)?;
        Kernel::create(&program, &work.entry).map_err(|e| e.to_string())
    }

    /// Builds and runs; returns the buffers in the order of the bindings.
    pub(crate) fn run(
        &self,
        work: &Translated,
        buffers: &[Vec<u32>],
        groups: [u32; 3],
    ) -> Result<Vec<Vec<u32>>, String> {
        let kernel = self.build(work)?;
        let message = |e: opencl3::error_codes::ClError| e.to_string();
        let mut memory = Vec::new();
        for words in buffers {
            let mut bytes = vec![0xA5; LEAD];
            bytes.extend_from_slice(bytemuck::cast_slice(words));
            let flags = CL_MEM_READ_WRITE;
            // SAFETY: no host pointer is given; the sizes are those of the slice.
            let mut buffer = unsafe {
                Buffer::<cl_uchar>::create(&self.context, flags, bytes.len(), ptr::null_mut())
            }
            .map_err(message)?;
            // SAFETY: the write blocks, and ends within the buffer.
            unsafe { self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, &bytes, &[]) }
                .map_err(message)?;
            memory.push(buffer);
        }
        let lengths: Vec<u32> = work
            .lengths
            .iter()
            .map(|length| length.elements(4 * buffers[length.binding].len() as u64))
            .collect();
        for (at, buffer) in (0..).step_by(2).zip(&memory) {
            // SAFETY: the kernel takes a buffer for each binding, in this order.
            unsafe { kernel.set_arg(at, &buffer.get()) }.map_err(message)?;
            // SAFETY: and after it where the binding starts.
            unsafe { kernel.set_arg(at + 1, &(LEAD as cl_ulong)) }.map_err(message)?;
        }
        if !lengths.is_empty() {
            let (at, value) = (2 * memory.len() as u32, lengths.as_ptr().cast());
            // SAFETY: the struct of lengths is that many words, copied by the call.
            unsafe { set_kernel_arg(kernel.get(), at, 4 * lengths.len(), value) }
                .map_err(|e| e.to_string())?;
        }
        let local = work.workgroup_size.map(|n| n as usize);
        let global = [0, 1, 2].map(|i| groups[i] as usize * local[i]);
        let none = ptr::null();
        // SAFETY: all arguments are set, and live until the queue is done.
        unsafe {
            let (global, local) = (global.as_ptr(), local.as_ptr());
            self.queue.enqueue_nd_range_kernel(kernel.get(), 3, none, global, local, &[])
        }
        .map_err(message)?;
        self.queue.finish().map_err(message)?;
        let mut results = Vec::new();
        for (buffer, words) in memory.iter().zip(buffers) {
            let mut result = vec![0u32; words.len()];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut result);
            // SAFETY: the read blocks, and ends within the slice.
            unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, LEAD, bytes, &[]) }
                .map_err(message)?;
            results.push(result);
        }
        Ok(results)
    }
}
