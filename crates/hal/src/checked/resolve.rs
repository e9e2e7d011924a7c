//! One submit of checked work: evaluates and checks what varies between submits, and enqueues
//! nothing.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::{CheckedRecording, Launch, LiveBuffers, Num, Range, Slot, Step};
use crate::{Args, Binding, BufferRange, UploadSource};
use warploom_core::error::{Error, Result};

/// The checked values of one submit of a [`CheckedRecording`]; built by
/// [`CheckedRecording::evaluate`].
pub struct Resolved {
    /// Values of the sizes that change.
    values: Vec<i64>,
    /// The buffer of every slot.
    slots: SmallVec<[BufferRange; 8]>,
    /// The bytes of the parameter blocks that change.
    changed: Vec<u8>,
}

/// A resolved command. Ranges lie within live buffers; sizes may be zero.
pub enum ResolvedCommand<'a> {
    /// A kernel launch. If a size of the grid is zero, nothing is launched.
    Launch {
        /// The launch.
        launch: &'a Launch,
        /// Number of workgroups in x, y and z.
        grid: [u32; 3],
    },
    /// An upload of bytes from the host; an incomplete last word is padded with zeros.
    Upload {
        /// Destination; a multiple of 4 bytes.
        to: BufferRange,
        /// The bytes, up to three fewer than the destination has.
        bytes: &'a [u8],
    },
    /// A copy between buffers, or between non-overlapping ranges of one.
    Copy {
        /// Source.
        from: BufferRange,
        /// Destination, of the same size.
        to: BufferRange,
    },
    /// Fills the range with zeros.
    Clear {
        /// The range.
        range: BufferRange,
    },
    /// A download of bytes to the host.
    Download {
        /// Source.
        from: BufferRange,
    },
    /// Records the time of the device's clock.
    Timestamp,
}

impl Resolved {
    /// Returns the buffer range of every slot, in the order of the recording's slots.
    pub fn slots(&self) -> &[BufferRange] {
        &self.slots
    }

    /// Returns the buffer range of a launch's binding.
    pub fn range_of(&self, binding: &Binding) -> BufferRange {
        let slot = self.slots[binding.slot as usize];
        let offset = slot.offset + binding.offset;
        BufferRange { buffer: slot.buffer, offset, bytes: binding.bytes }
    }

    /// Returns the first `count` parameter words of a launch; empty if it has none.
    pub fn words(
        &self,
        work: &CheckedRecording,
        launch: &Launch,
        count: usize,
    ) -> SmallVec<[u32; 16]> {
        let Some(at) = launch.params else { return SmallVec::new() };
        let at = at as usize;
        let (bytes, at) = match at.checked_sub(work.changing_at) {
            Some(at) => (&self.changed[..], at),
            None => (&work.params[..], at),
        };
        let words = bytes.get(at..at + 4 * count).unwrap_or_default().chunks_exact(4);
        words.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Returns the byte offset in [`CheckedRecording::params`] of the blocks that change, and their
    /// new bytes, which may be empty.
    pub fn changed(&self, work: &CheckedRecording) -> (u64, &[u8]) {
        (work.changing_at as u64, &self.changed)
    }
}

impl CheckedRecording {
    /// Evaluates and checks one submit.
    ///
    /// # Errors
    /// Invalid if the arguments do not fit the recording, naming the dispatch or slot and the
    /// offending values.
    pub fn evaluate(&self, buffers: &dyn LiveBuffers, args: &Args) -> Result<Resolved> {
        self.evaluate_inner(buffers, args)
            .map_err(|error| error.context(format!("recording {:?}", self.label)))
    }

    fn evaluate_inner(&self, buffers: &dyn LiveBuffers, args: &Args) -> Result<Resolved> {
        let freed = buffers.freed();
        if self.freed.load(Ordering::Relaxed) != freed {
            for slot in &self.slots {
                let Some(range) = slot.bound else { continue };
                let named = |e: Error| e.context(format!("slot {:?}", slot.name));
                buffers.check(range).map_err(named)?;
            }
            self.freed.store(freed, Ordering::Relaxed);
        }
        let slots = self.bind(buffers, args)?;
        let values = self.dims.iter().map(|dim| dim.eval(&args.symbols));
        let values = values.collect::<Result<Vec<i64>>>()?;
        for place in &self.changing {
            self.check_step(&self.steps[*place as usize], &values, &slots, args)?;
        }
        let changed = self.change_params(&values)?;
        Ok(Resolved { values, slots, changed })
    }

    /// Returns the commands of a submit, in order.
    pub fn commands<'a>(
        &'a self,
        run: &'a Resolved,
        args: &'a Args,
    ) -> impl Iterator<Item = ResolvedCommand<'a>> {
        let place = |range: Range| {
            let slot = run.slots[range.slot as usize];
            let offset = slot.offset + range.offset.get(&run.values);
            BufferRange { buffer: slot.buffer, offset, bytes: range.bytes.get(&run.values) }
        };
        self.steps.iter().map(move |step| match step {
            Step::Launch(launch) => {
                // Its range was checked before.
                let grid = launch.grid.map(|size| size.get(&run.values) as u32);
                ResolvedCommand::Launch { launch, grid }
            }
            Step::Upload { to, source } => {
                let bytes = match source {
                    UploadSource::Data(data) => Some(data),
                    UploadSource::Arg(index) => args.uploads.get(*index as usize),
                };
                ResolvedCommand::Upload { to: place(*to), bytes: bytes.map_or(&[], Vec::as_slice) }
            }
            Step::Copy { from, to } => ResolvedCommand::Copy { from: place(*from), to: place(*to) },
            Step::Clear { range } => ResolvedCommand::Clear { range: place(*range) },
            Step::Download { from } => ResolvedCommand::Download { from: place(*from) },
            Step::Timestamp => ResolvedCommand::Timestamp,
        })
    }

    fn bind(&self, buffers: &dyn LiveBuffers, args: &Args) -> Result<SmallVec<[BufferRange; 8]>> {
        if !self.open {
            return match args.buffers.first() {
                Some((slot, _)) => Err(Error::invalid(format!("slot {slot} was bound in prepare"))),
                None => Ok(self.slots.iter().filter_map(|slot| slot.bound).collect()),
            };
        }
        for (index, _) in &args.buffers {
            let open = self.slots.get(*index as usize).is_some_and(|slot| slot.bound.is_none());
            if !open {
                return Err(Error::invalid(format!("slot {index} was not left open")));
            }
        }
        let bound = self.slots.iter().enumerate().map(|(i, slot)| {
            let given = || args.buffers.iter().rev().find(|(to, _)| *to as usize == i);
            match (slot.bound, given) {
                (Some(range), _) => Ok(range),
                (None, given) => match given() {
                    Some((_, range)) => slot.check(*range, buffers).map(|()| *range),
                    None => Err(Error::invalid(format!("open slot {:?} has no buffer", slot.name))),
                },
            }
        });
        bound.collect()
    }

    fn check_step(
        &self,
        step: &Step,
        values: &[i64],
        slots: &[BufferRange],
        args: &Args,
    ) -> Result<()> {
        match step {
            Step::Launch(launch) => {
                let named = |error: Error| error.context(format!("dispatch {:?}", launch.label));
                for size in launch.grid {
                    self.check_num(size, values).map_err(named)?;
                }
                self.eval_grid(&launch.grid, values).map_err(named)?;
                if launch.open {
                    let bound = |slot: u32| slots.get(slot as usize).copied();
                    self.check_places(launch, bound).map_err(named)?;
                }
            }
            Step::Upload { to, source } => {
                let (_, bytes) = self.checked(*to, values)?;
                let given = match source {
                    UploadSource::Data(data) => data.len(),
                    UploadSource::Arg(index) => {
                        let data = args.uploads.get(*index as usize);
                        let data = data.ok_or_else(|| {
                            Error::invalid(format!("upload {index} is missing from the arguments"))
                        })?;
                        data.len()
                    }
                };
                if (given as u64).next_multiple_of(4) != bytes {
                    return Err(Error::invalid(format!("an upload of {bytes} bytes got {given}")));
                }
            }
            Step::Copy { from, to } => {
                let (from_offset, bytes) = self.checked(*from, values)?;
                let (to_offset, to_bytes) = self.checked(*to, values)?;
                if bytes != to_bytes {
                    return Err(Error::invalid(format!(
                        "a copy of {bytes} bytes to a place of {to_bytes}"
                    )));
                }
                let (a, b) = (slots[from.slot as usize], slots[to.slot as usize]);
                let (begin, end) = (a.offset + from_offset, b.offset + to_offset);
                if a.buffer == b.buffer && begin < end + bytes && end < begin + bytes {
                    return Err(Error::invalid(format!(
                        "a copy of {bytes} bytes from {begin} to {end} of one buffer overlaps"
                    )));
                }
            }
            Step::Clear { range: at } | Step::Download { from: at } => {
                self.checked(*at, values)?;
            }
            Step::Timestamp => {}
        }
        Ok(())
    }

    fn checked(&self, range: Range, values: &[i64]) -> Result<(u64, u64)> {
        self.check_num(range.offset, values)?;
        self.check_num(range.bytes, values)?;
        self.check_range(range, values)
    }

    /// Checks that a changing size is not negative.
    fn check_num(&self, num: Num, values: &[i64]) -> Result<()> {
        let Num::At(place) = num else { return Ok(()) };
        match values[place as usize] {
            value if value < 0 => {
                let dim = &self.dims[place as usize];
                Err(Error::invalid(format!("size {dim} is {value}, negative")))
            }
            _ => Ok(()),
        }
    }

    fn change_params(&self, values: &[i64]) -> Result<Vec<u8>> {
        let mut bytes = self.params[self.changing_at..].to_vec();
        for (offset, place) in &self.words {
            let value = values[*place as usize];
            let word = u32::try_from(value).map_err(|_| {
                let dim = &self.dims[*place as usize];
                Error::invalid(format!("parameter {dim} = {value} does not fit 32 bits"))
            })?;
            let offset = *offset as usize - self.changing_at;
            bytes[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    pub(super) fn slot(&self, slot: u32) -> Result<&Slot> {
        self.slots.get(slot as usize).ok_or_else(|| {
            let have = self.slots.len();
            Error::invalid(format!("slot {slot} is not among the {have} of the recording"))
        })
    }

    /// Checks that a range consists of whole words and lies within its slot; returns its offset and
    /// size in bytes.
    pub(super) fn check_range(&self, range: Range, values: &[i64]) -> Result<(u64, u64)> {
        let slot = self.slot(range.slot)?;
        let (offset, bytes) = (range.offset.get(values), range.bytes.get(values));
        // A buffer always ends with a whole word.
        let limit = slot.bytes.next_multiple_of(4);
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= limit);
        if !fits || !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "{bytes} bytes at {offset} of slot {:?} ({} bytes): past its end, or not whole \
                 words",
                slot.name, slot.bytes
            )));
        }
        Ok((offset, bytes))
    }

    /// Returns the number of workgroups in x, y and z, each checked against the device's limit.
    pub(super) fn eval_grid(&self, sizes: &[Num; 3], values: &[i64]) -> Result<[u32; 3]> {
        let [x, y, z] = sizes.map(|size| size.get(values));
        let most = self.most_groups;
        let fits = |size: u64| u32::try_from(size).is_ok_and(|size| size <= most);
        if !(fits(x) && fits(y) && fits(z)) {
            return Err(Error::invalid(format!(
                "a grid of {x} x {y} x {z} workgroups, the device takes {most} in a dimension"
            )));
        }
        Ok([x as u32, y as u32, z as u32])
    }
}

impl Num {
    /// Returns the value, from `values` if it changes. `check_num` must have accepted it.
    fn get(self, values: &[i64]) -> u64 {
        match self {
            Num::Is(value) => value,
            Num::At(place) => values[place as usize] as u64,
        }
    }
}
