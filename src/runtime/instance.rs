//! A plan made ready on a device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::batcher::{Batcher, Keep, Pending, Receipt, Work};
use super::resident::{Held, Resident};
use super::{Runtime, Sync};
use crate::base::SymbolValues;
use crate::error::{Error, Result};
use crate::memory::{Pool, PooledBuffer};
use crate::plan::{Bindings, Plan, SlotRole};
use crate::provider::{
    Args, BufferRange, Command, Device, PreparedId, Recording, Resource, SlotDecl, Usage,
};

/// What a run gives, by name: bytes, little-endian, row-major.
pub type Outputs = BTreeMap<String, Vec<u8>>;

/// A plan with its memory, kernels and prepared commands, to be run again and again.
pub struct Instance {
    plan: Plan,
    batcher: Arc<Batcher>,
    work: Work,
    /// One command each, where the host waits after every dispatch.
    stepwise: Option<Vec<(String, Work)>>,
    /// Slots that are bound at each run.
    open: Vec<u32>,
    /// Also held by work that is recorded and not yet submitted.
    owned: Arc<Owned>,
}

crate::base::debug_as!(Instance, |this| plan: this.plan.name, device: this.owned.device.profile().id());

/// What goes with an instance and the work that was recorded of it, whichever is the last.
struct Owned {
    device: Arc<dyn Device>,
    prepared: Vec<PreparedId>,
    /// Arena, inputs and constants.
    buffers: Vec<PooledBuffer>,
    /// Weights and states.
    resident: Vec<Arc<PooledBuffer>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        for prepared in &self.prepared {
            self.device.free(Resource::Prepared(*prepared));
        }
    }
}

/// Whose memory intermediates are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// The instance's own.
    Own,
    /// The caller's, given at each run.
    Given,
}

/// Where an instance finds weights and states.
enum Source<'a> {
    Resident(&'a mut Resident),
    /// Given at each run.
    Open(Workspace),
}

impl Source<'_> {
    fn is_open(&self, role: &SlotRole) -> bool {
        match role {
            SlotRole::Input(_) | SlotRole::Output(_) => true,
            SlotRole::Weight(_) | SlotRole::State(_) => matches!(self, Source::Open(_)),
            SlotRole::Arena(_) => matches!(self, Source::Open(Workspace::Given)),
            SlotRole::Merged(_)
            | SlotRole::Inputs
            | SlotRole::Constants(_)
            | SlotRole::Counters => false,
        }
    }
}

/// Memory of a plan that is made for one instance, with room to look around it in tests.
pub(super) struct Extra {
    /// Bytes before and after every buffer, filled with [`GUARD`].
    pub(super) guard: u64,
    /// Fills intermediates with NaN at first.
    pub(super) poison: bool,
}

/// What guard zones and poisoned memory are filled with: as f32 a NaN.
pub(super) const GUARD: u8 = 0xFF;

impl Instance {
    /// Compiles the kernels, allocates, prepares. Weights and states are found by name; weights
    /// that the plan reads as one and that do not lie so are copied on the device, once.
    ///
    /// # Errors
    /// Compile errors naming the kernel; out of memory; invalid, where `resident` lacks a name or
    /// holds too few bytes for it; unsupported, where the plan was made for a device that has more
    /// than this one.
    pub async fn new(runtime: &Runtime, plan: Plan, resident: &mut Resident) -> Result<Instance> {
        let extra = Extra { guard: 0, poison: false };
        Instance::with(runtime, plan, resident, &extra).await.map(|(instance, _)| instance)
    }

    /// As `new`, but weights and states are bound at each run, and with [`Workspace::Given`] the
    /// memory of intermediates too: see [`Bindings`].
    ///
    /// # Errors
    /// Compile errors naming the kernel; out of memory; invalid, for a plan that was made without
    /// [`Bound::weights`](crate::plan::Bound) and reads several weights as one.
    pub async fn unbound(runtime: &Runtime, plan: Plan, workspace: Workspace) -> Result<Instance> {
        let extra = Extra { guard: 0, poison: false };
        let source = Source::Open(workspace);
        Instance::from_source(runtime, plan, source, &extra).await.map(|(instance, _)| instance)
    }

    pub(super) async fn with(
        runtime: &Runtime,
        plan: Plan,
        resident: &mut Resident,
        extra: &Extra,
    ) -> Result<(Instance, Vec<BufferRange>)> {
        let (instance, ranges) =
            Instance::from_source(runtime, plan, Source::Resident(resident), extra).await?;
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
        // All are asked for before the first is waited for: some devices compile on threads.
        let kernels = &plan.recording.kernels;
        let compiling: Vec<_> = kernels.iter().map(|spec| device.compile(spec)).collect();
        for (spec, compiled) in kernels.iter().zip(compiling) {
            compiled.await.map_err(|e| {
                e.context(format_args!("compiling {spec} on {}", device.profile().id()))
            })?;
        }
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
                (SlotRole::Weight(name) | SlotRole::State(name), Source::Resident(resident)) => {
                    owned.named(runtime, resident, one(name), slot)?
                }
                (SlotRole::Merged(names), Source::Resident(resident)) => {
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
        let mut prepare = |recording: &Recording| -> Result<Work> {
            let prepared = device.prepare(recording, &ranges)?;
            owned.prepared.push(prepared);
            Ok(Work {
                prepared,
                dispatches: recording.dispatches(),
                downloads: recording.downloads(),
                buffers: touched.clone(),
            })
        };
        let work = prepare(&plan.recording)?;
        let stepwise = match runtime.sync() {
            Sync::Lazy => None,
            Sync::Eager => Some(
                single_commands(&plan.recording)
                    .map(|(label, recording)| Ok((label, prepare(&recording)?)))
                    .collect::<Result<_>>()?,
            ),
        };
        let batcher = runtime.batcher().clone();
        let open = ranges.iter().enumerate().filter(|(_, range)| range.is_none());
        let open = open.map(|(slot, _)| slot as u32).collect();
        let owned = Arc::new(owned);
        let instance = Instance { plan, batcher, work, stepwise, open, owned };
        Ok((instance, ranges))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Records one run; `inputs` in the order of [`Plan::inputs`]. Nothing waits, except where
    /// the host waits after every dispatch. Downloads are of whole words: behind an odd number of
    /// elements of two bytes there are two bytes more.
    ///
    /// # Errors
    /// Invalid, for symbols outside the plan's class or an input of the wrong size.
    pub fn record(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Pending> {
        self.check(&symbols, &inputs)?;
        let args = Args { symbols, uploads: inputs, buffers: Vec::new() };
        self.record_work(&self.work, args, Keep::default())
    }

    /// Records work of this instance, which its memory outlives.
    fn record_work(&self, work: &Work, args: Args, mut keep: Keep) -> Result<Pending> {
        keep.things.push(self.owned.clone());
        self.batcher.record(work, args, keep)
    }

    /// Records one run. Nothing waits. The buffers must stay alive until the run is submitted,
    /// which reading its result does.
    ///
    /// # Errors
    /// As [`Bindings::resolve`].
    pub fn record_with(&self, bindings: Bindings) -> Result<Pending> {
        let args = bindings.resolve(&self.plan, &self.open)?;
        self.record_work(&touching(&self.work, &args), args, Keep::default())
    }

    /// Records one run and waits for what it downloads, in the order of [`Plan::outputs`].
    ///
    /// # Errors
    /// As [`Bindings::resolve`], and whatever went wrong on the device.
    pub async fn read_with(&self, bindings: Bindings) -> Result<Vec<Vec<u8>>> {
        let args = bindings.resolve(&self.plan, &self.open)?;
        let symbols = args.symbols.clone();
        let mut downloads = match self.stepwise.is_some() {
            true => self.read_stepwise(args).await?,
            false => {
                let work = touching(&self.work, &args);
                let pending = self.record_work(&work, args, Keep::default())?;
                self.batcher.read(pending).await?
            }
        };
        self.plan.cut_downloads(&symbols, &mut downloads)?;
        Ok(downloads)
    }

    /// Runs with arguments that fit the plan. Where the host waits after every dispatch the run
    /// is over then; else it is recorded, `keep` is held until it is submitted, and the receipt
    /// tells how it went.
    pub(super) async fn run_args(&self, args: Args, keep: Keep) -> Result<Option<Receipt>> {
        if self.stepwise.is_some() {
            return self.read_stepwise(args).await.map(|_| None);
        }
        let work = touching(&self.work, &args);
        Ok(Some(self.record_work(&work, args, keep)?.receipt()))
    }

    /// Whether symbols and inputs are those of the plan.
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

    /// Records one run and waits for what it downloads, in the order of [`Plan::outputs`].
    ///
    /// # Errors
    /// As [`Instance::record`], and whatever went wrong on the device.
    pub async fn read(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.end(self.begin(symbols, inputs).await?).await
    }

    /// Hands one run to the device, which works on it from now on. Nothing waits, except where the host
    /// waits after every dispatch.
    ///
    /// # Errors
    /// As [`Instance::record`], and what the device says of the submit.
    pub async fn begin(&self, symbols: SymbolValues, inputs: Vec<Vec<u8>>) -> Result<Begun> {
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

    /// Waits for a run of this instance, and gives what it downloads, in the order of [`Plan::outputs`].
    ///
    /// # Errors
    /// Whatever went wrong on the device.
    pub async fn end(&self, begun: Begun) -> Result<Vec<Vec<u8>>> {
        let mut downloads = match begun.stage {
            Stage::Running(pending) => self.batcher.read(pending).await?,
            Stage::Done(downloads) => downloads,
        };
        self.plan.cut_downloads(&begun.symbols, &mut downloads)?;
        Ok(downloads)
    }

    /// Several runs one after another: what each downloads, in their order. So many of them are under way
    /// at once, at least one: while one is read, the device works on those behind it.
    ///
    /// # Errors
    /// As [`Instance::begin`] and [`Instance::end`].
    pub async fn read_all(
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
                all.push(self.end(oldest).await?);
            }
            running.push_back(self.begin(symbols, inputs).await?);
        }
        for begun in running {
            all.push(self.end(begun).await?);
        }
        Ok(all)
    }

    /// One command after another, each waited for.
    async fn read_stepwise(&self, args: Args) -> Result<Vec<Vec<u8>>> {
        let mut downloads = Vec::new();
        for (label, work) in self.stepwise.iter().flatten() {
            let work = touching(work, &args);
            let pending = self.record_work(&work, args.clone(), Keep::default())?;
            let done = self.batcher.read(pending).await;
            downloads.extend(done.map_err(|e| e.context(format_args!("step {label:?}")))?);
        }
        Ok(downloads)
    }
}

/// A run that was handed over with [`Instance::begin`], until [`Instance::end`] reads it. Dropping it gives
/// up what it downloads.
#[derive(Debug)]
#[must_use = "reading it is what makes its failures known"]
pub struct Begun {
    symbols: SymbolValues,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Running(Pending),
    /// Where the host waits after every dispatch.
    Done(Vec<Vec<u8>>),
}

/// The work with the buffers that this run gives it.
fn touching(work: &Work, args: &Args) -> Work {
    let given = args.buffers.iter().map(|(_, range)| range.buffer);
    let mut buffers: Vec<_> = work.buffers.iter().copied().chain(given).collect();
    buffers.sort_unstable();
    buffers.dedup();
    Work { buffers: buffers.into(), ..work.clone() }
}

impl Owned {
    /// Where weights or a state lie, which stay as long as this does.
    fn named(
        &mut self,
        runtime: &Runtime,
        resident: &mut Resident,
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

/// A buffer with its guard zones; constants and counters written, intermediates poisoned where asked.
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
        // A pooled buffer holds whatever was there before.
        let range = BufferRange { offset: extra.guard, bytes, ..buffer.range() };
        device.write(range, &vec![0; bytes as usize])?;
    }
    Ok(buffer)
}

/// The recording cut into recordings of one command.
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
