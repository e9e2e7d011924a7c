//! Plan cache keyed by graph structure, so that a loop plans and compiles once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::graph::Structure;
use crate::base::ShapeClass;
use crate::error::{Result, broken_invariant};
use crate::ir::Graph;
use crate::plan::{Bound, Plan, SlotRole};
use crate::runtime::{Instance, Runtime, Workspace};

/// Maximum number of cached plans; the least recently used are evicted.
const PLANS: usize = 256;
/// The intermediates of cached plans may use at most 1 / `MEMORY_SHARE` of device memory.
const MEMORY_SHARE: u64 = 8;
/// Memory assumed for a device that does not report it, in bytes.
const UNKNOWN_MEMORY: u64 = 8 << 30;
/// Maximum plans of a structure with compiled-in scalars; the next plan takes them as inputs.
const SCALARS: usize = 2;

/// Statistics of a runtime's plan cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of graphs that were planned.
    pub planned: u64,
    /// Number of graphs whose plan was found in the cache.
    pub reused: u64,
    /// Number of plans that are in the cache now.
    pub kept: u64,
}

/// The plan cache of a runtime's tensors.
#[derive(Default)]
pub(in crate::runtime) struct Cache(Mutex<State>);

#[derive(Default)]
struct State {
    structures: HashMap<String, Plans>,
    clock: u64,
    planned: u64,
    reused: u64,
}

/// The plans of one graph structure.
#[derive(Default)]
struct Plans {
    /// Plans with scalars compiled in, each with the scalars' bits.
    fixed: Vec<(Vec<u32>, Arc<Compiled>)>,
    /// The plan that takes the scalars as inputs.
    open: Option<Arc<Compiled>>,
    used: u64,
}

impl Plans {
    fn all(&self) -> impl Iterator<Item = &Arc<Compiled>> {
        self.fixed.iter().map(|(_, compiled)| compiled).chain(&self.open)
    }
}

/// A compiled graph structure.
pub(super) struct Compiled {
    pub(super) instance: Instance,
    /// Slot of the recording for each leaf; `None` if the plan does not need the leaf.
    pub(super) leaves: Vec<Option<u32>>,
    /// Slot of the recording and size in bytes of each wanted result.
    pub(super) outputs: Vec<(u32, u64)>,
    /// For each upload of the plan: the index of the scalar that it passes.
    pub(super) uploads: Vec<usize>,
}

impl Cache {
    fn state(&self) -> MutexGuard<'_, State> {
        // Plans are added atomically, so a poisoned lock is safe.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statistics so far.
    pub(in crate::runtime) fn stats(&self) -> CacheStats {
        let state = self.state();
        let kept = state.structures.values().map(|plans| plans.all().count() as u64).sum();
        CacheStats { planned: state.planned, reused: state.reused, kept }
    }

    /// Drops every plan.
    pub(in crate::runtime) fn clear(&self) {
        let plans = std::mem::take(&mut self.state().structures);
        // Dropped after the lock is released: their memory returns to the pool.
        drop(plans);
    }

    /// Returns the cached plan of a structure, or makes and caches one.
    ///
    /// # Errors
    /// Planning and compile errors.
    pub(super) async fn get(
        &self,
        runtime: &Runtime,
        structure: &Structure<'_>,
    ) -> Result<Arc<Compiled>> {
        let open = {
            let mut state = self.state();
            state.clock += 1;
            let clock = state.clock;
            let mut found = None;
            let mut open = false;
            if let Some(plans) = state.structures.get_mut(&structure.key) {
                plans.used = clock;
                let fixed = plans.fixed.iter().find(|(scalars, _)| *scalars == structure.scalars);
                found = fixed.map(|(_, compiled)| compiled.clone()).or(plans.open.clone());
                open = plans.fixed.len() >= SCALARS;
            }
            if let Some(found) = found {
                state.reused += 1;
                return Ok(found);
            }
            open
        };
        let compiled = Arc::new(Compiled::new(runtime, structure, open).await?);
        let mut state = self.state();
        state.planned += 1;
        let dropped = state.make_room(runtime, &compiled);
        let clock = state.clock;
        let plans = state.structures.entry(structure.key.clone()).or_default();
        plans.used = clock;
        match open {
            true => plans.open = Some(compiled.clone()),
            false => plans.fixed.push((structure.scalars.clone(), compiled.clone())),
        }
        drop(state);
        drop(dropped);
        Ok(compiled)
    }
}

/// Returns the memory limit of cached plans in bytes. A `memory_bytes` of 0 means unknown, as for
/// most devices through wgpu.
fn room(budget: Option<u64>, memory_bytes: u64) -> u64 {
    let known = budget.or((memory_bytes > 0).then_some(memory_bytes));
    known.unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE
}

impl State {
    /// Evicts and returns the least recently used plans until there is room for `new`.
    fn make_room(&mut self, runtime: &Runtime, new: &Compiled) -> Vec<Plans> {
        let room = room(runtime.pool().budget(), runtime.device().profile().memory_bytes);
        let bytes = |compiled: &Compiled| compiled.instance.plan().arena_bytes();
        let mut dropped = Vec::new();
        loop {
            let kept = || self.structures.values().flat_map(Plans::all);
            let used = kept().map(|compiled| bytes(compiled)).sum::<u64>() + bytes(new);
            if kept().count() < PLANS && used <= room {
                return dropped;
            }
            let oldest = self.structures.iter().min_by_key(|(_, plans)| plans.used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return dropped };
            dropped.extend(self.structures.remove(&key));
        }
    }
}

/// Plans the graph of a structure: all its inputs but scalars are bound by the caller.
pub(super) fn plan(runtime: &Runtime, graph: &Graph) -> Result<Plan> {
    let mut options = runtime.plan_options();
    options.bound = Bound::all(graph);
    options.bound.inputs.retain(|name| !name.starts_with('s'));
    Plan::new(graph, &ShapeClass::new(), runtime.device().profile(), &options)
}

impl Compiled {
    async fn new(runtime: &Runtime, structure: &Structure<'_>, open: bool) -> Result<Compiled> {
        let graph = structure.graph(open)?;
        let plan = runtime.offload(move |runtime| plan(runtime, &graph)).await?;
        let slot = |role: SlotRole| plan.slots.iter().position(|slot| *slot == role);
        let leaves = (0..structure.leaves.len())
            .map(|i| {
                let name = format!("x{i}");
                let found = slot(SlotRole::Input(name.clone()));
                found.or_else(|| slot(SlotRole::Weight(name))).map(|slot| slot as u32)
            })
            .collect();
        let outputs = (0..structure.wanted().count())
            .map(|i| match slot(SlotRole::Output(format!("y{i}"))) {
                Some(slot) => (slot as u32, plan.recording.slots[slot].bytes),
                None => broken_invariant(format_args!("the plan lost output y{i}")),
            })
            .collect();
        let uploads = (plan.inputs.iter())
            .map(|input| match input.name.strip_prefix('s').map(str::parse) {
                Some(Ok(scalar)) => scalar,
                _ => broken_invariant(format_args!("the plan uploads {:?}", input.name)),
            })
            .collect();
        let instance = Instance::unbound_async(runtime, plan, Workspace::Own).await?;
        Ok(Compiled { instance, leaves, outputs, uploads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_tell_its_memory_keeps_plans() {
        assert_eq!(room(Some(800), 1 << 40), 100);
        assert_eq!(room(None, 1 << 40), 1 << 37);
        assert!(room(None, 0) >= 1 << 30);
    }
}
