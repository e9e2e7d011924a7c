//! Tuning tasks: groups of a plan with a position-independent key, the contents of their memory,
//! and their execution by a single engine.
//!
//! A [`Task`] is independent of its graph: tensors are numbered in the order in which views name
//! them, so equal layers are one task with one key.

use std::collections::BTreeMap;

use super::Options;
use super::builder::PlanBuilder;
use super::fused_quant;
use super::group_query::{GroupQuery, forced, is_copy};
use super::measurement::{Content, Measurement, contents, points};
use super::piece::Piece;
use crate::base::{ComputeMode, ShapeClass, SymbolValues};
use crate::engine::{
    Engine, EngineId, Knob, KnobValues, Lowering, Query, Registry, TaskKey, Tensor, Verdict,
};
use crate::error::{Error, Result};
use crate::ir::{Graph, Op};
use crate::provider::DeviceProfile;

/// A group that can be executed by several engines or with several knob values.
#[derive(Clone)]
pub struct Task {
    /// Key that identifies the task.
    pub key: TaskKey,
    /// Label of the task's first group in the plan.
    pub label: String,
    /// Shapes of its operands and result: `f32[1, 576] q4_k[1536, 576] -> f32[1, 1536]`.
    pub shapes: String,
    /// Number of groups in the plan that are this task.
    pub count: usize,
    /// Estimated seconds of one group.
    pub seconds: f64,
    /// Engines that can execute it, best estimate first.
    pub engines: Vec<EngineId>,
    /// Tensors of the task, with their contents before a run.
    pub contents: Vec<Content>,
    /// Symbol values to measure at: the upper ends of the class, reduced until the graph's slices
    /// and updates are in bounds; and, if a range is wide, a second point far below.
    pub points: Vec<SymbolValues>,
    pub(super) piece: Piece,
    pub(super) tensors: Vec<Tensor>,
}

impl Task {
    /// Returns the knobs of an engine for the task, with the given values set; none for an engine
    /// that cannot execute it.
    pub fn knobs(&self, registry: &Registry, engine: &EngineId, set: &KnobValues) -> Vec<Knob> {
        let query = self.piece.query(&self.label, set);
        let engine = registry.get(engine).filter(|engine| executes(&***engine, &query).is_ok());
        engine.map(|engine| engine.knobs(&query)).unwrap_or_default()
    }

    /// Returns the compute mode of a GEMM with a weight, or of attention. Returns `None` for other
    /// operations.
    pub fn mode(&self) -> Option<ComputeMode> {
        self.piece.op.mode()
    }

    /// Lowers the task with an engine and these knob values.
    ///
    /// # Errors
    /// Invalid for an unknown engine or values that it does not accept. Unsupported if it cannot
    /// execute the task. Otherwise same as [`Engine::lower`].
    pub fn trial(
        &self,
        registry: &Registry,
        engine: &EngineId,
        knobs: &KnobValues,
    ) -> Result<Measurement> {
        let Some(found) = registry.get(engine) else {
            return Err(registry.unknown(engine));
        };
        let query = self.piece.query(&self.label, knobs);
        executes(&**found, &query).map_err(|reason| {
            Error::unsupported(format!("{} by {engine}: {reason}", self.label))
        })?;
        query.check_knobs(&**found)?;
        let (mut tensors, mut steps) = (self.tensors.clone(), Vec::new());
        let mut out = Lowering {
            profile: &self.piece.profile,
            class: &self.piece.class,
            engine: engine.clone(),
            label: self.label.clone(),
            tensors: &mut tensors,
            steps: &mut steps,
        };
        found.lower(&query, &mut out)?;
        Ok(Measurement { tensors, steps, own: self.tensors.len() })
    }
}

/// Checks that an engine can execute all of a query; returns the reason if it cannot.
fn executes(engine: &dyn Engine, query: &Query) -> Result<(), String> {
    engine.applies(query)?;
    if query.is_fused() { engine.fuses(query) } else { Ok(()) }
}

/// Returns the tasks of a graph's plan without duplicates, in plan order. A group is left out if it
/// has no choice of engines or knobs, if the caller forces or prefers its engine or sets its knobs,
/// or if it is a user kernel. Pairs of groups linked by int8 rows are also left out, since neither
/// group runs on its own. Pairs linked by f16 rows are measured as two separate groups.
///
/// # Errors
/// Same as [`super::Plan::new`].
pub fn tasks(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Task>> {
    // Measurements say nothing about reduction orders, which are checked when a choice is used.
    let options = Options { tuned: Vec::new(), deterministic: false, ..options.clone() };
    let builder = PlanBuilder::new(graph, class, profile, &options).after("fuse_quant")?;
    let mut found: Vec<Task> = Vec::new();
    let mut known: BTreeMap<TaskKey, Option<usize>> = BTreeMap::new();
    for (group, choice) in builder.groups.iter().zip(&builder.choices) {
        let Some(engine) = &choice.engine else { continue };
        let set = options.knobs.engines().any(|set| set == engine);
        let wanted =
            set || options.preferred.contains(engine) || forced(&builder, group)?.is_some();
        let custom = matches!(builder.graph.node(group.root).op, Op::Custom(_));
        let Some(group) = &fused_quant::alone(group) else { continue };
        if is_copy(&builder, group) || wanted || custom {
            continue;
        }
        let seen = GroupQuery::new(&builder, group, &choice.label);
        let piece = seen.piece();
        let key = piece.key();
        match known.get(&key) {
            Some(Some(at)) => found[*at].count += 1,
            Some(None) => {}
            None => {
                let mut can: Vec<(f64, EngineId)> = choice
                    .candidates
                    .iter()
                    .filter(|c| options.knobs.of(&c.engine) == KnobValues::NONE)
                    .filter_map(|c| match c.verdict {
                        Verdict::Seconds(seconds) => Some((seconds, c.engine.clone())),
                        Verdict::Refused(_) => None,
                    })
                    .collect();
                can.sort_by(|a, b| a.0.total_cmp(&b.0));
                // Of equal estimates the plan takes the first.
                let first = can.iter().position(|(_, id)| id == engine).unwrap_or(0);
                can[..=first].rotate_right(1);
                let tensors: Vec<Tensor> =
                    piece.known.iter().map(|id| builder.tensors[id.index()].clone()).collect();
                let points = points(&builder)?;
                let task = Task {
                    contents: contents(&piece, &tensors, &points)?,
                    key: key.clone(),
                    label: choice.label.clone(),
                    shapes: super::estimate::shapes(seen.operands(), seen.query().output),
                    count: 1,
                    seconds: choice.seconds,
                    engines: can.into_iter().map(|(_, id)| id).collect(),
                    points,
                    piece,
                    tensors,
                };
                let free = task.engines.len() > 1
                    || task
                        .knobs(options.registry, engine, KnobValues::NONE)
                        .iter()
                        .any(|knob| knob.values.len() > 1);
                known.insert(key, free.then_some(found.len()));
                found.extend(free.then_some(task));
            }
        }
    }
    Ok(found)
}
