//! Weights and states in device memory, shared by every plan that names them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::Dim;
use crate::error::{Error, Result};
use crate::memory::{Pool, PooledBuffer};
use crate::plan::{Plan, SlotRole};
use crate::provider::{
    BufferRange, Command, Device, GRANULE, Recording, Resource, SlotRange, Usage,
};

/// Bytes per chunk of an upload.
const CHUNK: usize = 16 << 20;

/// A weight to upload.
#[derive(Debug)]
pub struct WeightSource<'a> {
    /// Name in graphs.
    pub name: &'a str,
    /// Bytes in the storage format that graphs declare for this weight.
    pub bytes: &'a [u8],
}

/// Weights and states in device memory, by name.
#[derive(Default)]
pub struct DeviceTensors {
    places: HashMap<String, Place>,
    /// Copies of weights, keyed by the weights' names, for plans that need them contiguous or
    /// aligned to a binding offset where the originals are not.
    copies: HashMap<Vec<String>, Arc<PooledBuffer>>,
    bytes: u64,
}

crate::base::debug_as!(DeviceTensors, |this| names: this.places.len(), bytes: this.bytes);

/// Memory of one or more tensors; the holder keeps it alive even after the [`DeviceTensors`] is
/// dropped.
pub(super) struct Held {
    pub(super) range: BufferRange,
    pub(super) buffer: Arc<PooledBuffer>,
}

/// Location of one tensor: a range in bytes of a buffer.
struct Place {
    buffer: Arc<PooledBuffer>,
    offset: u64,
    bytes: u64,
}

impl DeviceTensors {
    /// Creates an empty set.
    pub fn new() -> DeviceTensors {
        DeviceTensors::default()
    }

    /// Uploads weights contiguously into one buffer, in chunks; `progress` receives the size of
    /// each chunk in bytes. A plan that reads these weights, or a contiguous run of them, as one
    /// tensor then needs no copy ([`merged_weights`](crate::plan::merged_weights) names them).
    ///
    /// # Errors
    /// Same as [`DeviceTensors::allocate`] and [`DeviceTensors::write`].
    pub fn upload(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        weights: &[WeightSource],
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let sizes = weights.iter().map(|weight| (weight.name, weight.bytes.len() as u64));
        self.allocate(pool, &sizes.collect::<Vec<_>>())?;
        for weight in weights {
            for (i, chunk) in weight.bytes.chunks(CHUNK).enumerate() {
                self.write(device, weight.name, (i * CHUNK) as u64, chunk)?;
                progress(chunk.len() as u64);
            }
        }
        Ok(())
    }

    /// Allocates memory for weights, given by their names and sizes in bytes, contiguously in one
    /// buffer, as [`DeviceTensors::upload`] does. Their contents are undefined until they are
    /// written with [`DeviceTensors::write`], so that a weight need not be in memory as a whole.
    ///
    /// # Errors
    /// Out of memory, naming the weights; invalid if a name is taken, or if a weight other than the
    /// last is not a multiple of [`GRANULE`] bytes; any device error.
    pub fn allocate(&mut self, pool: &Pool, weights: &[(&str, u64)]) -> Result<()> {
        let names: Vec<&str> = weights.iter().map(|(name, _)| *name).collect();
        self.check_free(&names)?;
        let mut bytes = 0;
        for (i, (name, own)) in weights.iter().enumerate() {
            if i + 1 < weights.len() && !own.is_multiple_of(GRANULE) {
                return Err(Error::invalid(format!(
                    "weight {name:?} of {own} bytes cannot precede another: not a multiple of \
                     {GRANULE}"
                )));
            }
            bytes += (*own).max(1).next_multiple_of(GRANULE);
        }
        let buffer = pool
            .take(bytes, Usage::Weights)
            .map_err(|e| e.context(format_args!("weight {:?}", names.join("+"))))?;
        let (buffer, mut offset) = (Arc::new(buffer), 0);
        for (name, bytes) in weights {
            let bytes = (*bytes).max(1).next_multiple_of(GRANULE);
            self.insert(name, Place { buffer: buffer.clone(), offset, bytes });
            offset += bytes;
        }
        Ok(())
    }

    /// Writes bytes of a weight, from byte `offset` of it on.
    ///
    /// # Errors
    /// Invalid if the name is unknown or the bytes reach past the end of its memory; any device
    /// error.
    pub fn write(&self, device: &dyn Device, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let place = self.get(name);
        let place = place.ok_or_else(|| Error::invalid(format!("nothing is bound to {name:?}")))?;
        let count = bytes.len() as u64;
        if offset.checked_add(count).is_none_or(|end| end > place.bytes) {
            return Err(Error::invalid(format!(
                "weight {name:?}: {count} bytes at byte {offset} of {}",
                place.bytes
            )));
        }
        let to = BufferRange { offset: place.offset + offset, bytes: count, ..place };
        device.write(to, bytes)
    }

    /// Allocates `bytes` bytes of zeroed memory for a state.
    ///
    /// # Errors
    /// Out of memory, naming the state; invalid if the name is taken; any device error.
    pub fn state(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        name: &str,
        bytes: u64,
    ) -> Result<()> {
        self.states(pool, device, &[(name, bytes)])
    }

    /// Same as [`DeviceTensors::state`], for several states with their sizes in bytes. The device
    /// clears all of them in one submit.
    ///
    /// # Errors
    /// Same as [`DeviceTensors::state`]. On an error no state is added.
    pub fn states(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        states: &[(&str, u64)],
    ) -> Result<()> {
        let names: Vec<&str> = states.iter().map(|(name, _)| *name).collect();
        self.check_free(&names)?;
        let mut recording = Recording { label: "clear states".into(), ..Recording::default() };
        let (mut slots, mut places) = (Vec::new(), Vec::new());
        for (name, bytes) in states {
            let bytes = (*bytes).max(1).next_multiple_of(GRANULE);
            let buffer = pool
                .take(bytes, Usage::State)
                .map_err(|e| e.context(format_args!("state {name:?}")))?;
            // A pooled buffer keeps its previous contents.
            let slot = recording.slot(*name, bytes);
            let range = SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(bytes) };
            recording.commands.push(Command::Clear { range });
            slots.push(Some(buffer.range()));
            places.push(Place { buffer: Arc::new(buffer), offset: 0, bytes });
        }
        run(device, &recording, &slots)?;
        names.iter().zip(places).for_each(|(name, place)| self.insert(name, place));
        Ok(())
    }

    /// Allocates zeroed memory for every weight and state of a plan, to time the plan without a
    /// model.
    ///
    /// # Errors
    /// Same as [`DeviceTensors::state`].
    pub fn zeros(pool: &Pool, device: &dyn Device, plan: &Plan) -> Result<DeviceTensors> {
        let mut resident = DeviceTensors::new();
        for (role, slot) in plan.slots.iter().zip(&plan.recording.slots) {
            match role {
                SlotRole::Weight(name) | SlotRole::State(name) => {
                    resident.state(pool, device, name, slot.bytes)?;
                }
                SlotRole::Merged(names) => {
                    // Only the sum of their sizes is known: each but the first gets the minimum
                    // size.
                    let rest = GRANULE * names.len().saturating_sub(1) as u64;
                    let zeros = vec![0; slot.bytes.saturating_sub(rest) as usize];
                    let part = |(i, name)| WeightSource {
                        name,
                        bytes: if i == 0 { &zeros } else { &[0; GRANULE as usize] },
                    };
                    let names = names.iter().map(String::as_str).enumerate();
                    let parts: Vec<WeightSource> = names.map(part).collect();
                    resident.upload(pool, device, &parts, &mut |_| {})?;
                }
                SlotRole::Arena(_)
                | SlotRole::Inputs
                | SlotRole::Constants(_)
                | SlotRole::Counters
                | SlotRole::Input(_)
                | SlotRole::Output(_) => {}
            }
        }
        Ok(resident)
    }

    /// Checks that no name is taken or given twice.
    fn check_free(&self, names: &[&str]) -> Result<()> {
        for (i, name) in names.iter().enumerate() {
            if self.places.contains_key(*name) {
                return Err(Error::invalid(format!("{name:?} is resident already")));
            }
            if names[..i].contains(name) {
                return Err(Error::invalid(format!("{name:?} is named twice")));
            }
        }
        Ok(())
    }

    fn insert(&mut self, name: &str, place: Place) {
        self.bytes += place.bytes;
        self.places.insert(name.into(), place);
    }

    /// Returns the memory of a weight or state. Returns `None` if the name is unknown.
    pub fn get(&self, name: &str) -> Option<BufferRange> {
        self.places.get(name).map(Place::range)
    }

    /// Returns the memory of a weight or state, and what holds it.
    pub(super) fn held(&self, name: &str) -> Result<Held> {
        let place = self.places.get(name);
        let place = place.ok_or_else(|| Error::invalid(format!("nothing is bound to {name:?}")))?;
        Ok(Held { range: place.range(), buffer: place.buffer.clone() })
    }

    /// Returns the total size in bytes, including copies.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns these weights as one contiguous range at a valid binding offset. If they were not
    /// uploaded that way, they are copied once into their own buffer.
    ///
    /// # Errors
    /// Invalid, naming the weight, if one is missing; out of memory for the copy; any device error.
    pub(super) fn weights(
        &mut self,
        pool: &Pool,
        device: &dyn Device,
        names: &[String],
    ) -> Result<Held> {
        let align = u64::from(device.profile().binding_alignment).max(GRANULE);
        let places: Vec<&Place> = names
            .iter()
            .map(|name| {
                let place = self.places.get(name);
                place.ok_or_else(|| Error::invalid(format!("nothing is bound to {name:?}")))
            })
            .collect::<Result<_>>()?;
        if let Some(range) = adjacent(&places).filter(|r| r.offset.is_multiple_of(align)) {
            return Ok(Held { range, buffer: places[0].buffer.clone() });
        }
        if let Some(copy) = self.copies.get(names) {
            return Ok(Held { range: copy.range(), buffer: copy.clone() });
        }
        let bytes = places.iter().map(|place| place.bytes).sum();
        let copy = pool
            .take(bytes, Usage::Weights)
            .map_err(|e| e.context(format_args!("weight {:?}", names.join("+"))))?;
        let (range, buffer) = (copy.range(), Arc::new(copy));
        gather(device, &places, range)?;
        self.bytes += bytes;
        self.copies.insert(names.to_vec(), buffer.clone());
        Ok(Held { range, buffer })
    }
}

impl Place {
    fn range(&self) -> BufferRange {
        BufferRange { offset: self.offset, bytes: self.bytes, ..self.buffer.range() }
    }
}

/// Returns the range of these tensors if they are contiguous in one buffer.
fn adjacent(places: &[&Place]) -> Option<BufferRange> {
    let first = places.first()?.range();
    let mut end = first.offset;
    for place in places {
        if place.range().buffer != first.buffer || place.offset != end {
            return None;
        }
        end += place.bytes;
    }
    Some(BufferRange { bytes: end - first.offset, ..first })
}

/// Enqueues copies of tensors into one contiguous range. Later submits see the result.
fn gather(device: &dyn Device, places: &[&Place], to: BufferRange) -> Result<()> {
    let mut recording = Recording { label: "merge weights".into(), ..Recording::default() };
    let target = recording.slot("merged", to.bytes);
    let (mut slots, mut begin) = (vec![Some(to)], 0);
    for place in places {
        // A slot must start at a valid binding offset, so it spans the buffer up to the tensor's
        // end.
        let all = BufferRange { offset: 0, bytes: place.offset + place.bytes, ..place.range() };
        let slot = recording.slot("weight", all.bytes);
        let part = |slot, offset: u64| SlotRange {
            slot,
            offset: Dim::from(offset),
            bytes: Dim::from(place.bytes),
        };
        let (from, to) = (part(slot, place.offset), part(target, begin));
        recording.commands.push(Command::Copy { from, to });
        slots.push(Some(all));
        begin += place.bytes;
    }
    run(device, &recording, &slots)
}

/// Submits a recording once without waiting.
fn run(device: &dyn Device, recording: &Recording, slots: &[Option<BufferRange>]) -> Result<()> {
    let prepared = device.prepare(recording, slots)?;
    let submitted = device.submit(&[(prepared, Default::default())]);
    device.free(Resource::Prepared(prepared));
    submitted.map(|_| ())
}
