//! A plan prepared on a device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::batcher::{Batcher, Keep, Pending, Receipt, Work};
use super::device_tensors::{DeviceTensors, Held};
use super::offload::Prepared;
use super::{Runtime, SyncMode};
use crate::base::SymbolValues;
use crate::error::{Error, Result};
use crate::memory::{Pool, PooledBuffer};
use crate::plan::{Bindings, Plan, SlotRole};
use crate::provider::{Args, BufferRange, Command, Device, Recording, SlotDecl, Usage};

/// Outputs of a run by name: bytes, little-endian, row-major.
pub type Outputs = BTreeMap<String, Vec<u8>>;

/// A plan with its memory, compiled kernels and prepared commands. It can run repeatedly.
pub struct Instance {
    plan: Plan,
    batcher: Arc<Batcher>,
    work: Work,
    /// One recording per command, with its label, if the host waits after every dispatch.
    stepwise: Option<Vec<(String, Work)>>,
    /// Indices of the slots that each run binds.
    open: Vec<u32>,
    /// The instance's resources, shared with work that is recorded but not yet submitted.
    owned: Arc<Owned>,
}

crate::base::debug_as!(Instance, |this| plan: this.plan.name, device: this.owned.device.profile().id());

/// Resources freed, in this order, once the instance and all its recorded work are dropped.
struct Owned {
    device: Arc<dyn Device>,
    prepared: Vec<Prepared>,
    /// Arena, inputs and constants.
    buffers: Vec<PooledBuffer>,
    /// Weights and states.
    resident: Vec<Arc<PooledBuffer>>,
}

/// Owner of the memory of intermediates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// The instance.
    Own,
    /// The caller, which passes it at each run.
    Bound,
}

/// Source of weights and states.
enum Source<'a> {
    DeviceTensors(&'a mut DeviceTensors),
    /// Bound at each run.
    Open(Workspace),
}

impl Source<'_> {
    fn is_open(&self, role: &SlotRole) -> bool {
        match role {
            SlotRole::Input(_) | SlotRole::Output(_) => true,
            SlotRole::Weight(_) | SlotRole::State(_) => matches!(self, Source::Open(_)),
            SlotRole::Arena(_) => matches!(self, Source::Open(Workspace::Bound)),
            SlotRole::Merged(_)
            | SlotRole::Inputs
            | SlotRole::Constants(_)
            | SlotRole::Counters => false,
        }
    }
}

/// Memory options that make an instance's invalid accesses visible.
pub(super) struct Extra {
    /// Bytes before and after every buffer, filled with [`GUARD`].
    pub(super) guard: u64,
    /// Whether intermediates start as NaN.
    pub(super) poison: bool,
}

/// Fill byte of guard zones and poisoned memory: NaN as f32.
pub(super) const GUARD: u8 = 0xFF;

impl Instance {
    /// Compiles the kernels, allocates memory and prepares the commands. Weights and states are
    /// found by name in `resident`. Weights that the plan reads as one tensor but that are not
    /// contiguous are copied once on the device.
    ///
    /// # Errors
    /// Compile errors that name the kernel; out of memory; invalid if `resident` lacks a name or
    /// holds too few bytes for it; unsupported if the plan needs features that this device lacks.
    pub async fn new_async(
        runtime: &Runtime,
        plan: Plan,
        resident: &mut DeviceTensors,
    ) -> Result<Instance> {
        let extra = Extra { guard: 0, poison: false };
        Instance::with(runtime, plan, resident, &extra).await.map(|(instance, _)| instance)
    }

    /// Like [`Instance::new_async`], but weights and states are bound at each run. With
    /// [`Workspace::Bound`] the memory of intermediates is too; see [`Bindings`].
    ///
    /// # Errors
    /// Compile errors that name the kernel; out of memory; invalid if the plan reads several
    /// weights as one tensor and was made without [`Bound::weights`](crate::plan::Bound).
    pub async fn unbound_async(
        runtime: &Runtime,
        plan: Plan,
        workspace: Workspace,
    ) -> Result<Instance> {
        let extra = Extra { guard: 0, poison: false };
        let source = Source::Open(workspace);
        Instance::from_source(runtime, plan, source, &extra).await.map(|(instance, _)| instance)
    }

    pub(super) async fn with(
        runtime: &Runtime,
        plan: Plan,
        resident: &mut DeviceTensors,
        extra: &Extra,
    ) -> Result<(Instance, Vec<BufferRange>)> {
        let (instance, ranges) =
            Instance::from_source(runtime, plan, Source::DeviceTensors(resident), extra).await?;
        Ok((instance, ranges.into_iter().flatten().collect()))
    }

    async fn from_source(
        runtime: &Runtime,
        plan: Plan,
        mut source: Source<'_>,
        extra: &Extra,
    ) -> Result<(Instance, Vec<Option<BufferRange>>)> {
        let device = runtime.device().clone();
        if plan.profile != *device.profile() {
            plan.fits(device.profile())?;
        }
        tracing::debug!("{}", plan.explain());
        runtime.compile(&plan.recording.kernels).await?;
        let mut owned = Owned {
            device: device.clone(),
            prepared: Vec::new(),
            buffers: Vec::new(),
            resident: Vec::new(),
        };
        let mut ranges = Vec::new();
        for (role, slot) in plan.slots.iter().zip(&plan.recording.slots) {
            if source.is_open(role) {
                ranges.push(None);
                continue;
            }
            let one = std::slice::from_ref::<String>;
            let range = match (role, &mut source) {
                (
                    SlotRole::Weight(name) | SlotRole::State(name),
                    Source::DeviceTensors(resident),
                ) => owned.named(runtime, resident, one(name), slot)?,
                (SlotRole::Merged(names), Source::DeviceTensors(resident)) => {
                    owned.named(runtime, resident, names, slot)?
                }
                (SlotRole::Merged(names), Source::Open(_)) => {
                    return Err(Error::invalid(format!(
                        "plan {} reads the weights {names:?} as one: plan it with Bound::weights",
                        plan.name
                    )));
                }
                _ => {
                    let bytes = slot.bytes.max(4);
                    let buffer = guarded(runtime.pool(), &*device, bytes, role, extra)
                        .map_err(|e| e.context(format_args!("plan {}", plan.name)))?;
                    let range = BufferRange { offset: extra.guard, bytes, ..buffer.range() };
                    owned.buffers.push(buffer);
                    range
                }
            };
            ranges.push(Some(range));
        }
        let touched: Arc<[_]> = {
            let mut ids: Vec<_> = plan
                .slots
                .iter()
                .zip(&ranges)
                .filter(|(role, _)| {
                    use SlotRole::{Constants, Merged, Weight};
                    !matches!(role, Weight(_) | Merged(_) | Constants(_))
                })
                .filter_map(|(_, range)| range.map(|range| range.buffer))
                .collect();
            ids.sort_unstable();
            ids.dedup();
            ids.into()
        };
        let made = runtime.offload(move |runtime| {
            let prepare = |recording: &Recording| -> Result<(Prepared, Work)> {
                let prepared = Prepared::new(runtime.device(), recording, &ranges)?;
                let work = Work {
                    prepared: prepared.id,
                    dispatches: recording.dispatches(),
                    downloads: recording.downloads(),
                    buffers: touched.clone(),
                };
                Ok((prepared, work))
            };
            let whole = prepare(&plan.recording)?;
            let steps = match runtime.sync() {
                SyncMode::Adaptive | SyncMode::Lazy => None,
                SyncMode::Eager => Some(
                    single_commands(&plan.recording)
                        .map(|(label, recording)| Ok((label, prepare(&recording)?)))
                        .collect::<Result<Vec<_>>>()?,
                ),
            };
            Ok((plan, ranges, whole, steps))
        });
        let (plan, ranges, (prepared, work), steps) = made.await?;
        owned.prepared.push(prepared);
        let mut keep = |(label, (prepared, work))| {
            owned.prepared.push(prepared);
            (label, work)
        };
        let stepwise = steps.map(|steps| steps.into_iter().map(&mut keep).collect());
        let batcher = runtime.batcher().clone();
        let open = ranges.iter().enumerate().filter(|(_, range)| range.is_none());
        let open = open.map(|(slot, _)| slot as u32).collect();
        let owned = Arc::new(owned);
        let instance = Instance { plan, batcher, work, stepwise, open, owned };
        Ok((instance, ranges))
    }

    /// Returns the prepared plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Records one run without waiting; `inputs` are in the order of [`Plan::inputs`]. Downloads
    /// consist of whole words, so an odd number of two-byte elements is followed by two bytes of
    /// padding.
    ///
    /// # Errors
    /// Invalid if symbols are outside the plan's shape class or an input has the wrong size; the
    /// device's error if a full queue is submitted and the submit fails.
    pub fn record(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Pending> {
        self.check(&symbols, &inputs)?;
        let args = Args { symbols, uploads: inputs, buffers: Vec::new() };
        self.record_work(&self.work, args, Keep::default())
    }

    /// Records work of this instance and keeps the instance's memory alive for it.
    fn record_work(&self, work: &Work, args: Args, mut keep: Keep) -> Result<Pending> {
        keep.things.push(self.owned.clone());
        self.batcher.record(work, args, keep)
    }

    /// Records one run without waiting. The bound buffers must stay alive until the run is
    /// submitted, which is at the latest when its result is read.
    ///
    /// # Errors
    /// Same as [`Bindings::resolve`], and the device's error if a full queue is submitted and the
    /// submit fails.
    pub fn record_with(&self, bindings: Bindings) -> Result<Pending> {
        let args = bindings.resolve(&self.plan, &self.open)?;
        self.record_work(&touching(&self.work, &args), args, Keep::default())
    }

    /// Executes one run and returns its downloads, in the order of [`Plan::outputs`].
    ///
    /// # Errors
    /// Same as [`Bindings::resolve`], and any device error.
    pub async fn read_with_async(&self, bindings: Bindings) -> Result<Vec<Vec<u8>>> {
        let args = bindings.resolve(&self.plan, &self.open)?;
        let symbols = args.symbols.clone();
        let mut downloads = match self.stepwise.is_some() {
            true => self.read_stepwise(args).await?,
            false => {
                let work = touching(&self.work, &args);
                let pending = self.record_work(&work, args, Keep::default())?;
                self.batcher.read_async(pending).await?
            }
        };
        self.plan.cut_downloads(&symbols, &mut downloads)?;
        Ok(downloads)
    }

    /// Executes one run with arguments that fit the plan. In eager mode it is complete on return.
    /// Otherwise it is recorded, `keep` is held until the submit, and the receipt reports failures.
    pub(super) async fn run_args(&self, args: Args, keep: Keep) -> Result<Option<Receipt>> {
        if self.stepwise.is_some() {
            return self.read_stepwise(args).await.map(|_| None);
        }
        let work = touching(&self.work, &args);
        Ok(Some(self.record_work(&work, args, keep)?.receipt()))
    }

    /// Checks symbols and inputs against the plan.
    fn check(&self, symbols: &SymbolValues, inputs: &[Vec<u8>]) -> Result<()> {
        if !self.plan.class.contains(symbols) {
            return Err(Error::invalid(format!(
                "plan {} is for {}, not for {symbols:?}",
                self.plan.name, self.plan.class
            )));
        }
        if inputs.len() != self.plan.inputs.len() {
            let (want, have) = (self.plan.inputs.len(), inputs.len());
            return Err(Error::invalid(format!(
                "plan {}: {have} inputs, not {want}",
                self.plan.name
            )));
        }
        for (input, bytes) in self.plan.inputs.iter().zip(inputs) {
            let want = input.shape.elements().eval_size(symbols)? * input.dtype.bytes();
            if bytes.len() as u64 != want {
                return Err(Error::invalid(format!(
                    "input {:?} {}: {} bytes, not {want}",
                    input.name,
                    input.shape,
                    bytes.len()
                )));
            }
        }
        Ok(())
    }

    /// Executes one run and returns its downloads, in the order of [`Plan::outputs`].
    ///
    /// # Errors
    /// Same as [`Instance::record`], and any device error.
    pub async fn read_async(
        &self,
        symbols: SymbolValues,
        inputs: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>> {
        self.end_async(self.begin_async(symbols, inputs).await?).await
    }

    /// Submits one run to the device. Waits only in eager mode.
    ///
    /// # Errors
    /// Same as [`Instance::record`], and the device's error if the submit fails.
    pub async fn begin_async(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Begun> {
        let stage = if self.stepwise.is_some() {
            self.check(&symbols, &inputs)?;
            let (symbols, buffers) = (symbols.clone(), Vec::new());
            Stage::Done(self.read_stepwise(Args { symbols, uploads: inputs, buffers }).await?)
        } else {
            let pending = self.record(symbols.clone(), inputs)?;
            self.batcher.flush()?;
            Stage::Running(pending)
        };
        Ok(Begun { symbols, stage })
    }

    /// Waits for a run of this instance and returns its downloads, in the order of
    /// [`Plan::outputs`].
    ///
    /// # Errors
    /// Any device error.
    pub async fn end_async(&self, begun: Begun) -> Result<Vec<Vec<u8>>> {
        let mut downloads = match begun.stage {
            Stage::Running(pending) => self.batcher.read_async(pending).await?,
            Stage::Done(downloads) => downloads,
        };
        self.plan.cut_downloads(&begun.symbols, &mut downloads)?;
        Ok(downloads)
    }

    /// Executes several runs in order and returns the downloads of each. Keeps up to `at_once` runs
    /// in flight, at least one, so that the device works while the host reads.
    ///
    /// # Errors
    /// Same as [`Instance::begin_async`] and [`Instance::end_async`].
    pub async fn read_all_async(
        &self,
        runs: Vec<(SymbolValues, Vec<Vec<u8>>)>,
        at_once: usize,
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut all = Vec::with_capacity(runs.len());
        let mut running = VecDeque::new();
        for (symbols, inputs) in runs {
            if running.len() >= at_once.max(1)
                && let Some(oldest) = running.pop_front()
            {
                all.push(self.end_async(oldest).await?);
            }
            running.push_back(self.begin_async(symbols, inputs).await?);
        }
        for begun in running {
            all.push(self.end_async(begun).await?);
        }
        Ok(all)
    }

    /// Runs the commands one by one and waits after each.
    async fn read_stepwise(&self, args: Args) -> Result<Vec<Vec<u8>>> {
        let mut downloads = Vec::new();
        for (label, work) in self.stepwise.iter().flatten() {
            let work = touching(work, &args);
            let pending = self.record_work(&work, args.clone(), Keep::default())?;
            let done = self.batcher.read_async(pending).await;
            downloads.extend(done.map_err(|e| e.context(format_args!("step {label:?}")))?);
        }
        Ok(downloads)
    }
}

/// A run in flight, from [`Instance::begin_async`] until [`Instance::end_async`] reads it. Dropping
/// it discards its downloads.
#[derive(Debug)]
#[must_use = "read it to see its errors"]
pub struct Begun {
    symbols: SymbolValues,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Running(Pending),
    /// The downloads of a run in eager mode, which is complete.
    Done(Vec<Vec<u8>>),
}

/// Returns `work` with the buffers that this run binds added to those that it accesses.
fn touching(work: &Work, args: &Args) -> Work {
    let given = args.buffers.iter().map(|(_, range)| range.buffer);
    let mut buffers: Vec<_> = work.buffers.iter().copied().chain(given).collect();
    buffers.sort_unstable();
    buffers.dedup();
    Work { buffers: buffers.into(), ..work.clone() }
}

impl Owned {
    /// Returns the range of the weights or the state with these names, and keeps the buffer alive
    /// in `self`.
    fn named(
        &mut self,
        runtime: &Runtime,
        resident: &mut DeviceTensors,
        names: &[String],
        slot: &SlotDecl,
    ) -> Result<BufferRange> {
        let Held { range, buffer } =
            resident.weights(runtime.pool(), &**runtime.device(), names)?;
        if range.bytes < slot.bytes {
            return Err(Error::invalid(format!(
                "{:?} has {} bytes, the graph needs {}",
                slot.name, range.bytes, slot.bytes
            )));
        }
        self.resident.push(buffer);
        Ok(range)
    }
}

/// Allocates a buffer with guard zones around it. Constants are written and counters cleared; other
/// memory is poisoned if requested.
fn guarded(
    pool: &Pool,
    device: &dyn Device,
    bytes: u64,
    role: &SlotRole,
    extra: &Extra,
) -> Result<PooledBuffer> {
    let usage = Usage::Working;
    let buffer = pool.take(bytes + 2 * extra.guard, usage)?;
    if extra.guard > 0 || extra.poison {
        let fill = vec![GUARD; (bytes + 2 * extra.guard) as usize];
        device.write(buffer.range(), &fill)?;
    }
    if let SlotRole::Constants(words) = role {
        let range =
            BufferRange { offset: extra.guard, bytes: words.len() as u64, ..buffer.range() };
        device.write(range, words)?;
    }
    if *role == SlotRole::Counters {
        // A pooled buffer keeps its previous contents.
        let range = BufferRange { offset: extra.guard, bytes, ..buffer.range() };
        device.write(range, &vec![0; bytes as usize])?;
    }
    Ok(buffer)
}

/// Splits a recording into one recording per command.
pub(super) fn single_commands(
    recording: &Recording,
) -> impl Iterator<Item = (String, Recording)> + '_ {
    recording.commands.iter().map(|command| {
        let label = match command {
            Command::Dispatch(dispatch) => dispatch.label.clone(),
            Command::Upload { .. } => "upload".into(),
            Command::Download { .. } => "download".into(),
            Command::Copy { .. } => "copy".into(),
            Command::Clear { .. } => "clear".into(),
            Command::Timestamp => "timestamp".into(),
        };
        let commands = vec![command.clone()];
        (label.clone(), Recording { label, commands, ..recording.clone() })
    })
}
