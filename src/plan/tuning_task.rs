//! Tuning tasks: groups of a plan with a position-independent key, the contents of their memory,
//! and their execution by one engine alone.
//!
//! A [`Task`] needs nothing of its graph: tensors are numbered in the order in which views name
//! them, so equal layers are one task with one key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Options;
use super::builder::PlanBuilder;
use super::choose::{forced, is_copy, operands, query};
use super::fused_quant;
use super::measurement::{Content, Measurement, contents, points};
use crate::base::{ComputeMode, ShapeClass, SymbolValues};
use crate::engine::{
    Body, Engine, EngineId, Fusion, Knob, KnobValues, Lowering, Query, Registry, TaskKey, Tensor,
    TensorId, Verdict, View,
};
use crate::error::{Error, Result};
use crate::ir::{Graph, Op};
use crate::provider::DeviceProfile;

/// A group in isolation, with tensors numbered from 0.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) op: Op,
    pub(super) operands: Vec<View>,
    pub(super) output: View,
    pub(super) body: Option<Body>,
    pub(super) fused: usize,
    pub(super) fusion: Option<Fusion>,
    pub(super) class: ShapeClass,
    pub(super) profile: DeviceProfile,
    pub(super) f16_accumulate: bool,
    /// The original id of each tensor.
    known: Vec<TensorId>,
}

impl Piece {
    pub(super) fn of(query: &Query) -> Piece {
        let mut piece = Piece {
            op: query.op.clone(),
            operands: query.operands.to_vec(),
            output: query.output.clone(),
            body: query.body.cloned(),
            fused: query.fused,
            fusion: query.fusion.cloned(),
            class: query.class.clone(),
            profile: query.profile.clone(),
            f16_accumulate: query.f16_accumulate,
            known: Vec::new(),
        };
        let mut known: Vec<TensorId> = Vec::new();
        for view in piece.views_mut() {
            let at = known.iter().position(|id| *id == view.tensor).unwrap_or_else(|| {
                known.push(view.tensor);
                known.len() - 1
            });
            view.tensor = TensorId(at as u32);
        }
        piece.known = known;
        piece
    }

    /// Every view, in a fixed order.
    fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        fn of(body: &mut Body) -> impl Iterator<Item = &mut View> {
            body.inputs.iter_mut().chain(body.outputs.iter_mut().map(|(view, _)| view))
        }
        let fusion = self.fusion.iter_mut().flat_map(|fusion| {
            let norm = fusion.norm.iter_mut().map(|(view, _)| view);
            let segments = fusion.segments.iter_mut().map(|segment| &mut segment.body);
            norm.chain(fusion.prologue.iter_mut().chain(segments).flat_map(of))
        });
        let own = self.operands.iter_mut().chain([&mut self.output]);
        own.chain(self.body.iter_mut().flat_map(of)).chain(fusion)
    }

    /// The key: everything that decides which engine is fastest, and no name or position.
    pub(super) fn key(&self) -> TaskKey {
        let mut text = format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{}\n{:?}\n",
            self.op, self.operands, self.output, self.body, self.fused, self.fusion
        );
        let named = |name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        let ranges = self.class.ranges().iter().filter(|(symbol, ..)| named(symbol.as_str()));
        let ranges: Vec<String> = ranges
            .map(|(symbol, low, high)| match low == high {
                true => format!("{symbol}={low}"),
                // Rounded, so that contexts of similar length share a key.
                false => format!("{symbol}={low}..{}", high.next_power_of_two()),
            })
            .collect();
        let p = &self.profile;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{ranges:?}\n{:?} {} {} {} {} {} {} {} {} {} {} {}",
            p.kind,
            p.has_matrix_hw,
            p.has_subgroups,
            p.subgroup_min,
            p.subgroup_max,
            p.has_f16,
            p.compute_units,
            p.max_threads_per_workgroup,
            p.workgroup_memory_bytes,
            p.max_workgroups_per_dim,
            p.max_storage_buffers,
            p.max_binding_bytes,
        );
        // A measurement without the vendor's library is not valid for a device that has it.
        let product = matches!(self.op, Op::MatMul | Op::Linear { .. });
        if p.has_gemm_library && product {
            text.push_str(" library");
        }
        if self.f16_accumulate && matches!(self.op, Op::MatMul) {
            text.push_str(" half sums");
        }
        TaskKey::of(&text)
    }

    fn query<'q>(&'q self, label: &'q str, knobs: &'q KnobValues) -> Query<'q> {
        Query {
            op: &self.op,
            label,
            operands: &self.operands,
            output: &self.output,
            body: self.body.as_ref(),
            fused: self.fused,
            fusion: self.fusion.as_ref(),
            profile: &self.profile,
            class: &self.class,
            knobs,
            deterministic: false,
            f16_accumulate: self.f16_accumulate,
            siblings: &[],
            past_kv_is_final: false,
            given: None,
        }
    }
}

/// A group with a choice of engines or knobs.
#[derive(Clone)]
pub struct Task {
    /// Its identity.
    pub key: TaskKey,
    /// Label of the first such group of the graph.
    pub label: String,
    /// Its operands and result: `f32[1, 576] q4_k[1536, 576] -> f32[1, 1536]`.
    pub shapes: String,
    /// Number of such groups in the plan.
    pub count: usize,
    /// Estimated seconds of one.
    pub seconds: f64,
    /// Engines that can execute it, the best by estimate first.
    pub engines: Vec<EngineId>,
    /// Contents of its memory, by tensor.
    pub contents: Vec<Content>,
    /// Symbol values to measure at: the upper ends of the class, as far as the graph's slices and
    /// updates allow them together, and a much lower point for a wide range.
    pub points: Vec<SymbolValues>,
    pub(super) piece: Piece,
    pub(super) tensors: Vec<Tensor>,
}

impl Task {
    /// Knobs of an engine for it, with the given values set; none for an engine that cannot execute
    /// it.
    pub fn knobs(&self, registry: &Registry, engine: &EngineId, set: &KnobValues) -> Vec<Knob> {
        let query = self.piece.query(&self.label, set);
        let engine = registry.get(engine).filter(|engine| executes(&***engine, &query).is_ok());
        engine.map(|engine| engine.knobs(&query)).unwrap_or_default()
    }

    /// The compute mode of a product with a weight, or of attention; `None` for others.
    pub fn mode(&self) -> Option<ComputeMode> {
        self.piece.op.mode()
    }

    /// The task executed alone by an engine with these knob values.
    ///
    /// # Errors
    /// Invalid, for an unknown engine or values that it does not accept; unsupported, for one that
    /// cannot execute it; errors of the engine's lowering.
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

/// Whether an engine can execute all of a query, or the reason why not.
fn executes(engine: &dyn Engine, query: &Query) -> Result<(), String> {
    engine.applies(query)?;
    if query.is_fused() { engine.fuses(query) } else { Ok(()) }
}

/// The tasks of a graph's plan without duplicates, in plan order. Excluded are groups for which the
/// caller forces, prefers or sets an engine, users' kernels, and pairs linked by quantised int8
/// rows, neither of which runs alone. Pairs linked by f16 rows are measured as they would run
/// alone.
///
/// # Errors
/// As [`super::Plan::new`].
pub fn tasks(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Task>> {
    // Measurements say nothing about reduction orders, which are checked when a choice is used.
    let options = Options { tuned: Vec::new(), deterministic: false, ..options.clone() };
    let builder = PlanBuilder::new(graph, class, profile, &options).after("choose")?;
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
        let operands = operands(&builder, group);
        let query = query(&builder, group, &choice.label, &operands);
        let piece = Piece::of(&query);
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
                    shapes: super::estimate::shapes(&operands, query.output),
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
