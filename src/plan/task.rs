//! Pieces of a plan as tasks for the tuner: what each is wherever it stands, what its memory
//! holds, and how one engine would execute it alone.
//!
//! A [`Task`] needs nothing of the graph that it comes from: tensors are numbered in the order in
//! which its views name them, so equal layers are one task with one key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Options;
use super::choose::{forced, is_copy, operands, query};
use super::draft::Draft;
use super::handing;
use super::trial::{Content, Trial, contents, points};
use crate::base::{ComputeMode, ShapeClass, SymbolValues};
use crate::engine::{
    Around, Body, Engine, EngineId, Knob, KnobValues, Lowering, Query, Registry, TaskKey, Tensor,
    TensorId, Verdict, View,
};
use crate::error::{Error, Result};
use crate::ir::{Graph, Op};
use crate::provider::DeviceProfile;

/// A piece of a graph by itself, with tensors of its own numbering.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) op: Op,
    pub(super) operands: Vec<View>,
    pub(super) output: View,
    pub(super) body: Option<Body>,
    pub(super) fused: usize,
    pub(super) around: Option<Around>,
    pub(super) class: ShapeClass,
    pub(super) profile: DeviceProfile,
    pub(super) half_sums: bool,
    /// What each tensor was called before.
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
            around: query.around.cloned(),
            class: query.class.clone(),
            profile: query.profile.clone(),
            half_sums: query.half_sums,
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

    /// Every view, in an order that is always the same.
    fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        fn of(body: &mut Body) -> impl Iterator<Item = &mut View> {
            body.inputs.iter_mut().chain(body.outputs.iter_mut().map(|(view, _)| view))
        }
        let around = self.around.iter_mut().flat_map(|around| {
            let norm = around.norm.iter_mut().map(|(view, _)| view);
            let segments = around.segments.iter_mut().map(|segment| &mut segment.body);
            norm.chain(around.prologue.iter_mut().chain(segments).flat_map(of))
        });
        let own = self.operands.iter_mut().chain([&mut self.output]);
        own.chain(self.body.iter_mut().flat_map(of)).chain(around)
    }

    /// The key: of everything that decides which engine is the fastest, and of no name or place.
    pub(super) fn key(&self) -> TaskKey {
        let mut text = format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{}\n{:?}\n",
            self.op, self.operands, self.output, self.body, self.fused, self.around
        );
        let named = |name: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        };
        let ranges = self.class.ranges().iter().filter(|(symbol, ..)| named(symbol.as_str()));
        let ranges: Vec<String> = ranges
            .map(|(symbol, low, high)| match low == high {
                true => format!("{symbol}={low}"),
                // Contexts that differ a little are alike.
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
        // What was measured where there was no library says nothing of it.
        let product = matches!(self.op, Op::MatMul | Op::Linear { .. });
        if p.has_gemm_library && product {
            text.push_str(" library");
        }
        if self.half_sums && matches!(self.op, Op::MatMul) {
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
            around: self.around.as_ref(),
            profile: &self.profile,
            class: &self.class,
            knobs,
            deterministic: false,
            half_sums: self.half_sums,
            siblings: &[],
            settled: false,
            given: None,
        }
    }
}

/// A piece for which there is a choice of engines or knobs.
#[derive(Clone)]
pub struct Task {
    /// What it is.
    pub key: TaskKey,
    /// What the first such piece of the graph is called.
    pub label: String,
    /// Its operands and result: `f32[1, 576] q4_k[1536, 576] -> f32[1, 1536]`.
    pub shapes: String,
    /// How many such pieces the plan has.
    pub count: usize,
    /// Estimated seconds of one.
    pub seconds: f64,
    /// Engines that can execute it, the best by estimate first.
    pub engines: Vec<EngineId>,
    /// What its memory holds, by tensor.
    pub contents: Vec<Content>,
    /// Values of symbols to measure it at: the upper ends of the class, as far as the graph's
    /// slices and updates allow them together, and what lies well below where a range is wide.
    pub points: Vec<SymbolValues>,
    pub(super) piece: Piece,
    pub(super) tensors: Vec<Tensor>,
}

impl Task {
    /// What can be set of an engine for it, others being set as given; nothing of one that cannot
    /// execute it.
    pub fn knobs(&self, registry: &Registry, engine: &EngineId, set: &KnobValues) -> Vec<Knob> {
        let query = self.piece.query(&self.label, set);
        let engine = registry.get(engine).filter(|engine| executes(&***engine, &query).is_ok());
        engine.map(|engine| engine.knobs(&query)).unwrap_or_default()
    }

    /// How a product with a weight, or attention, multiplies; `None` for others.
    pub fn mode(&self) -> Option<ComputeMode> {
        self.piece.op.mode()
    }

    /// The task executed alone by an engine whose knobs are set so.
    ///
    /// # Errors
    /// Invalid, for an engine that is not there or values that it does not take; unsupported, for
    /// one that cannot execute it; what the engine says as it lowers.
    pub fn trial(
        &self,
        registry: &Registry,
        engine: &EngineId,
        knobs: &KnobValues,
    ) -> Result<Trial> {
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
        Ok(Trial { tensors, steps, own: self.tensors.len() })
    }
}

/// Whether an engine can do all that a query asks for, with the reason where not.
fn executes(engine: &dyn Engine, query: &Query) -> Result<(), String> {
    engine.applies(query)?;
    if query.is_fused() { engine.fuses(query) } else { Ok(()) }
}

/// The tasks of a graph's plan, each once, in the order of the plan. Pieces for which the caller
/// forces, prefers or sets an engine are none, nor are users' kernels, nor a piece that hands its result on as codes and
/// the one that takes them: neither runs alone. Where it is halves, both are measured as they would run alone.
///
/// # Errors
/// As [`super::Plan::new`].
pub fn tasks(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Task>> {
    // What is measured for a task says nothing of orders: they are asked for where it is taken.
    let options = Options { tuned: Vec::new(), deterministic: false, ..options.clone() };
    let draft = Draft::new(graph, class, profile, &options).after("choose")?;
    let mut found: Vec<Task> = Vec::new();
    let mut known: BTreeMap<TaskKey, Option<usize>> = BTreeMap::new();
    for (group, choice) in draft.groups.iter().zip(&draft.choices) {
        let Some(engine) = &choice.engine else { continue };
        let set = options.knobs.engines().any(|set| set == engine);
        let wanted = set || options.preferred.contains(engine) || forced(&draft, group)?.is_some();
        let custom = matches!(draft.graph.node(group.root).op, Op::Custom(_));
        let Some(group) = &handing::alone(group) else { continue };
        if is_copy(&draft, group) || wanted || custom {
            continue;
        }
        let operands = operands(&draft, group);
        let query = query(&draft, group, &choice.label, &operands);
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
                    piece.known.iter().map(|id| draft.tensors[id.index()].clone()).collect();
                let points = points(&draft)?;
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
