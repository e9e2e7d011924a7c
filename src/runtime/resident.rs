//! Weights and states that stay on a device, shared by every plan that names them.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::memory::{Pool, PooledBuffer};
use crate::plan::{Plan, SlotRole};
use crate::provider::{BufferRange, Device, GRANULE, Usage};

/// Bytes of one piece of an upload.
const CHUNK: usize = 16 << 20;

/// A weight to upload.
pub struct WeightSource<'a> {
    /// Name in graphs.
    pub name: &'a str,
    /// Bytes in the format that graphs name.
    pub bytes: &'a [u8],
}

/// Named memory on a device.
#[derive(Default)]
pub struct Resident {
    buffers: HashMap<String, PooledBuffer>,
    bytes: u64,
}

impl Resident {
    /// Nothing.
    pub fn new() -> Resident {
        Resident::default()
    }

    /// Uploads a weight, in pieces; `progress` is told the bytes of each.
    ///
    /// # Errors
    /// Out of memory, naming the weight; invalid, when the name is taken.
    pub fn upload(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        weight: &WeightSource,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let bytes = (weight.bytes.len() as u64).max(1).next_multiple_of(GRANULE);
        let buffer = pool
            .take(bytes, Usage::Weights)
            .map_err(|e| e.context(format_args!("weight {:?}", weight.name)))?;
        let range = buffer.range();
        for (i, chunk) in weight.bytes.chunks(CHUNK).enumerate() {
            let offset = (i * CHUNK) as u64;
            device.write(BufferRange { offset, bytes: chunk.len() as u64, ..range }, chunk)?;
            progress(chunk.len() as u64);
        }
        self.insert(weight.name, buffer)
    }

    /// Adds zeroed memory for a state.
    ///
    /// # Errors
    /// Out of memory, naming the state; invalid, when the name is taken.
    pub fn state(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        name: &str,
        bytes: u64,
    ) -> Result<()> {
        let bytes = bytes.max(1).next_multiple_of(GRANULE);
        let buffer = pool
            .take(bytes, Usage::State)
            .map_err(|e| e.context(format_args!("state {name:?}")))?;
        // A pooled buffer holds whatever was there before.
        let zeros = vec![0; CHUNK.min(bytes as usize)];
        let range = buffer.range();
        let mut offset = 0;
        while offset < bytes {
            let len = (bytes - offset).min(zeros.len() as u64);
            device.write(BufferRange { offset, bytes: len, ..range }, &zeros[..len as usize])?;
            offset += len;
        }
        self.insert(name, buffer)
    }

    /// Adds zeroed memory for every weight and state of a plan: to time it without a model.
    ///
    /// # Errors
    /// As [`Resident::state`].
    pub fn zeros(pool: &Pool, device: &dyn Device, plan: &Plan) -> Result<Resident> {
        let mut resident = Resident::new();
        for (role, slot) in plan.slots.iter().zip(&plan.recording.slots) {
            if let SlotRole::Weight(name) | SlotRole::State(name) = role {
                resident.state(pool, device, name, slot.bytes)?;
            }
        }
        Ok(resident)
    }

    fn insert(&mut self, name: &str, buffer: PooledBuffer) -> Result<()> {
        let bytes = buffer.range().bytes;
        if self.buffers.insert(name.into(), buffer).is_some() {
            return Err(Error::invalid(format!("{name:?} is resident already")));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Where a weight or state lies.
    pub fn get(&self, name: &str) -> Option<BufferRange> {
        self.buffers.get(name).map(PooledBuffer::range)
    }

    /// Bytes of everything.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
