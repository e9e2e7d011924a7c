//! Makes the plans of a session. [`DeviceModel`] holds everything that they depend on.

use std::collections::HashMap;
use std::sync::Arc;

use super::decoder::{BASE, CacheShape, DecoderInput, DecoderOutput, PAST};
use super::model::Model;
use super::shape_buckets::class_of_key;
use super::weights::Weight;
use warploom::Result;
use warploom::graph::{Graph, computing_in};
use warploom::plan::Plan;
use warploom::runtime::Runtime;
use warploom_core::base::{ComputeMode, ShapeClass, SymbolValues};

/// Identifies a plan of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlanKey {
    pub(super) input: DecoderInput,
    /// Index into the shape buckets of the input.
    pub(super) bucket: usize,
    pub(super) output: DecoderOutput,
}

/// A model on a device: everything that its plans depend on. Immutable, so threads can share it.
pub(super) struct DeviceModel {
    pub(super) runtime: Runtime,
    pub(super) model: Arc<Model>,
    /// The weights, in the formats in which the device stores them.
    pub(super) weights: Vec<Weight>,
    pub(super) cache: CacheShape,
    pub(super) mode: ComputeMode,
    pub(super) deterministic: bool,
}

impl DeviceModel {
    /// Returns the same model on another runtime.
    pub(super) fn with_runtime(&self, runtime: Runtime) -> DeviceModel {
        let model = self.model.clone();
        let weights = model.weights_on(runtime.device().profile().kind);
        let DeviceModel { cache, mode, deterministic, .. } = *self;
        DeviceModel { runtime, model, weights, cache, mode, deterministic }
    }

    /// Builds the graph of a run, in the compute mode of the session.
    pub(super) fn graph(&self, input: DecoderInput, output: DecoderOutput) -> Result<Graph> {
        computing_in(&self.model.graph_with(&self.weights, self.cache, input, output)?, self.mode)
    }

    /// Plans `graph` for a shape bucket.
    pub(super) fn plan(&self, graph: &Graph, class: &ShapeClass) -> Result<Plan> {
        let mut options = self.runtime.plan_options();
        options.deterministic |= self.deterministic;
        Plan::new(graph, class, self.runtime.device().profile(), &options)
    }

    /// Plans `graph` for a shape bucket, after a search for the fastest engines if tuning at first
    /// use is enabled.
    pub(super) fn tuned_plan(&self, graph: &Graph, class: &ShapeClass) -> Result<Plan> {
        #[cfg(not(target_arch = "wasm32"))]
        self.runtime.tune_at_first_use(graph, class, &self.runtime.plan_options())?;
        self.plan(graph, class)
    }

    /// Returns the symbol values of a run that follows `past` cached positions of `sequence`.
    pub(super) fn symbols(&self, sequence: usize, past: usize) -> SymbolValues {
        let symbols = SymbolValues::new().with(PAST, past as u64);
        match self.cache.sequences {
            1 => symbols,
            _ => symbols.with(BASE, (sequence * self.cache.context) as u64),
        }
    }
}

/// A prewarmed plan and its graph.
pub(super) struct Ready {
    pub(super) key: PlanKey,
    pub(super) graph: Graph,
    pub(super) plan: Plan,
}

/// Makes the plans of a session, and keeps their graphs for later plans.
pub(super) struct Planner {
    on: Arc<DeviceModel>,
    graphs: HashMap<(DecoderInput, DecoderOutput), Arc<Graph>>,
    ready: HashMap<PlanKey, Plan>,
}

impl Planner {
    /// Creates a planner that starts with the prewarmed plans in `ready`.
    pub(super) fn new(on: Arc<DeviceModel>, ready: Vec<Ready>) -> Planner {
        let (mut graphs, mut plans) = (HashMap::new(), HashMap::new());
        for Ready { key, graph, plan } in ready {
            graphs.insert((key.input, key.output), Arc::new(graph));
            plans.insert(key, plan);
        }
        Planner { on, graphs, ready: plans }
    }

    /// Returns the plan for `key`: the prewarmed one if it has not been taken yet, otherwise a new
    /// one, made without blocking the polling thread.
    pub(super) async fn take(&mut self, key: PlanKey) -> Result<Plan> {
        if let Some(plan) = self.ready.remove(&key) {
            return Ok(plan);
        }
        let (on, graph) = (self.on.clone(), self.graphs.get(&(key.input, key.output)).cloned());
        let class = class_of_key(key, on.cache);
        let made = self.on.runtime.offload(move |_| {
            let graph = graph.map_or_else(|| on.graph(key.input, key.output).map(Arc::new), Ok)?;
            Ok((on.tuned_plan(&graph, &class)?, graph))
        });
        let (plan, graph) = made.await?;
        self.graphs.insert((key.input, key.output), graph);
        Ok(plan)
    }

    /// Makes a new plan for `key`.
    pub(super) fn plan(&mut self, key: PlanKey) -> Result<Plan> {
        self.plan_in(&class_of_key(key, self.on.cache), key.input, key.output)
    }

    /// Makes a new plan for a shape class.
    pub(super) fn plan_in(
        &mut self,
        class: &ShapeClass,
        input: DecoderInput,
        output: DecoderOutput,
    ) -> Result<Plan> {
        let graph = match self.graphs.get(&(input, output)) {
            Some(graph) => graph.clone(),
            None => Arc::new(self.on.graph(input, output)?),
        };
        self.graphs.insert((input, output), graph.clone());
        self.on.tuned_plan(&graph, class)
    }
}
