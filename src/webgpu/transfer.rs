//! Transfers between host and device: direct writes, staged uploads, and staging buffers for
//! readback.

use std::collections::VecDeque;

use super::device::{WebGpuDevice, cleared_buffer};
use crate::base::oneshot::{self, Receiver};
use crate::base::platform::BROWSER;
use crate::error::{Error, Result};
use crate::provider::BufferRange;

/// Bytes of direct writes after which they are flushed to the device, which bounds wgpu's staging
/// memory. Also the largest single write.
const FLUSH_BYTES: u64 = 64 << 20;

/// Bytes written since the last flush, and flushes that may still be in flight.
#[derive(Default)]
pub(super) struct Flushes {
    unflushed: u64,
    running: VecDeque<wgpu::SubmissionIndex>,
}

impl WebGpuDevice {
    /// Implements `Device::write`: the write executes after everything submitted before. A partial
    /// last word is padded with zeros.
    pub(super) fn write_bytes(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.faults.check_lost()?;
        if bytes.len() as u64 != to.bytes || !to.offset.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "a write of {} bytes to {} bytes at {}, which must be a multiple of 4",
                bytes.len(),
                to.bytes,
                to.offset
            )));
        }
        let buffer = self.state().buffer(to)?.gpu.clone();
        let mut offset = to.offset;
        for piece in bytes.chunks(FLUSH_BYTES as usize) {
            self.write_piece(&buffer, offset, piece);
            offset += piece.len() as u64;
            self.flush_when_full(piece.len() as u64)?;
        }
        let counters = &mut self.state().counters;
        counters.uploaded_bytes += bytes.len() as u64;
        // wgpu stages a copy of every write.
        counters.staged_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes bytes before the commands of the next submit; a partial last word is padded with
    /// zeros.
    pub(super) fn write_piece(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        let (words, rest) = bytes.split_at(bytes.len() - bytes.len() % 4);
        if !words.is_empty() {
            self.queue.write_buffer(buffer, offset, words);
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(buffer, offset + words.len() as u64, &last);
        }
    }

    /// Counts written bytes and flushes writes when enough have accumulated. On native builds at
    /// most two flushes are in flight; a browser limits them itself.
    fn flush_when_full(&self, bytes: u64) -> Result<()> {
        let oldest = {
            let flushes = &mut self.state().flushes;
            flushes.unflushed += bytes;
            if flushes.unflushed < FLUSH_BYTES {
                return Ok(());
            }
            flushes.unflushed = 0;
            flushes.running.push_back(self.queue.submit(None));
            if flushes.running.len() > 2 { flushes.running.pop_front() } else { None }
        };
        match oldest {
            Some(index) if !BROWSER => self.poll_until_done(index),
            _ => Ok(()),
        }
    }
}

/// Staging for uploads in command order: data is gathered in device blocks and copied from there.
/// Submits run in order, so each reuses the blocks.
#[derive(Default)]
pub(super) struct Staging {
    blocks: Vec<Block>,
    /// Intermediate buffer for copies within one buffer, which wgpu does not support directly.
    bounce: Option<wgpu::Buffer>,
}

struct Block {
    buffer: wgpu::Buffer,
    bytes: Vec<u8>,
    capacity: u64,
}

impl Staging {
    /// Block size in bytes; a larger upload gets a larger block.
    const BLOCK: u64 = 1 << 20;
    /// Maximum bytes of blocks kept between submits.
    const KEPT: u64 = 8 << 20;

    /// Adds bytes for the submit being encoded; returns the buffer and offset to copy from.
    pub(super) fn add(
        &mut self,
        gpu: &wgpu::Device,
        queue: &wgpu::Queue,
        bytes: &[u8],
    ) -> (wgpu::Buffer, u64) {
        let need = (bytes.len() as u64).next_multiple_of(4);
        let room = |block: &Block| block.capacity - block.bytes.len() as u64 >= need;
        let place = self.blocks.iter().position(room).unwrap_or_else(|| {
            let capacity = need.max(Self::BLOCK);
            let buffer = cleared_buffer(
                gpu,
                queue,
                &wgpu::BufferDescriptor {
                    label: Some("staged uploads"),
                    size: capacity,
                    usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                },
            );
            self.blocks.push(Block { buffer, bytes: Vec::new(), capacity });
            self.blocks.len() - 1
        });
        let block = &mut self.blocks[place];
        let offset = block.bytes.len() as u64;
        block.bytes.extend_from_slice(bytes);
        block.bytes.resize((offset + need) as usize, 0);
        (block.buffer.clone(), offset)
    }

    /// Writes the staged bytes; called before the submit that copies them.
    pub(super) fn flush(&mut self, queue: &wgpu::Queue) {
        let mut kept = 0;
        self.blocks.retain_mut(|block| {
            if !block.bytes.is_empty() {
                queue.write_buffer(&block.buffer, 0, &block.bytes);
                block.bytes.clear();
            }
            kept += block.capacity;
            kept <= Self::KEPT
        });
    }

    /// Returns a buffer of at least `bytes` bytes for a copy within one buffer.
    pub(super) fn bounce(&mut self, gpu: &wgpu::Device, bytes: u64) -> wgpu::Buffer {
        match &self.bounce {
            Some(buffer) if buffer.size() >= bytes => buffer.clone(),
            _ => {
                let buffer = gpu.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("copies within a buffer"),
                    size: bytes,
                    usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                });
                self.bounce = Some(buffer.clone());
                buffer
            }
        }
    }
}

/// A pool of mappable buffers reused between downloads.
#[derive(Default)]
pub(super) struct StagingPool {
    free: Vec<wgpu::Buffer>,
}

impl StagingPool {
    /// Maximum buffers kept.
    const KEPT: usize = 8;
    /// Largest buffer kept, in bytes.
    const LARGEST: u64 = 64 << 20;

    fn take(&mut self, gpu: &wgpu::Device, bytes: u64, most: u64) -> wgpu::Buffer {
        let fits = |size: u64| size >= bytes && size <= bytes.saturating_mul(8).max(4096);
        let found = self.free.iter().enumerate().filter(|(_, buffer)| fits(buffer.size()));
        if let Some((place, _)) = found.min_by_key(|(_, buffer)| buffer.size()) {
            return self.free.swap_remove(place);
        }
        gpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("downloads"),
            size: bytes.max(4096).next_power_of_two().min(most).max(bytes),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn give(&mut self, buffer: wgpu::Buffer) {
        if self.free.len() < Self::KEPT && buffer.size() <= Self::LARGEST {
            self.free.push(buffer);
        }
    }
}

/// Readback of one submit: its downloads, packed into few mappable buffers.
pub(super) struct Readback {
    parts: Vec<Part>,
    /// Buffer index, offset and size of each download, in bytes.
    places: Vec<(usize, u64, u64)>,
}

struct Part {
    buffer: wgpu::Buffer,
    used: u64,
    mapped: Option<Receiver<Result<(), wgpu::BufferAsyncError>>>,
}

impl Readback {
    /// Allocates buffers of at most `most` bytes for downloads of these sizes.
    pub(super) fn new(
        pool: &mut StagingPool,
        gpu: &wgpu::Device,
        sizes: &[u64],
        most: u64,
    ) -> Readback {
        let mut used: Vec<u64> = Vec::new();
        let mut places = Vec::with_capacity(sizes.len());
        for bytes in sizes {
            let need = bytes.next_multiple_of(8);
            if used.last().is_none_or(|last| *last + need > most) {
                used.push(0);
            }
            let part = used.len() - 1;
            places.push((part, used[part], *bytes));
            used[part] += need;
        }
        let part =
            |used: u64| Part { buffer: pool.take(gpu, used.max(8), most), used, mapped: None };
        Readback { parts: used.into_iter().map(part).collect(), places }
    }

    /// Returns the destination buffer and byte offset of download `index`.
    pub(super) fn place(&self, index: usize) -> Option<(&wgpu::Buffer, u64)> {
        let (part, offset, _) = self.places.get(index)?;
        Some((&self.parts.get(*part)?.buffer, *offset))
    }

    /// Requests that the buffers are mapped; called after the submit.
    pub(super) fn map(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.used > 0) {
            let (sender, receiver) = oneshot::channel();
            let slice = part.buffer.slice(..part.used);
            slice.map_async(wgpu::MapMode::Read, move |result| sender.send(result));
            part.mapped = Some(receiver);
        }
    }

    /// Returns whether every mapping has completed.
    pub(super) fn is_ready(&self) -> bool {
        self.parts.iter().all(|part| part.mapped.as_ref().is_none_or(Receiver::is_ready))
    }

    /// Waits for the mappings and returns whether all succeeded.
    pub(super) async fn mapped(&mut self) -> bool {
        let mut all = true;
        for part in &mut self.parts {
            if let Some(receiver) = part.mapped.take() {
                all &= matches!(receiver.await, Some(Ok(())));
            }
        }
        all
    }

    /// Copies the bytes of every download and returns the buffers to the pool.
    pub(super) fn finish(self, pool: &mut StagingPool) -> Result<Vec<Vec<u8>>> {
        let failed = |what: &dyn std::fmt::Display| Error::device(format!("a download: {what}"));
        let mut out = Vec::with_capacity(self.places.len());
        for (part, offset, bytes) in self.places {
            if bytes == 0 {
                out.push(Vec::new());
                continue;
            }
            let part = self.parts.get(part).ok_or_else(|| failed(&"no staging buffer"))?;
            // Copies and mappings are in whole words.
            let range = offset..offset + bytes.next_multiple_of(4);
            let view = part.buffer.get_mapped_range(range).map_err(|e| failed(&e))?;
            let bytes = view.get(..bytes as usize).ok_or_else(|| failed(&"the view is short"))?;
            out.push(bytes.to_vec());
        }
        for part in self.parts {
            if part.used > 0 {
                part.buffer.unmap();
                pool.give(part.buffer);
            }
        }
        Ok(out)
    }
}
