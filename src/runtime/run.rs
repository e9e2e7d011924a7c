//! Runs a graph once: plans it, binds inputs, weights and states, and reads outputs and final
//! states.

use std::collections::BTreeMap;

use super::Runtime;
use super::device_tensors::{DeviceTensors, WeightSource};
use super::instance::{Extra, GUARD, Instance, Outputs};
use super::offload::Prepared;
use crate::base::Dim;
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::block_on;
use crate::base::{ShapeClass, SymbolValues};
use crate::engine::{EngineId, Knobs};
use crate::error::{Error, Result};
use crate::ir::{Graph, Op};
use crate::plan::{Plan, SlotRole};
use crate::provider::{BufferRange, Command, Recording, SlotRange};

/// Options for running a graph once.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Shape class to plan for; `None` for exactly the given symbols.
    pub class: Option<ShapeClass>,
    /// Whether buffers get guard zones around them and are filled with NaN before the run. A write
    /// to a guard zone is an error that names the buffer.
    pub guard: bool,
    /// Engines to use wherever they apply.
    pub preferred: Vec<EngineId>,
    /// Values of engine knobs.
    pub knobs: Knobs,
    /// Names of optional passes to skip.
    pub without: Vec<String>,
    /// Whether the plan is deterministic even if the runtime's plans are not:
    /// [`crate::plan::Options::deterministic`].
    pub deterministic: bool,
    /// Whether `f16` accumulation is allowed even if the runtime forbids it:
    /// [`crate::plan::Options::f16_accumulate`].
    pub f16_accumulate: bool,
}

/// Blocking version of [`run_graph_async`].
///
/// # Errors
/// Same as [`run_graph_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn run_graph(
    runtime: &Runtime,
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    options: &RunOptions,
) -> Result<Outputs> {
    block_on(run_graph_async(runtime, graph, symbols, bindings, options))
}

/// Runs a graph once. `bindings` holds the bytes of inputs, weights and states by name; a missing
/// state is zero. Returns the outputs and the final states by name. Uploads are copied by the
/// polling thread.
///
/// # Errors
/// Invalid if a binding is missing or of the wrong size; any planning or device error.
pub async fn run_graph_async(
    runtime: &Runtime,
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    options: &RunOptions,
) -> Result<Outputs> {
    let class = options.class.clone().unwrap_or_else(|| ShapeClass::exact(symbols));
    let (planned, own) = (graph.clone(), options.clone());
    let plan = runtime.offload(move |runtime| {
        let mut options = runtime.plan_options();
        options.preferred.extend(own.preferred);
        options.knobs = own.knobs;
        options.without = own.without;
        options.deterministic |= own.deterministic;
        options.f16_accumulate |= own.f16_accumulate;
        Plan::new(&planned, &class, runtime.device().profile(), &options)
    });
    run_plan_async(runtime, graph, plan.await?, symbols, bindings, options.guard).await
}

/// Blocking version of [`run_plan_async`].
///
/// # Errors
/// Same as [`run_plan_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn run_plan(
    runtime: &Runtime,
    graph: &Graph,
    plan: Plan,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    guard: bool,
) -> Result<Outputs> {
    block_on(run_plan_async(runtime, graph, plan, symbols, bindings, guard))
}

/// Runs the plan of a graph once, as [`run_graph_async`] does. `guard` is [`RunOptions::guard`].
///
/// # Errors
/// Same as [`run_graph_async`].
pub async fn run_plan_async(
    runtime: &Runtime,
    graph: &Graph,
    plan: Plan,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    guard: bool,
) -> Result<Outputs> {
    let mut resident = DeviceTensors::new();
    let states = fill(runtime, graph, symbols, bindings, &mut resident, &|_| true)?;
    let alignment = u64::from(runtime.device().profile().binding_alignment);
    let extra = Extra { guard: if guard { alignment.max(256) } else { 0 }, poison: guard };
    let guard = extra.guard;
    let (instance, ranges) = Instance::with(runtime, plan, &mut resident, &extra).await?;
    let inputs = instance
        .plan()
        .inputs
        .iter()
        .map(|input| bindings.get(&input.name).cloned().ok_or_else(|| unbound(&input.name)))
        .collect::<Result<_>>()?;
    let downloads = instance.read_async(symbols.clone(), inputs).await?;
    let names = instance.plan().outputs.iter().map(|output| output.name.clone());
    let mut outputs: Outputs = names.zip(downloads).collect();
    for (name, bytes) in states {
        let range = resident.get(&name).ok_or_else(|| unbound(&name))?;
        let bytes = download(runtime, BufferRange { bytes, ..range }).await?;
        outputs.insert(name, bytes);
    }
    if guard > 0 {
        let plan = instance.plan();
        for ((role, slot), range) in plan.slots.iter().zip(&plan.recording.slots).zip(&ranges) {
            use SlotRole::{Arena, Constants, Counters, Inputs};
            if matches!(role, Arena(_) | Inputs | Constants(_) | Counters) {
                check_guards(runtime, &slot.name, *range, guard).await?;
            }
        }
    }
    Ok(outputs)
}

/// Uploads the weights and states of a graph whose names satisfy `wanted`; returns the names of the
/// states with their sizes in bytes.
pub(super) fn fill(
    runtime: &Runtime,
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    resident: &mut DeviceTensors,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<(String, u64)>> {
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let mut states = Vec::new();
    for node in graph.nodes() {
        if matches!(node.op, Op::Input { .. }) {
            continue;
        }
        for name in node.op.bound_names().filter(|name| wanted(name)) {
            let is_state = matches!(node.op, Op::State { .. });
            let size = node.shape.elements().eval_size(symbols)? * node.dtype.bytes();
            match bindings.get(name) {
                // A weight may be read both by itself and merged with others.
                Some(_) if resident.get(name).is_some() => {}
                Some(bytes) => {
                    let source = [WeightSource { name, bytes }];
                    resident.upload(pool, device, &source, &mut |_| {})?;
                }
                None if is_state => resident.state(pool, device, name, size.max(4))?,
                None => return Err(unbound(name)),
            }
            if is_state {
                states.push((name.into(), size));
            }
        }
    }
    Ok(states)
}

pub(super) fn unbound(name: &str) -> Error {
    Error::invalid(format!("nothing is bound to {name:?}"))
}

async fn check_guards(runtime: &Runtime, name: &str, range: BufferRange, guard: u64) -> Result<()> {
    for offset in [range.offset - guard, range.offset + range.bytes] {
        let zone = download(runtime, BufferRange { offset, bytes: guard, ..range }).await?;
        if let Some(at) = zone.iter().position(|byte| *byte != GUARD) {
            return Err(Error::device(format!(
                "a kernel wrote outside buffer {name:?}: byte {} of {}",
                offset as i64 + at as i64 - range.offset as i64,
                range.bytes
            )));
        }
    }
    Ok(())
}

/// Reads a range of a device buffer. The copy on the device is in whole words.
pub(super) async fn download(runtime: &Runtime, range: BufferRange) -> Result<Vec<u8>> {
    let mut recording = Recording { label: "download".into(), ..Recording::default() };
    let bytes = range.bytes.next_multiple_of(4);
    let slot = recording.slot("source", bytes);
    let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(bytes) };
    recording.commands.push(Command::Download { from });
    let device = runtime.device();
    let prepared = Prepared::new(device, &recording, &[Some(BufferRange { bytes, ..range })])?;
    let ticket = device.submit(&[(prepared.id, Default::default())])?;
    let mut downloads = runtime.batcher().wait(ticket).await?.downloads;
    let mut data = downloads.pop().ok_or_else(|| Error::device("a download yielded nothing"))?;
    data.truncate(range.bytes as usize);
    Ok(data)
}
