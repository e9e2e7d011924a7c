//! The first part of `prepare`: checks a recording against kernels, slots and limits.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;

use super::{CheckedRecording, Launch, LiveBuffers, Num, Range, Slot, Step};
use crate::{Binding, BufferRange, Command, DeviceProfile, Dispatch, Recording, SlotRange, Word};
use warploom_core::base::{Dim, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_kernels::{Access, Interface};

impl CheckedRecording {
    /// Checks a recording. `kernels` are the programs of its kernels, in order; `slots[i]` is the
    /// buffer of slot `i`, or `None` for an open slot, for which each submit provides the buffer.
    ///
    /// # Errors
    /// Invalid if the recording does not fit its kernels, slots or limits, naming the command and
    /// the offending values; unsupported for timestamps on a device without them.
    pub fn check<K: Callee>(
        recording: &Recording,
        kernels: &[&K],
        profile: &DeviceProfile,
        buffers: &dyn LiveBuffers,
        slots: &[Option<BufferRange>],
    ) -> Result<CheckedRecording> {
        Checker::check(recording, kernels, profile, buffers, slots)
            .map_err(|error| error.context(format!("recording {:?}", recording.label)))
    }
}

/// The kernel that a dispatch calls: its name, parameters and buffers.
pub trait Callee {
    /// Returns the name for messages.
    fn name(&self) -> &str;
    /// Returns the parameters and storage buffers of a dispatch.
    fn interface(&self) -> &Interface;
    /// Returns the minimum size of a storage buffer in bytes, for any parameters.
    fn least_bytes(&self, binding: usize) -> u64;
}

struct Checker<'a, K> {
    recording: &'a Recording,
    kernels: &'a [&'a K],
    profile: &'a DeviceProfile,
    out: CheckedRecording,
    places: HashMap<Dim, u32>,
    /// Offset of each parameter block that a dispatch uses.
    blocks: Vec<Option<u64>>,
    launches: u32,
}

impl<'a, K: Callee> Checker<'a, K> {
    fn check(
        recording: &'a Recording,
        kernels: &'a [&'a K],
        profile: &'a DeviceProfile,
        buffers: &dyn LiveBuffers,
        slots: &[Option<BufferRange>],
    ) -> Result<CheckedRecording> {
        let slots = bind_slots(recording, slots, buffers)?;
        let out = CheckedRecording {
            label: recording.label.clone(),
            timestamps: 0,
            open: slots.iter().any(|slot| slot.bound.is_none()),
            slots,
            steps: Vec::with_capacity(recording.commands.len()),
            changing: Vec::new(),
            dims: Vec::new(),
            params: Vec::new(),
            changing_at: 0,
            words: Vec::new(),
            alignment: u64::from(profile.binding_alignment.max(4)),
            most_groups: profile.max_workgroups_per_dim,
            freed: AtomicU64::new(buffers.freed()),
            aliasing: buffers.allows_aliasing(),
        };
        let (places, blocks) = (HashMap::new(), vec![None; recording.params.len()]);
        let mut checker = Checker { recording, kernels, profile, out, places, blocks, launches: 0 };
        checker.lay_out_params()?;
        for (i, command) in recording.commands.iter().enumerate() {
            checker.command(command).map_err(|error| match command {
                Command::Dispatch(d) => error.context(format!("command {i}, {:?}", d.label)),
                _ => error.context(format!("command {i}")),
            })?;
        }
        Ok(checker.out)
    }

    fn num(&mut self, dim: &Dim) -> Result<Num> {
        match dim.as_const() {
            Some(value) => match u64::try_from(value) {
                Ok(value) => Ok(Num::Is(value)),
                Err(_) => Err(Error::invalid(format!("size {dim} is negative"))),
            },
            None => Ok(Num::At(self.place(dim))),
        }
    }

    fn place(&mut self, dim: &Dim) -> u32 {
        if let Some(place) = self.places.get(dim) {
            return *place;
        }
        let place = self.out.dims.len() as u32;
        self.out.dims.push(dim.clone());
        self.places.insert(dim.clone(), place);
        place
    }

    /// Lays out constant parameter blocks first, then those that change, so that the latter form
    /// one range.
    fn lay_out_params(&mut self) -> Result<()> {
        let recording = self.recording;
        let mut used = vec![false; recording.params.len()];
        for command in &recording.commands {
            if let Command::Dispatch(dispatch) = command
                && let Some(used) = used.get_mut(dispatch.params as usize)
            {
                *used = true;
            }
        }
        let step = (self.profile.binding_alignment as usize).max(16);
        for changing in [false, true] {
            if changing {
                self.out.changing_at = self.out.params.len().next_multiple_of(step);
                self.out.params.resize(self.out.changing_at, 0);
            }
            for (i, block) in recording.params.iter().enumerate() {
                if !used[i] || block.0.is_empty() || block.is_static() == changing {
                    continue;
                }
                let offset = self.out.params.len().next_multiple_of(step);
                self.out.params.resize(offset, 0);
                for (w, word) in block.0.iter().enumerate() {
                    let bits = match word {
                        Word::Dim(dim) if dim.as_const().is_none() => {
                            let place = self.place(dim);
                            self.out.words.push(((offset + 4 * w) as u32, place));
                            0
                        }
                        word => word.eval(&SymbolValues::new())?,
                    };
                    self.out.params.extend_from_slice(&bits.to_le_bytes());
                }
                let end = self.out.params.len().next_multiple_of(16);
                self.out.params.resize(end, 0);
                self.blocks[i] = Some(offset as u64);
            }
        }
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<()> {
        let (step, changes) = match command {
            Command::Dispatch(dispatch) => return self.dispatch(dispatch),
            Command::Upload { to, source } => {
                let to = self.range(to)?;
                (Step::Upload { to, source: source.clone() }, true)
            }
            Command::Copy { from, to } => {
                let (from, to) = (self.range(from)?, self.range(to)?);
                (Step::Copy { from, to }, true)
            }
            Command::Clear { range } => {
                let range = self.range(range)?;
                (Step::Clear { range }, range.changes())
            }
            Command::Download { from } => {
                let from = self.range(from)?;
                (Step::Download { from }, from.changes())
            }
            Command::Timestamp => {
                if !self.profile.has_timestamps {
                    let id = self.profile.id();
                    return Err(Error::unsupported(format!("{id} has no timestamps")));
                }
                self.out.timestamps += 1;
                (Step::Timestamp, false)
            }
        };
        self.push(step, changes);
        Ok(())
    }

    fn push(&mut self, step: Step, changes: bool) {
        if changes {
            self.out.changing.push(self.out.steps.len() as u32);
        }
        self.out.steps.push(step);
    }

    fn range(&mut self, range: &SlotRange) -> Result<Range> {
        let (offset, bytes) = (self.num(&range.offset)?, self.num(&range.bytes)?);
        let out = Range { slot: range.slot, offset, bytes };
        if !out.changes() {
            self.out.check_range(out, &[])?;
        }
        self.out.slot(range.slot)?;
        Ok(out)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<()> {
        let kernel = *self.kernels.get(dispatch.kernel as usize).ok_or_else(|| {
            Error::invalid(format!("kernel {} is not in the recording", dispatch.kernel))
        })?;
        self.check_params(dispatch, kernel)?;
        self.check_bindings(dispatch, kernel)?;
        let mut grid = [Num::Is(0); 3];
        for (num, dim) in grid.iter_mut().zip(&dispatch.grid) {
            *num = self.num(dim)?;
        }
        let changes = grid.iter().any(|size| size.changes());
        if !changes && self.out.eval_grid(&grid, &[])?.contains(&0) {
            return Ok(());
        }
        let is_open = |b: &Binding| {
            let slot = self.out.slots.get(b.slot as usize);
            slot.is_some_and(|slot| slot.bound.is_none())
        };
        let open = dispatch.bindings.iter().any(is_open);
        let launch = Launch {
            index: self.launches,
            kernel: dispatch.kernel,
            params: self.blocks.get(dispatch.params as usize).copied().flatten(),
            bindings: dispatch.bindings.clone(),
            label: dispatch.label.clone(),
            grid,
            open,
        };
        if !open {
            let bound = |slot: u32| self.out.slots.get(slot as usize).and_then(|s| s.bound);
            self.out.check_places(&launch, bound)?;
        }
        self.launches += 1;
        self.push(Step::Launch(Box::new(launch)), changes || open);
        Ok(())
    }

    fn check_params(&self, dispatch: &Dispatch, kernel: &K) -> Result<()> {
        let need = kernel.interface().param_words;
        let block = self.recording.params.get(dispatch.params as usize);
        let have = block.map_or(0, |block| block.0.len()).next_multiple_of(4);
        if have != need as usize {
            let name = kernel.name();
            return Err(Error::invalid(format!(
                "kernel {name} takes {need} words of parameters, block {} has {have}",
                dispatch.params
            )));
        }
        Ok(())
    }

    fn check_bindings(&self, dispatch: &Dispatch, kernel: &K) -> Result<()> {
        let interface = &kernel.interface().bindings;
        let name = kernel.name();
        if dispatch.bindings.len() != interface.len() {
            let (need, have) = (interface.len(), dispatch.bindings.len());
            return Err(Error::invalid(format!(
                "kernel {name} has {need} bindings, the dispatch {have}"
            )));
        }
        for (i, (binding, access)) in dispatch.bindings.iter().zip(interface).enumerate() {
            let Binding { slot, offset, bytes, .. } = *binding;
            if binding.access != *access {
                let own = binding.access;
                return Err(Error::invalid(format!(
                    "binding {i} is {own:?}, kernel {name} has {access:?}"
                )));
            }
            let range = Range { slot, offset: Num::Is(offset), bytes: Num::Is(bytes) };
            self.out.check_range(range, &[]).map_err(|e| e.context(format!("binding {i}")))?;
            let (least, most) = (kernel.least_bytes(i).max(4), self.profile.max_binding_bytes);
            if bytes < least || bytes > most {
                return Err(Error::invalid(format!(
                    "binding {i} covers {bytes} bytes, kernel {name} and the device take {least} \
                     to {most}"
                )));
            }
        }
        Ok(())
    }
}

fn bind_slots(
    recording: &Recording,
    given: &[Option<BufferRange>],
    buffers: &dyn LiveBuffers,
) -> Result<Vec<Slot>> {
    if given.len() != recording.slots.len() {
        let (need, have) = (recording.slots.len(), given.len());
        return Err(Error::invalid(format!("the recording has {need} slots, {have} were given")));
    }
    let pairs = recording.slots.iter().zip(given);
    pairs
        .map(|(decl, range)| {
            let slot = Slot { name: decl.name.clone(), bytes: decl.bytes, bound: *range };
            if let Some(range) = range {
                slot.check(*range, buffers)?;
            }
            Ok(slot)
        })
        .collect()
}

impl Slot {
    /// Checks that a buffer range is live, large enough for the slot, and aligned.
    pub(super) fn check(&self, range: BufferRange, buffers: &dyn LiveBuffers) -> Result<()> {
        let Slot { name, bytes, .. } = self;
        buffers.check(range).map_err(|e| e.context(format!("slot {name:?}")))?;
        if range.bytes < *bytes || !range.offset.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "slot {name:?} needs {bytes} bytes at a multiple of 4, given {} at {}",
                range.bytes, range.offset
            )));
        }
        Ok(())
    }
}

impl CheckedRecording {
    /// Checks the alignment of a launch's bindings, and that no buffer is read through one binding and
    /// written through another, and no range written through two. WebGPU forbids both, and translated
    /// kernels rely on that.
    pub(super) fn check_places(
        &self,
        launch: &Launch,
        bound: impl Fn(u32) -> Option<BufferRange>,
    ) -> Result<()> {
        let alignment = self.alignment;
        let mut before: SmallVec<[(BufferRange, Access); 8]> = SmallVec::new();
        for (i, binding) in launch.bindings.iter().enumerate() {
            let slot = bound(binding.slot)
                .ok_or_else(|| Error::invalid(format!("slot {} has no buffer", binding.slot)))?;
            let offset = slot.offset.saturating_add(binding.offset);
            if !offset.is_multiple_of(alignment) {
                return Err(Error::invalid(format!(
                    "binding {i} starts at byte {offset}, not a multiple of {alignment}"
                )));
            }
            let place = BufferRange { buffer: slot.buffer, offset, bytes: binding.bytes };
            let access = binding.access;
            for (j, (other, other_access)) in before.iter().enumerate() {
                let reads = (access, *other_access) == (Access::Read, Access::Read);
                if self.aliasing || other.buffer != place.buffer || reads {
                    continue;
                }
                let apart = |a: &BufferRange, b: &BufferRange| a.offset + a.bytes <= b.offset;
                if access != *other_access || !(apart(other, &place) || apart(&place, other)) {
                    return Err(Error::invalid(format!(
                        "bindings {j} ({other_access:?}) and {i} ({access:?}) share {:?}",
                        place.buffer
                    )));
                }
            }
            before.push((place, access));
        }
        Ok(())
    }
}
