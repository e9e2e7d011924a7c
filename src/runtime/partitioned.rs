//! Runs a plan partitioned over several devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::device_tensors::DeviceTensors;
use super::instance::{Instance, Outputs};
use super::run::{download, fill, unbound};
use super::{Runtime, SyncMode};
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::block_on;
use crate::base::{ShapeClass, SymbolValues};
use crate::error::{Error, Result};
use crate::ir::Graph;
use crate::memory::PooledBuffer;
use crate::plan::{Action, Bindings, PartitionedPlan, Placement, SlotRole};
use crate::provider::{BufferRange, DeviceProfile, Usage};

/// A prepared partitioned plan: one instance per segment, on the device of its slot.
pub struct PartitionedInstance {
    plan: PartitionedPlan,
    runtimes: Vec<Runtime>,
    instances: Vec<Instance>,
    /// For each tensor passed between segments: its slots, each with a buffer.
    buffers: Vec<Vec<(usize, PooledBuffer)>>,
    transfers: Vec<Transfers>,
}

crate::base::debug_as!(PartitionedInstance, |this| plan: this.plan.name, devices: this.plan.devices.len());

/// Bytes transferred from one slot to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// Slot of the producer.
    pub from: usize,
    /// Slot of the consumer.
    pub to: usize,
    /// Bytes copied directly between the devices.
    pub direct_bytes: u64,
    /// Bytes copied through the host.
    pub host_bytes: u64,
    /// Why copies go through the host: the error of a direct copy. `None` if copies are direct.
    pub reason: Option<String>,
}

impl fmt::Display for Transfers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transfers { from, to, direct_bytes, host_bytes, reason } = self;
        write!(f, "slot {from} to slot {to}: ")?;
        match reason {
            Some(reason) => write!(f, "{host_bytes} bytes through the host ({reason})"),
            None => write!(f, "{direct_bytes} bytes from device to device"),
        }
    }
}

impl PartitionedInstance {
    /// Blocking version of [`PartitionedInstance::new_async`].
    ///
    /// # Errors
    /// Same as [`PartitionedInstance::new_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new(
        runtimes: &[Runtime],
        plan: PartitionedPlan,
        residents: &mut [DeviceTensors],
    ) -> Result<PartitionedInstance> {
        block_on(PartitionedInstance::new_async(runtimes, plan, residents))
    }

    /// Compiles the kernels and allocates memory on every device. `runtimes` and `residents` are
    /// indexed by slot. Each segment finds its weights and states in the device tensors of its
    /// slot.
    ///
    /// # Errors
    /// Same as [`Instance::new_async`], and invalid if the number of runtimes or residents differs
    /// from the plan's number of slots.
    pub async fn new_async(
        runtimes: &[Runtime],
        plan: PartitionedPlan,
        residents: &mut [DeviceTensors],
    ) -> Result<PartitionedInstance> {
        let slots = plan.devices.len();
        if runtimes.len() != slots || residents.len() != slots {
            return Err(Error::invalid(format!(
                "plan {}: {} devices and {} residents for {slots} slots",
                plan.name,
                runtimes.len(),
                residents.len()
            )));
        }
        let mut instances = Vec::with_capacity(plan.segments.len());
        for (i, segment) in plan.segments.iter().enumerate() {
            let (runtime, resident) = (&runtimes[segment.slot], &mut residents[segment.slot]);
            let instance = Instance::new_async(runtime, segment.plan.clone(), resident).await;
            instances.push(instance.map_err(|e| e.context(format_args!("segment {i}")))?);
        }
        let mut buffers = Vec::with_capacity(plan.passed.len());
        for tensor in &plan.passed {
            let bytes = plan.passed_bytes(tensor)?.max(4).next_multiple_of(4);
            let one = |slot: &usize| {
                let buffer = runtimes[*slot].pool().take(bytes, Usage::Working)?;
                Ok((*slot, buffer))
            };
            let all: Result<Vec<_>> = tensor.slots.iter().map(one).collect();
            buffers.push(all.map_err(|e| e.context(format_args!("tensor {:?}", tensor.name)))?);
        }
        let (runtimes, transfers) = (runtimes.to_vec(), Vec::new());
        Ok(PartitionedInstance { plan, runtimes, instances, buffers, transfers })
    }

    /// Returns the partitioned plan.
    pub fn plan(&self) -> &PartitionedPlan {
        &self.plan
    }

    /// Returns the transfers of all runs so far, one entry for each pair of source and target
    /// slots.
    pub fn transfers(&self) -> &[Transfers] {
        &self.transfers
    }

    /// Blocking version of [`PartitionedInstance::run_async`].
    ///
    /// # Errors
    /// Same as [`PartitionedInstance::run_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run(
        &mut self,
        symbols: &SymbolValues,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Outputs> {
        block_on(self.run_async(symbols, inputs))
    }

    /// Runs the plan once: executes the segments in order with the transfers between them, then
    /// reads all outputs. `inputs` holds bytes by name.
    ///
    /// # Errors
    /// Invalid if an input is missing or of the wrong size, or if symbols are outside the shape
    /// class; any device error.
    pub async fn run_async(
        &mut self,
        symbols: &SymbolValues,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        let mut pending = Vec::new();
        for i in 0..self.plan.actions.len() {
            match self.plan.actions[i] {
                Action::Run(segment) => {
                    let runtime = &self.runtimes[self.plan.segments[segment].slot];
                    let bindings = self.bindings(segment, symbols, inputs)?;
                    let instance = &self.instances[segment];
                    match runtime.sync() {
                        SyncMode::Eager => {
                            let bytes = instance.read_with_async(bindings).await?;
                            self.name(segment, bytes, &mut outputs);
                        }
                        SyncMode::Adaptive | SyncMode::Lazy => {
                            pending.push((segment, instance.record_with(bindings)?));
                        }
                    }
                }
                Action::Transfer { tensor, to } => {
                    self.transfer(tensor, to, symbols).await.map_err(|e| {
                        let name = &self.plan.passed[tensor].name;
                        e.context(format_args!("transfer of {name:?} to slot {to}"))
                    })?;
                }
            }
        }
        for (segment, pending) in pending {
            let slot = self.plan.segments[segment].slot;
            let mut bytes = self.runtimes[slot].batcher().read_async(pending).await?;
            self.instances[segment].plan().cut_downloads(symbols, &mut bytes)?;
            self.name(segment, bytes, &mut outputs);
        }
        Ok(outputs)
    }

    /// Adds the downloads of a segment to `outputs` by name.
    fn name(&self, segment: usize, bytes: Vec<Vec<u8>>, outputs: &mut Outputs) {
        let names = self.instances[segment].plan().outputs.iter();
        outputs.extend(names.map(|output| output.name.clone()).zip(bytes));
    }

    fn bindings(
        &self,
        segment: usize,
        symbols: &SymbolValues,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Bindings> {
        let slot = self.plan.segments[segment].slot;
        let plan = self.instances[segment].plan();
        let mut bindings = Bindings { symbols: symbols.clone(), ..Bindings::default() };
        for input in &plan.inputs {
            let bytes = inputs.get(&input.name).cloned();
            let bytes = bytes.ok_or_else(|| {
                Error::invalid(format!("plan {}: no input {:?}", self.plan.name, input.name))
            })?;
            bindings.inputs.insert(input.name.clone(), bytes);
        }
        for role in &plan.slots {
            match role {
                SlotRole::Input(name) => {
                    bindings.buffers.insert(name.clone(), self.buffer(name, slot)?);
                }
                SlotRole::Output(name) => {
                    bindings.outputs.insert(name.clone(), self.buffer(name, slot)?);
                }
                _ => {}
            }
        }
        Ok(bindings)
    }

    /// Returns the buffer of a passed tensor on a slot.
    fn buffer(&self, name: &str, slot: usize) -> Result<BufferRange> {
        let tensor = self.plan.passed.iter().position(|tensor| tensor.name == name);
        let buffers = tensor.map_or(&[][..], |tensor| &self.buffers[tensor]);
        let own = buffers.iter().find(|(other, _)| *other == slot);
        own.map(|(_, buffer)| buffer.range())
            .ok_or_else(|| Error::invalid(format!("{name:?} has no buffer on slot {slot}")))
    }

    /// Copies the passed tensor with index `tensor` to another slot: directly if the devices
    /// support it, else through the host.
    async fn transfer(&mut self, tensor: usize, to: usize, symbols: &SymbolValues) -> Result<()> {
        let passed = &self.plan.passed[tensor];
        let bytes = passed.shape.elements().eval_size(symbols)? * passed.dtype.bytes();
        if bytes == 0 {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(4);
        let from = passed.slots[0];
        let (source, target) = (self.buffer(&passed.name, from)?, self.buffer(&passed.name, to)?);
        let (source, target) = (BufferRange { bytes, ..source }, BufferRange { bytes, ..target });
        let (own, other) = (&self.runtimes[from], &self.runtimes[to]);
        own.batcher().flush()?;
        // Work recorded earlier must read the target's old contents.
        other.batcher().flush()?;
        let place = self.transfers.iter().position(|way| (way.from, way.to) == (from, to));
        let place = place.unwrap_or_else(|| {
            let none = Transfers { from, to, direct_bytes: 0, host_bytes: 0, reason: None };
            self.transfers.push(none);
            self.transfers.len() - 1
        });
        let way = &mut self.transfers[place];
        let first = way.direct_bytes + way.host_bytes == 0;
        if way.reason.is_none() {
            match other.device().copy_from(target, &**own.device(), source) {
                Ok(()) => way.direct_bytes += bytes,
                // A direct copy is not tried again.
                Err(error) if error.is_unsupported() => way.reason = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        if way.reason.is_some() {
            let data = download(own, source).await?;
            other.device().write(target, &data)?;
            way.host_bytes += bytes;
        }
        if first {
            tracing::info!("plan {}: {way}", self.plan.name);
        }
        Ok(())
    }
}

/// Blocking version of [`run_partitioned_async`].
///
/// # Errors
/// Same as [`run_partitioned_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn run_partitioned(
    runtimes: &[Runtime],
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    placement: &Placement,
    class: Option<&ShapeClass>,
) -> Result<Outputs> {
    block_on(run_partitioned_async(runtimes, graph, symbols, bindings, placement, class))
}

/// Runs a graph once over several devices, as [`run_graph_async`](super::run_graph_async) does on
/// one. The runtimes are indexed by slot. Plans for `class`, or for exactly these symbols if it is
/// `None`.
///
/// # Errors
/// Same as [`PartitionedPlan::new`] and [`PartitionedInstance::run_async`], and invalid if a weight
/// is unbound.
pub async fn run_partitioned_async(
    runtimes: &[Runtime],
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &BTreeMap<String, Vec<u8>>,
    placement: &Placement,
    class: Option<&ShapeClass>,
) -> Result<Outputs> {
    let Some(first) = runtimes.first() else {
        return Err(Error::invalid("a plan needs at least one device"));
    };
    let class = class.cloned().unwrap_or_else(|| ShapeClass::exact(symbols));
    let (all, planned, place) = (runtimes.to_vec(), graph.clone(), placement.to_vec());
    let plan = first.offload(move |first| {
        let profiles: Vec<DeviceProfile> =
            all.iter().map(|runtime| runtime.device().profile().clone()).collect();
        let mut options = first.plan_options();
        options.known_wrong = all.iter().flat_map(|runtime| runtime.known_wrong()).collect();
        options.tuned = all.iter().map(|runtime| runtime.tuned()).collect();
        PartitionedPlan::new(&planned, &class, &profiles, &place, &options)
    });
    let plan = plan.await?;
    let mut residents: Vec<DeviceTensors> = runtimes.iter().map(|_| DeviceTensors::new()).collect();
    let mut states = Vec::new();
    for (slot, (runtime, resident)) in runtimes.iter().zip(&mut residents).enumerate() {
        let own = plan.segments.iter().filter(|segment| segment.slot == slot);
        let names: BTreeSet<&str> = own.flat_map(|segment| segment.plan.resident_names()).collect();
        let filled =
            fill(runtime, graph, symbols, bindings, resident, &|name| names.contains(name))?;
        states.extend(filled.into_iter().map(|(name, bytes)| (slot, name, bytes)));
    }
    let mut instance = PartitionedInstance::new_async(runtimes, plan, &mut residents).await?;
    let mut outputs = instance.run_async(symbols, bindings).await?;
    for (slot, name, bytes) in states {
        let range = residents[slot].get(&name).ok_or_else(|| unbound(&name))?;
        outputs.insert(name, download(&runtimes[slot], BufferRange { bytes, ..range }).await?);
    }
    Ok(outputs)
}
