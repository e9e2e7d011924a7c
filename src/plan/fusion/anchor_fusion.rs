//! Prologue and epilogue fusion around anchors (GEMM, convolution, attention).

use std::collections::{BTreeSet, HashSet};

use super::dep_graph::Deps;
use super::epilogues::{Made, elementwise, narrows, rotation, stored};
use super::expr_builder::Trace;
use super::pointwise_fusion::loopable;
use super::{Fused, Group, cast_elision, written};
use crate::base::{ComputeMode, Dim, Shape};
use crate::engine::{Body, Fusion, SegmentBody, View};
use crate::ir::{NodeId, Op, OpClass};
use crate::kernel::{MAX_SEGMENTS, Value};
use crate::plan::builder::PlanBuilder;

/// Maximum rows of a product whose workgroups may each recompute the norm of every row.
const FEW_ROWS: u64 = 8;
/// Maximum nodes fused after one anchor.
const MOST_AFTER: usize = 24;

/// Builds a group for every anchor with fusable work around it, and adds its nodes to `taken`.
pub(super) fn anchors(
    builder: &PlanBuilder,
    deps: &Deps,
    taken: &mut HashSet<NodeId>,
) -> Vec<Group> {
    let mut groups = Vec::new();
    let shared = shared_norms(builder, deps);
    let mut halves = cast_elision::read(builder, deps);
    // Elided conversions belong to their readers, whichever anchor comes first.
    taken.extend(halves.values().flat_map(|(_, casts)| casts));
    for id in builder.graph.ids().filter(|id| deps.computes[id.index()]) {
        let node = builder.graph.node(id);
        if node.op.class() != OpClass::Anchor || taken.contains(&id) {
            continue;
        }
        let mut fused = Fused {
            fusion: Fusion::default(),
            operands: [None, None],
            before: Vec::new(),
            after: Vec::new(),
        };
        match halves.remove(&id) {
            Some((operands, casts)) => (fused.operands, fused.before) = (operands, casts),
            None => before(builder, deps, id, &shared, taken, &mut fused),
        }
        after(builder, deps, id, taken, &linked(deps, id, &groups), &mut fused);
        if fused.fusion.is_empty() && fused.before.is_empty() {
            continue;
        }
        let mut nodes: Vec<NodeId> =
            fused.before.iter().chain(&fused.after).chain([&id]).copied().collect();
        nodes.sort_unstable();
        taken.extend(&nodes);
        groups.push(Group { nodes, root: id, body: None, fused: Some(fused), given: None });
    }
    groups
}

/// Finds the norms that every reader can recompute: those whose readers are products of few rows
/// and, on devices with tensor cores, those with a single reader, whose quantisation launch
/// computes the norm.
fn shared_norms(builder: &PlanBuilder, deps: &Deps) -> HashSet<NodeId> {
    let few = |id: &NodeId| {
        let node = builder.graph.node(*id);
        let x = node.inputs.first().map(|x| &builder.graph.node(*x).shape);
        let columns = x.and_then(|x| x.dims().last().cloned()).unwrap_or_else(|| Dim::new(1));
        let rows = x.map(|x| x.elements().floor_div(&columns));
        matches!(node.op, Op::Linear { .. })
            && rows.is_some_and(|rows| builder.class.upper(&rows).is_ok_and(|m| m <= FEW_ROWS))
    };
    let rounds_before = |readers: &[NodeId]| match readers {
        [reader] => {
            let op = &builder.graph.node(*reader).op;
            builder.profile.has_matrix_hw
                && matches!(op, Op::Linear { mode } if *mode != ComputeMode::F32)
        }
        _ => false,
    };
    // Deterministic mode normalises few rows as it does many.
    let ids = builder.graph.ids().filter(|_| !builder.options.deterministic);
    let norms = ids.filter(|id| {
        let readers = &deps.readers[id.index()];
        matches!(builder.graph.node(*id).op, Op::RmsNorm { .. })
            && deps.computes[id.index()]
            && !deps.kept[id.index()]
            && !readers.is_empty()
            && readers.iter().all(|reader| reads_first(builder, deps, *reader, *id))
            && (readers.iter().all(few) || rounds_before(readers))
    });
    norms.collect()
}

/// Returns whether a node's first operand, and no other, is the result of `id`.
fn reads_first(builder: &PlanBuilder, deps: &Deps, reader: NodeId, id: NodeId) -> bool {
    let inputs = &builder.graph.node(reader).inputs;
    let from = |input: &NodeId| deps.producer(builder, *input);
    inputs.first().and_then(from) == Some(id) && inputs[1..].iter().all(|i| from(i) != Some(id))
}

/// Adds a prologue to `fused`: a norm of the anchor's first operand, or elementwise work on it.
fn before(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    shared: &HashSet<NodeId>,
    taken: &HashSet<NodeId>,
    fused: &mut Fused,
) {
    let node = builder.graph.node(anchor);
    if !matches!(node.op, Op::Linear { .. }) {
        return;
    }
    let Some(from) = deps.producer(builder, node.inputs[0]) else { return };
    let source = builder.graph.node(from);
    if shared.contains(&from) {
        let Op::RmsNorm { eps } = source.op else { return };
        let x = &builder.views[source.inputs[0].index()];
        let weight = &builder.views[source.inputs[1].index()];
        let usual = |view: &View| view.dtype.bytes() == 4 && !view.format.is_quantised();
        if usual(x) && usual(weight) && weight.is_contiguous() && x.as_rows().is_some() {
            let shape = builder.graph.node(node.inputs[0]).shape.clone();
            fused.fusion.norm = Some((weight.clone(), eps));
            fused.operands[0] = reshaped_rows(x, &shape);
            fused.before = vec![from];
        }
        if fused.operands[0].is_none() {
            fused.fusion.norm = None;
            fused.before.clear();
        }
        return;
    }
    if taken.contains(&from) || source.op.class() != OpClass::Elementwise {
        return;
    }
    if deps.kept[from.index()] || deps.readers[from.index()][..] != [anchor] {
        return;
    }
    if let Some((body, x, nodes)) = prologue(builder, deps, anchor, from, taken) {
        fused.fusion.prologue = Some(body);
        fused.operands[0] = Some(x);
        fused.before = nodes;
    }
}

/// Reshapes a view; `None` if strides cannot express it.
fn reshaped_rows(view: &View, shape: &Shape) -> Option<View> {
    let layout = crate::plan::alias::reshaped(view, shape)?;
    Some(View { layout, shape: shape.clone(), ..view.clone() })
}

/// Builds the elementwise prologue that ends in `from`, over `[row, column]` of the anchor's first
/// operand. Also returns the view that the anchor reads instead, and the nodes of the prologue.
fn prologue(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    from: NodeId,
    taken: &HashSet<NodeId>,
) -> Option<(Body, View, Vec<NodeId>)> {
    let operand = builder.graph.node(anchor).inputs[0];
    let shape = &builder.graph.node(operand).shape;
    let columns = shape.dims().last()?.clone();
    let lead = shape.dims()[..shape.rank() - 1].iter().cloned();
    let space = Shape::new([lead.fold(Dim::new(1), |a, b| a * b), columns]);
    let mut members: HashSet<NodeId> = [from].into();
    let mut nodes = vec![from];
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        for input in &builder.graph.node(id).inputs {
            let Some(next) = deps.producer(builder, *input) else { continue };
            let readers = &deps.readers[next.index()];
            let inner = builder.graph.node(next).op.class() == OpClass::Elementwise
                && !taken.contains(&next)
                && !deps.kept[next.index()]
                && readers.iter().all(|reader| members.contains(reader));
            if inner && members.insert(next) {
                nodes.push(next);
                open.push(next);
            }
        }
    }
    let mut trace = Trace::new(builder, &members, space.clone(), None);
    let chain = trace.root(shape)?;
    trace.value(operand, &chain)?;
    let (mut body, _) = trace.finish(Vec::new());
    // The first operand with an element for each index replaces x.
    let full = |view: &View| {
        view.dtype == crate::base::DType::F32
            && view.as_rows().is_some()
            && view.layout.strides.iter().zip(space.dims()).all(|(s, d)| d.is(1) || !s.is(0))
    };
    if body.inputs.iter().any(|view| view.dtype.is_half()) {
        return None;
    }
    let x = body.inputs.iter().position(full)?;
    let taken_view = body.inputs.remove(x);
    for value in &mut body.values {
        *value = match *value {
            Value::Input(i) if i as usize == x => Value::Anchor(0),
            Value::Input(i) if i as usize > x => Value::Input(i - 1),
            other => other,
        };
    }
    nodes.sort_unstable();
    let view = reshaped_rows(&taken_view, shape)?;
    Some((body, view, nodes))
}

/// Adds an epilogue on the anchor's result to `fused`; it replaces the anchor's store.
fn after(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    taken: &HashSet<NodeId>,
    late: &Late,
    fused: &mut Fused,
) {
    // A rotation without a bias before it needs fewer buffers.
    for biased in [true, false] {
        let members = grown(builder, deps, anchor, taken, late, biased);
        if members.is_empty() || deps.kept[anchor.index()] {
            return;
        }
        let Some(segments) = segments(builder, deps, anchor, &members) else { continue };
        let (before, nodes) = (std::mem::replace(&mut fused.fusion.segments, segments), members);
        fused.after = nodes;
        if 2 + fused.fusion.reads().len() + fused.fusion.writes().len()
            <= builder.profile.max_storage_buffers as usize
        {
            return;
        }
        if biased {
            fused.fusion.segments = before;
            fused.after.clear();
        }
    }
}

/// Builds the epilogue segments that compute `members`, each from a part of the anchor's result.
pub(super) fn segments(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    members: &[NodeId],
) -> Option<Vec<SegmentBody>> {
    let set: HashSet<NodeId> = members.iter().copied().collect();
    let mut segments: Vec<Made> = Vec::new();
    for component in components(builder, deps, anchor, members) {
        let rotates = |id: &NodeId| matches!(builder.graph.node(*id).op, Op::Rope { .. });
        segments.push(match component.iter().any(rotates) {
            true => rotation(builder, deps, anchor, &component)?,
            false => elementwise(builder, deps, anchor, &component)?,
        });
    }
    // Columns with other readers are stored as usual; if a segment takes them too, nothing is
    // fused.
    let mut kept = Vec::new();
    for reader in &deps.readers[anchor.index()] {
        if set.contains(reader) {
            continue;
        }
        for input in &builder.graph.node(*reader).inputs {
            if deps.producer(builder, *input) == Some(anchor) {
                let made = stored(builder, anchor, *input)?;
                if !kept.contains(&made.1) {
                    kept.push(made.1);
                    segments.push(made);
                }
            }
        }
    }
    segments.sort_by_key(|(_, range)| *range);
    let apart = segments.windows(2).all(|pair| pair[0].1.1 <= pair[1].1.0);
    (segments.len() <= MAX_SEGMENTS && apart)
        .then(|| segments.into_iter().map(|(segment, _)| segment).collect())
}

/// Nodes that depend on the anchor, split at the last node that any group has so far.
#[derive(Default)]
struct Late {
    /// The dependent nodes up to that node. If one node of a group is dependent, all its nodes are,
    /// and so are their readers.
    known: HashSet<NodeId>,
    /// The first dependent nodes after it; no path leads from them back to a group.
    beyond: BTreeSet<NodeId>,
}

fn linked(deps: &Deps, anchor: NodeId, groups: &[Group]) -> Late {
    let mut late = Late::default();
    let last = groups.iter().flat_map(|group| &group.nodes).max();
    let mut open: Vec<NodeId> = deps.users[anchor.index()].to_vec();
    while let Some(id) = open.pop() {
        if last.is_none_or(|last| id > *last) {
            late.beyond.insert(id);
            continue;
        }
        if !late.known.insert(id) {
            continue;
        }
        open.extend(&deps.users[id.index()]);
        for group in groups.iter().filter(|group| group.nodes.contains(&id)) {
            open.extend(&group.nodes);
        }
    }
    late
}

/// Returns the nodes that can join the epilogue of the anchor: they depend on it, but on no other
/// node that depends on it, except each other. With `biased`, these include rotations of the
/// results of other members.
fn grown(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    taken: &HashSet<NodeId>,
    late: &Late,
    biased: bool,
) -> Vec<NodeId> {
    let graph = &builder.graph;
    let elements = &graph.node(anchor).shape.elements();
    let mut members: Vec<NodeId> = Vec::new();
    let (mut late, mut open) = (late.known.clone(), late.beyond.clone());
    let (mut seen, known) = (HashSet::new(), late.len());
    open.extend(&deps.users[anchor.index()]);
    while let Some(id) = open.pop_first() {
        if late.len() > known + 4 * MOST_AFTER || members.len() >= MOST_AFTER {
            break;
        }
        let node = graph.node(id);
        let fits = match node.op {
            // Deterministic mode rotates in the rotation kernel only.
            Op::Rope { .. } if builder.options.deterministic => false,
            Op::Rope { .. } => matches!(graph.node(anchor).op, Op::Linear { .. }),
            Op::Update { .. } => true,
            _ => node.op.class() == OpClass::Elementwise,
        };
        let rotates = |id: NodeId| matches!(graph.node(id).op, Op::Rope { .. });
        let narrowed = |id: NodeId| {
            let mut from = graph.node(id).inputs.iter().filter_map(|i| deps.producer(builder, *i));
            narrows(builder, id).is_some() && from.any(rotates)
        };
        let stored_next = |id: NodeId| rotates(id) || narrowed(id);
        let sources = || node.inputs.iter().filter_map(|input| deps.producer(builder, *input));
        let ready = deps.before[id.index()]
            .iter()
            .all(|from| *from == anchor || members.contains(from) || !late.contains(from));
        let joins = fits
            && ready
            && !taken.contains(&id)
            && (matches!(node.op, Op::Rope { .. }) || loopable(builder, id))
            && sources().any(|from| from == anchor || members.contains(&from))
            && larger_or_equal(builder, elements, &written(builder, id).shape)
            && match node.op {
                Op::Update { .. } => !sources().any(|from| members.contains(&from)),
                Op::Rope { .. } if !biased => !sources().any(|from| members.contains(&from)),
                // A rotation's result is stored, unchanged or in two bytes.
                _ => !sources().any(|from| {
                    let stores = narrows(builder, id).is_some() && rotates(from);
                    members.contains(&from) && stored_next(from) && !stores
                }),
            };
        // A node that depends on the anchor without being a member may not be an operand of a
        // member.
        late.insert(id);
        seen.insert(id);
        if joins {
            members.push(id);
        }
        open.extend(deps.users[id.index()].iter().filter(|user| !seen.contains(*user)));
    }
    members
}

fn larger_or_equal(builder: &PlanBuilder, elements: &Dim, shape: &Shape) -> bool {
    let of = &shape.elements();
    elements == of
        || matches!(
            (builder.class.upper(elements), builder.class.upper(of)),
            (Ok(a), Ok(b)) if a >= b
        )
}

/// Splits the members of an epilogue into components, which share no values.
fn components(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    members: &[NodeId],
) -> Vec<Vec<NodeId>> {
    let mut sets: Vec<Vec<NodeId>> = Vec::new();
    for id in members {
        let inputs = &builder.graph.node(*id).inputs;
        let from: Vec<NodeId> =
            inputs.iter().filter_map(|input| deps.producer(builder, *input)).collect();
        let joins =
            |set: &Vec<NodeId>| set.iter().any(|other| *other != anchor && from.contains(other));
        let (mut joined, rest): (Vec<_>, Vec<_>) = sets.into_iter().partition(joins);
        let mut set: Vec<NodeId> = joined.drain(..).flatten().collect();
        set.push(*id);
        set.sort_unstable();
        sets = rest;
        sets.push(set);
    }
    sets
}
