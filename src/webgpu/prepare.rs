//! Prepares a recording: everything that can be done before the first submit.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::bind::{bind_group, bind_slots, check_range, eval_grid, no_slot};
use super::compile::Kernel;
use super::device::{State, WebGpuDevice};
use super::faults::{Scopes, convert};
use super::timing::MAX_TIMESTAMPS;
use crate::base::platform::{BROWSER, poll_once};
use crate::base::{Dim, SymbolValues};
use crate::error::{Error, Result};
use crate::provider::{
    Binding, BufferRange, Command, DeviceProfile, Dispatch, PreparedId, Recording, SlotRange,
    UploadSource, Word,
};

/// A recording with pipelines looked up, bind groups built and constant parameters written.
pub(super) struct Prepared {
    pub(super) label: String,
    pub(super) slots: Vec<Slot>,
    /// Whether any slot is bound per submit.
    pub(super) open: bool,
    pub(super) steps: Vec<Step>,
    /// Indices of the steps that each submit checks.
    pub(super) changing: Vec<u32>,
    pub(super) kernels: Vec<Arc<Kernel>>,
    pub(super) groups: Vec<Group>,
    /// Sizes that vary between submits, without duplicates.
    pub(super) dims: Vec<Dim>,
    /// Labels of dispatches with a varying grid.
    pub(super) labels: Vec<String>,
    pub(super) params: Option<ChangingParams>,
    pub(super) downloads: Vec<Range>,
    pub(super) timestamps: u32,
    /// [`State::freed`] when the buffers of the slots were last checked as live.
    pub(super) freed: u64,
    /// Ticket of the last submit it was resolved for.
    pub(super) resolved_for: u64,
}

/// A slot of the recording, with its buffer if `prepare` bound one.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) bound: Option<Bound>,
}

/// The buffer range bound to a slot.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) range: BufferRange,
    pub(super) gpu: wgpu::Buffer,
}

/// A command with resolved kernels, bind groups and ranges.
pub(super) enum Step {
    Dispatch { kernel: u32, group: u32, grid: Grid },
    Upload { to: Range, source: UploadSource },
    Copy { from: Range, to: Range },
    Clear { range: Range },
    Download { range: Range, index: u32 },
    Timestamp,
}

/// Workgroup counts of a dispatch.
pub(super) enum Grid {
    Fixed([u32; 3]),
    Changing { sizes: [Num; 3], label: u32 },
}

/// A constant, or the index of a size in [`Prepared::dims`].
#[derive(Clone, Copy)]
pub(super) enum Num {
    Is(u64),
    At(u32),
}

/// A range of a slot, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) slot: u32,
    pub(super) offset: Num,
    pub(super) bytes: Num,
}

/// Bind group of a dispatch.
pub(super) enum Group {
    Fixed(wgpu::BindGroup),
    /// Built per submit; the number is its index among the open groups of the work.
    Open(u32, Box<OpenGroup>),
}

/// A bind group with a slot that is bound per submit, and the variants built recently.
pub(super) struct OpenGroup {
    pub(super) kernel: Arc<Kernel>,
    pub(super) params: Option<ParamPlace>,
    pub(super) bindings: SmallVec<[Binding; 8]>,
    pub(super) label: String,
    pub(super) built: Vec<(Vec<BufferRange>, wgpu::BindGroup)>,
}

/// Parameter blocks with varying sizes, in one buffer that is rewritten at each submit.
pub(super) struct ChangingParams {
    pub(super) buffer: wgpu::Buffer,
    /// The bytes of every block, with the constant words filled in.
    pub(super) bytes: Vec<u8>,
    /// Byte offset of each varying word, and the index of its size in [`Prepared::dims`].
    pub(super) words: Vec<(u32, u32)>,
}

/// A parameter block on the device.
#[derive(Clone)]
pub(super) struct ParamPlace {
    pub(super) buffer: wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Num {
    /// Returns the value, with varying sizes taken from `values`; call [`Num::check`] first.
    pub(super) fn get(self, values: &[i64]) -> u64 {
        match self {
            Num::Is(value) => value,
            Num::At(place) => values.get(place as usize).map_or(0, |value| *value as u64),
        }
    }

    /// Returns an error if the value is negative.
    pub(super) fn check(self, work: &Prepared, values: &[i64]) -> Result<()> {
        let Num::At(place) = self else { return Ok(()) };
        match values.get(place as usize) {
            Some(value) if *value < 0 => {
                let dim = work.dims.get(place as usize).map(Dim::to_string).unwrap_or_default();
                Err(Error::invalid(format!("size {dim} is {value}, negative")))
            }
            _ => Ok(()),
        }
    }

    fn changes(self) -> bool {
        matches!(self, Num::At(_))
    }
}

impl Range {
    fn changes(self) -> bool {
        self.offset.changes() || self.bytes.changes()
    }
}

impl WebGpuDevice {
    pub(super) fn prepare_recording(
        &self,
        work: &Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<PreparedId> {
        self.faults.check_lost()?;
        let mut state = self.state();
        let scopes = (!BROWSER).then(|| Scopes::open(&self.gpu));
        let prepared = Builder::build(self, &state, work, slots)
            .map_err(|error| error.context(format!("recording {:?}", work.label)));
        let failed = scopes.and_then(|scopes| poll_once(scopes.close())).flatten();
        let prepared = prepared?;
        if let Some(error) = failed {
            return Err(convert(error, &format!("recording {:?}", work.label), None));
        }
        self.faults.check_lost()?;
        let (index, generation) = state.prepared.insert(prepared);
        Ok(PreparedId { index, generation })
    }
}

struct Builder<'a> {
    device: &'a WebGpuDevice,
    work: &'a Recording,
    out: Prepared,
    places: HashMap<Dim, u32>,
    params: Vec<Option<ParamPlace>>,
    groups: HashMap<GroupKey, u32>,
    open_groups: u32,
}

/// Key of a bind group: layout, parameter block, and slot, offset and size of each binding.
type GroupKey = (usize, u32, SmallVec<[(u32, u64, u64); 8]>);

impl<'a> Builder<'a> {
    fn build(
        device: &'a WebGpuDevice,
        state: &State,
        work: &'a Recording,
        slots: &[Option<BufferRange>],
    ) -> Result<Prepared> {
        let slots = bind_slots(state, work, slots)?;
        let kernels = work.kernels.iter().map(|spec| {
            let kernel = state.kernels.get(spec).cloned();
            kernel.ok_or_else(|| Error::invalid(format!("kernel {spec} is not compiled")))
        });
        let out = Prepared {
            label: work.label.clone(),
            open: slots.iter().any(|slot| slot.bound.is_none()),
            slots,
            steps: Vec::with_capacity(work.commands.len()),
            changing: Vec::new(),
            kernels: kernels.collect::<Result<_>>()?,
            groups: Vec::new(),
            dims: Vec::new(),
            labels: Vec::new(),
            params: None,
            downloads: Vec::new(),
            timestamps: 0,
            freed: state.freed,
            resolved_for: 0,
        };
        let mut builder = Builder {
            device,
            work,
            out,
            places: HashMap::new(),
            params: Vec::new(),
            groups: HashMap::new(),
            open_groups: 0,
        };
        builder.write_params()?;
        for (i, command) in work.commands.iter().enumerate() {
            builder.command(command).map_err(|error| match command {
                Command::Dispatch(d) => error.context(format!("command {i}, {:?}", d.label)),
                _ => error.context(format!("command {i}")),
            })?;
        }
        Ok(builder.out)
    }

    fn profile(&self) -> &'a DeviceProfile {
        &self.device.profile
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

    /// Puts constant blocks in one buffer, which is written now, and the others in a second one.
    fn write_params(&mut self) -> Result<()> {
        let used = self.work.commands.iter().filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch.params as usize),
            _ => None,
        });
        let mut wanted = vec![false; self.work.params.len()];
        for block in used {
            if let Some(wanted) = wanted.get_mut(block) {
                *wanted = true;
            }
        }
        let step = (self.profile().binding_alignment as usize).max(16);
        let (mut fixed, mut changing) = (Vec::new(), Vec::new());
        let mut words = Vec::new();
        let mut offsets = Vec::new();
        for (block, wanted) in self.work.params.iter().zip(wanted) {
            if !wanted || block.0.is_empty() {
                offsets.push(None);
                continue;
            }
            let is_static = block.is_static();
            let bytes = if is_static { &mut fixed } else { &mut changing };
            bytes.resize(bytes.len().next_multiple_of(step), 0);
            let offset = bytes.len();
            for (i, word) in block.0.iter().enumerate() {
                let bits = match word {
                    Word::Bits(bits) => *bits,
                    Word::Dim(dim) => match dim.as_const() {
                        Some(_) => word.eval(&SymbolValues::new())?,
                        None => {
                            let place = self.place(dim);
                            words.push(((offset + 4 * i) as u32, place));
                            0
                        }
                    },
                };
                let bytes = if is_static { &mut fixed } else { &mut changing };
                bytes.extend_from_slice(&bits.to_le_bytes());
            }
            let bytes = if is_static { &mut fixed } else { &mut changing };
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            offsets.push(Some((is_static, offset as u64, (bytes.len() - offset) as u64)));
        }
        let fixed_buffer = self.param_buffer(&fixed);
        if let Some(buffer) = &fixed_buffer {
            self.device.queue.write_buffer(buffer, 0, &fixed);
        }
        let changing_buffer = self.param_buffer(&changing);
        self.params = (offsets.into_iter())
            .map(|place| {
                let (is_static, offset, bytes) = place?;
                let buffer = if is_static { &fixed_buffer } else { &changing_buffer };
                Some(ParamPlace { buffer: buffer.clone()?, offset, bytes })
            })
            .collect();
        self.out.params =
            changing_buffer.map(|buffer| ChangingParams { buffer, bytes: changing, words });
        Ok(())
    }

    fn param_buffer(&self, bytes: &[u8]) -> Option<wgpu::Buffer> {
        (!bytes.is_empty()).then(|| {
            self.device.gpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("parameters"),
                size: bytes.len() as u64,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
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
                let range = self.range(from)?;
                let index = self.out.downloads.len() as u32;
                self.out.downloads.push(range);
                (Step::Download { range, index }, false)
            }
            Command::Timestamp => {
                if !self.profile().has_timestamps {
                    let id = self.profile().id();
                    return Err(Error::unsupported(format!("{id} has no timestamps")));
                }
                self.out.timestamps += 1;
                if self.out.timestamps > MAX_TIMESTAMPS {
                    return Err(Error::unsupported(format!(
                        "more than {MAX_TIMESTAMPS} timestamps in one submit"
                    )));
                }
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
        let out = Range {
            slot: range.slot,
            offset: self.num(&range.offset)?,
            bytes: self.num(&range.bytes)?,
        };
        if !out.changes() {
            check_range(&self.out.slots, out, &[])?;
        } else if range.slot as usize >= self.out.slots.len() {
            return Err(no_slot(range.slot, &self.out.slots));
        }
        Ok(out)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<()> {
        let kernel = self.out.kernels.get(dispatch.kernel as usize).cloned();
        let kernel = kernel.ok_or_else(|| {
            Error::invalid(format!("kernel {} is not in the recording", dispatch.kernel))
        })?;
        let params = self.check_params(dispatch, &kernel)?;
        self.check_bindings(dispatch, &kernel)?;
        let sizes = [
            self.num(&dispatch.grid[0])?,
            self.num(&dispatch.grid[1])?,
            self.num(&dispatch.grid[2])?,
        ];
        let changes = sizes.iter().any(|size| size.changes());
        let grid = if changes {
            self.out.labels.push(dispatch.label.clone());
            Grid::Changing { sizes, label: (self.out.labels.len() - 1) as u32 }
        } else {
            match eval_grid(&sizes, &[], self.profile().max_workgroups_per_dim)? {
                [x, y, z] if x == 0 || y == 0 || z == 0 => return Ok(()),
                grid => Grid::Fixed(grid),
            }
        };
        let group = self.group(dispatch, &kernel, params)?;
        self.push(Step::Dispatch { kernel: dispatch.kernel, group, grid }, changes);
        Ok(())
    }

    fn check_params(&self, dispatch: &Dispatch, kernel: &Kernel) -> Result<Option<ParamPlace>> {
        let need = kernel.layout.interface.param_words;
        let block = self.work.params.get(dispatch.params as usize);
        let have = block.map_or(0, |block| block.0.len()).next_multiple_of(4);
        if have != need as usize {
            let name = &kernel.name;
            return Err(Error::invalid(format!(
                "kernel {name} takes {need} words of parameters, block {} has {have}",
                dispatch.params
            )));
        }
        Ok(self.params.get(dispatch.params as usize).cloned().flatten())
    }

    fn check_bindings(&self, dispatch: &Dispatch, kernel: &Kernel) -> Result<()> {
        let interface = &kernel.layout.interface.bindings;
        if dispatch.bindings.len() != interface.len() {
            return Err(Error::invalid(format!(
                "kernel {} has {} bindings, the dispatch {}",
                kernel.name,
                interface.len(),
                dispatch.bindings.len()
            )));
        }
        for (i, (binding, access)) in dispatch.bindings.iter().zip(interface).enumerate() {
            if binding.access != *access {
                return Err(Error::invalid(format!(
                    "binding {i} is {:?}, kernel {} has {access:?}",
                    binding.access, kernel.name
                )));
            }
            let (offset, bytes) = (Num::Is(binding.offset), Num::Is(binding.bytes));
            check_range(&self.out.slots, Range { slot: binding.slot, offset, bytes }, &[])
                .map_err(|error| error.context(format!("binding {i}")))?;
            let most = self.profile().max_binding_bytes;
            if binding.bytes == 0 || binding.bytes > most {
                let bytes = binding.bytes;
                return Err(Error::invalid(format!(
                    "binding {i} covers {bytes} bytes, the device binds 4 to {most}"
                )));
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        dispatch: &Dispatch,
        kernel: &Arc<Kernel>,
        params: Option<ParamPlace>,
    ) -> Result<u32> {
        let block = if params.is_some() { dispatch.params } else { u32::MAX };
        let bound = dispatch.bindings.iter().map(|b| (b.slot, b.offset, b.bytes)).collect();
        let key: GroupKey = (kernel.layout.id, block, bound);
        if let Some(group) = self.groups.get(&key) {
            return Ok(*group);
        }
        let slots = &self.out.slots;
        let is_open = |b: &Binding| slots.get(b.slot as usize).is_some_and(|s| s.bound.is_none());
        let group = if dispatch.bindings.iter().any(is_open) {
            let open = OpenGroup {
                kernel: Arc::clone(kernel),
                params,
                bindings: dispatch.bindings.clone(),
                label: dispatch.label.clone(),
                built: Vec::new(),
            };
            self.open_groups += 1;
            Group::Open(self.open_groups - 1, Box::new(open))
        } else {
            let bound = |slot: u32| slots.get(slot as usize).and_then(|slot| slot.bound.as_ref());
            let bindings = &dispatch.bindings;
            Group::Fixed(bind_group(self.device, kernel, params.as_ref(), bindings, bound)?)
        };
        self.out.groups.push(group);
        let place = (self.out.groups.len() - 1) as u32;
        self.groups.insert(key, place);
        Ok(place)
    }
}
