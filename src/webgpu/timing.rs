//! Timestamps: one query set, resolved in the encoder that wrote it.
//!
//! Submits run in order on one queue, so a set resolved in one submit is free for the next without
//! waiting.

/// Maximum timestamps per submit: the size of a query set.
pub(super) const MAX_TIMESTAMPS: u32 = wgpu::QUERY_SET_MAX_QUERIES;
/// Bytes per timestamp.
pub(super) const TIMESTAMP_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// The query set and the buffer that it is resolved into.
pub(super) struct Queries {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

impl Queries {
    /// Creates the query set and its buffer; called at the first timestamp of a device.
    pub(super) fn new(gpu: &wgpu::Device) -> Queries {
        let set = gpu.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("warploom timestamps"),
            ty: wgpu::QueryType::Timestamp,
            count: MAX_TIMESTAMPS,
        });
        let resolved = gpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("warploom timestamps"),
            size: u64::from(MAX_TIMESTAMPS) * TIMESTAMP_BYTES,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Queries { set, resolved }
    }

    /// Writes the device's clock as timestamp `index` of this submit.
    pub(super) fn write(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        encoder.write_timestamp(&self.set, index);
    }

    /// Copies the first `count` timestamps, in ticks, to `to` at `offset` bytes.
    pub(super) fn read(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        count: u32,
        to: &wgpu::Buffer,
        offset: u64,
    ) {
        encoder.resolve_query_set(&self.set, 0..count, &self.resolved, 0);
        let bytes = u64::from(count) * TIMESTAMP_BYTES;
        encoder.copy_buffer_to_buffer(&self.resolved, 0, to, offset, bytes);
    }
}

/// Converts resolved timestamps to nanoseconds; `period` is nanoseconds per tick.
pub(super) fn nanoseconds(bytes: &[u8], period: f64) -> Vec<u64> {
    let ticks = bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
    ticks.map(|chunk| (u64::from_le_bytes(chunk) as f64 * period) as u64).collect()
}
