//! Anchors with what is fused around them.

use std::collections::{BTreeSet, HashSet};

use super::deps::Deps;
use super::loops::loopable;
use super::segments::{Made, elementwise, narrows, rotation, stored};
use super::trace::Trace;
use super::{Fused, Group, halves, written};
use crate::base::{ComputeMode, Dim, Shape};
use crate::engine::{Around, Body, SegmentBody, View};
use crate::ir::{NodeId, Op, OpClass};
use crate::kernel::{MAX_SEGMENTS, Value};
use crate::plan::draft::Draft;

/// Rows up to which each row's norm may be found again by every workgroup of a product.
const FEW_ROWS: u64 = 8;
/// Nodes that are fused behind one anchor at most.
const MOST_AFTER: usize = 24;

/// Groups for every anchor that something is fused around; `taken` gets their nodes.
pub(super) fn anchors(draft: &Draft, deps: &Deps, taken: &mut HashSet<NodeId>) -> Vec<Group> {
    let mut groups = Vec::new();
    let shared = shared_norms(draft, deps);
    let mut halves = halves::read(draft, deps);
    // Whoever comes first leaves them to those who read what they convert.
    taken.extend(halves.values().flat_map(|(_, casts)| casts));
    for id in draft.graph.ids().filter(|id| deps.computes[id.index()]) {
        let node = draft.graph.node(id);
        if node.op.class() != OpClass::Anchor || taken.contains(&id) {
            continue;
        }
        let mut fused = Fused {
            around: Around::default(),
            operands: [None, None],
            before: Vec::new(),
            after: Vec::new(),
        };
        match halves.remove(&id) {
            Some((operands, casts)) => (fused.operands, fused.before) = (operands, casts),
            None => before(draft, deps, id, &shared, taken, &mut fused),
        }
        after(draft, deps, id, taken, &linked(deps, id, &groups), &mut fused);
        if fused.around.is_empty() && fused.before.is_empty() {
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

/// Norms that every reader can do for itself: products of few rows; of many rows, where there is matrix hardware, the only
/// one, since a launch before it rounds them.
fn shared_norms(draft: &Draft, deps: &Deps) -> HashSet<NodeId> {
    let few = |id: &NodeId| {
        let node = draft.graph.node(*id);
        let x = node.inputs.first().map(|x| &draft.graph.node(*x).shape);
        let columns = x.and_then(|x| x.dims().last().cloned()).unwrap_or_else(|| Dim::new(1));
        let rows = x.map(|x| x.elements().floor_div(&columns));
        matches!(node.op, Op::Linear { .. })
            && rows.is_some_and(|rows| draft.class.upper(&rows).is_ok_and(|m| m <= FEW_ROWS))
    };
    let rounds_before = |readers: &[NodeId]| match readers {
        [reader] => {
            let op = &draft.graph.node(*reader).op;
            draft.profile.has_matrix_hw
                && matches!(op, Op::Linear { mode } if *mode != ComputeMode::F32)
        }
        _ => false,
    };
    // In deterministic mode few rows are normalised as many are.
    let ids = draft.graph.ids().filter(|_| !draft.options.deterministic);
    let norms = ids.filter(|id| {
        let readers = &deps.readers[id.index()];
        matches!(draft.graph.node(*id).op, Op::RmsNorm { .. })
            && deps.computes[id.index()]
            && !deps.kept[id.index()]
            && !readers.is_empty()
            && readers.iter().all(|reader| reads_first(draft, deps, *reader, *id))
            && (readers.iter().all(few) || rounds_before(readers))
    });
    norms.collect()
}

/// Whether the first operand, and no other, is what `id` computes.
fn reads_first(draft: &Draft, deps: &Deps, reader: NodeId, id: NodeId) -> bool {
    let inputs = &draft.graph.node(reader).inputs;
    let from = |input: &NodeId| deps.producer(draft, *input);
    inputs.first().and_then(from) == Some(id) && inputs[1..].iter().all(|i| from(i) != Some(id))
}

/// What is done as the anchor reads its first operand: a norm, or elementwise work.
fn before(
    draft: &Draft,
    deps: &Deps,
    anchor: NodeId,
    shared: &HashSet<NodeId>,
    taken: &HashSet<NodeId>,
    fused: &mut Fused,
) {
    let node = draft.graph.node(anchor);
    if !matches!(node.op, Op::Linear { .. }) {
        return;
    }
    let Some(from) = deps.producer(draft, node.inputs[0]) else { return };
    let source = draft.graph.node(from);
    if shared.contains(&from) {
        let Op::RmsNorm { eps } = source.op else { return };
        let x = &draft.views[source.inputs[0].index()];
        let weight = &draft.views[source.inputs[1].index()];
        let usual = |view: &View| view.dtype.bytes() == 4 && !view.format.is_quantised();
        if usual(x) && usual(weight) && weight.is_contiguous() && x.as_rows().is_some() {
            let shape = draft.graph.node(node.inputs[0]).shape.clone();
            fused.around.norm = Some((weight.clone(), eps));
            fused.operands[0] = reshaped_rows(x, &shape);
            fused.before = vec![from];
        }
        if fused.operands[0].is_none() {
            fused.around.norm = None;
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
    if let Some((body, x, nodes)) = prologue(draft, deps, anchor, from, taken) {
        fused.around.prologue = Some(body);
        fused.operands[0] = Some(x);
        fused.before = nodes;
    }
}

/// The same memory under another shape with the same rows.
fn reshaped_rows(view: &View, shape: &Shape) -> Option<View> {
    let layout = crate::plan::alias::reshaped(view, shape)?;
    Some(View { layout, shape: shape.clone(), ..view.clone() })
}

/// The elementwise work that ends in `from`, over [row, column] of the anchor's first operand.
fn prologue(
    draft: &Draft,
    deps: &Deps,
    anchor: NodeId,
    from: NodeId,
    taken: &HashSet<NodeId>,
) -> Option<(Body, View, Vec<NodeId>)> {
    let operand = draft.graph.node(anchor).inputs[0];
    let shape = &draft.graph.node(operand).shape;
    let columns = shape.dims().last()?.clone();
    let lead = shape.dims()[..shape.rank() - 1].iter().cloned();
    let space = Shape::new([lead.fold(Dim::new(1), |a, b| a * b), columns]);
    let mut members: HashSet<NodeId> = [from].into();
    let mut nodes = vec![from];
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        for input in &draft.graph.node(id).inputs {
            let Some(next) = deps.producer(draft, *input) else { continue };
            let readers = &deps.readers[next.index()];
            let inner = draft.graph.node(next).op.class() == OpClass::Elementwise
                && !taken.contains(&next)
                && !deps.kept[next.index()]
                && readers.iter().all(|reader| members.contains(reader));
            if inner && members.insert(next) {
                nodes.push(next);
                open.push(next);
            }
        }
    }
    let mut trace = Trace::new(draft, &members, space.clone(), None);
    let chain = trace.root(shape)?;
    trace.value(operand, &chain)?;
    let (mut body, _) = trace.finish(Vec::new());
    // The first operand that has an element for each one takes the place of x.
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

/// What is done with what the anchor makes, in the place of storing it.
fn after(
    draft: &Draft,
    deps: &Deps,
    anchor: NodeId,
    taken: &HashSet<NodeId>,
    late: &Late,
    fused: &mut Fused,
) {
    // What is rotated as it comes needs fewer buffers than what gets a bias first.
    for biased in [true, false] {
        let members = grown(draft, deps, anchor, taken, late, biased);
        if members.is_empty() || deps.kept[anchor.index()] {
            return;
        }
        let Some(segments) = segments(draft, deps, anchor, &members) else { continue };
        let (before, nodes) = (std::mem::replace(&mut fused.around.segments, segments), members);
        fused.after = nodes;
        if 2 + fused.around.reads().len() + fused.around.writes().len()
            <= draft.profile.max_storage_buffers as usize
        {
            return;
        }
        if biased {
            fused.around.segments = before;
            fused.after.clear();
        }
    }
}

/// What members do with each part of what the anchor makes.
pub(super) fn segments(
    draft: &Draft,
    deps: &Deps,
    anchor: NodeId,
    members: &[NodeId],
) -> Option<Vec<SegmentBody>> {
    let set: HashSet<NodeId> = members.iter().copied().collect();
    let mut segments: Vec<Made> = Vec::new();
    for component in components(draft, deps, anchor, members) {
        let rotates = |id: &NodeId| matches!(draft.graph.node(*id).op, Op::Rope { .. });
        segments.push(match component.iter().any(rotates) {
            true => rotation(draft, deps, anchor, &component)?,
            false => elementwise(draft, deps, anchor, &component)?,
        });
    }
    // Columns that others read are stored as ever; where a segment takes them too, nothing is fused.
    let mut kept = Vec::new();
    for reader in &deps.readers[anchor.index()] {
        if set.contains(reader) {
            continue;
        }
        for input in &draft.graph.node(*reader).inputs {
            if deps.producer(draft, *input) == Some(anchor) {
                let made = stored(draft, anchor, *input)?;
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

/// What waits for the anchor.
#[derive(Default)]
struct Late {
    /// As far as the groups so far reach: where one node of a group waits, all of it does, and what
    /// reads any of them.
    known: HashSet<NodeId>,
    /// The first nodes behind that; no way leads back from there.
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

/// Nodes behind the anchor that need nothing else that waits for it; with `biased` rotations of what
/// other members make, too.
fn grown(
    draft: &Draft,
    deps: &Deps,
    anchor: NodeId,
    taken: &HashSet<NodeId>,
    late: &Late,
    biased: bool,
) -> Vec<NodeId> {
    let graph = &draft.graph;
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
            // In deterministic mode all rotate as the kernel of rotations does.
            Op::Rope { .. } if draft.options.deterministic => false,
            Op::Rope { .. } => matches!(graph.node(anchor).op, Op::Linear { .. }),
            Op::Update { .. } => true,
            _ => node.op.class() == OpClass::Elementwise,
        };
        let rotates = |id: NodeId| matches!(graph.node(id).op, Op::Rope { .. });
        let narrowed = |id: NodeId| {
            let mut from = graph.node(id).inputs.iter().filter_map(|i| deps.producer(draft, *i));
            narrows(draft, id).is_some() && from.any(rotates)
        };
        let stored_next = |id: NodeId| rotates(id) || narrowed(id);
        let sources = || node.inputs.iter().filter_map(|input| deps.producer(draft, *input));
        let ready = deps.before[id.index()]
            .iter()
            .all(|from| *from == anchor || members.contains(from) || !late.contains(from));
        let joins = fits
            && ready
            && !taken.contains(&id)
            && (matches!(node.op, Op::Rope { .. }) || loopable(draft, id))
            && sources().any(|from| from == anchor || members.contains(&from))
            && larger_or_equal(draft, elements, &written(draft, id).shape)
            && match node.op {
                Op::Update { .. } => !sources().any(|from| members.contains(&from)),
                Op::Rope { .. } if !biased => !sources().any(|from| members.contains(&from)),
                // What a rotation makes is stored, as it is or in two bytes.
                _ => !sources().any(|from| {
                    let stores = narrows(draft, id).is_some() && rotates(from);
                    members.contains(&from) && stored_next(from) && !stores
                }),
            };
        // What waits for the anchor and is no member may not be an operand of one.
        late.insert(id);
        seen.insert(id);
        if joins {
            members.push(id);
        }
        open.extend(deps.users[id.index()].iter().filter(|user| !seen.contains(*user)));
    }
    members
}

fn larger_or_equal(draft: &Draft, elements: &Dim, shape: &Shape) -> bool {
    let of = &shape.elements();
    elements == of
        || matches!(
            (draft.class.upper(elements), draft.class.upper(of)),
            (Ok(a), Ok(b)) if a >= b
        )
}

/// The members in sets that share values.
fn components(draft: &Draft, deps: &Deps, anchor: NodeId, members: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut sets: Vec<Vec<NodeId>> = Vec::new();
    for id in members {
        let inputs = &draft.graph.node(*id).inputs;
        let from: Vec<NodeId> =
            inputs.iter().filter_map(|input| deps.producer(draft, *input)).collect();
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
