//! Anchors with what is fused around them.

use std::collections::HashSet;
use std::rc::Rc;

use super::deps::Deps;
use super::loops::loopable;
use super::trace::{Chain, Trace};
use super::{Fused, Group, written};
use crate::base::{Dim, Layout, Shape};
use crate::engine::{Around, Body, SegmentBody, View};
use crate::ir::{NodeId, Op, OpClass, RopePairs};
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
    for id in draft.graph.ids().filter(|id| deps.computes[id.index()]) {
        let node = draft.graph.node(id);
        if node.op.class() != OpClass::Anchor || taken.contains(&id) {
            continue;
        }
        let mut fused =
            Fused { around: Around::default(), x: None, before: Vec::new(), after: Vec::new() };
        before(draft, deps, id, &shared, taken, &mut fused);
        after(draft, deps, id, taken, &mut fused);
        if fused.around.is_empty() {
            continue;
        }
        let mut nodes: Vec<NodeId> =
            fused.before.iter().chain(&fused.after).chain([&id]).copied().collect();
        nodes.sort_unstable();
        taken.extend(&nodes);
        groups.push(Group { nodes, root: id, body: None, fused: Some(fused) });
    }
    groups
}

/// Norms that every reader can do for itself: products of few rows.
fn shared_norms(draft: &Draft, deps: &Deps) -> HashSet<NodeId> {
    let few = |id: &NodeId| {
        let node = draft.graph.node(*id);
        let x = node.inputs.first().map(|x| &draft.graph.node(*x).shape);
        let columns = x.and_then(|x| x.dims().last().cloned()).unwrap_or_else(|| Dim::new(1));
        let rows = x.map(|x| x.elements().floor_div(&columns));
        matches!(node.op, Op::Linear)
            && rows.is_some_and(|rows| draft.class.upper(&rows).is_ok_and(|m| m <= FEW_ROWS))
    };
    let norms = draft.graph.ids().filter(|id| {
        let readers = &deps.readers[id.index()];
        matches!(draft.graph.node(*id).op, Op::RmsNorm { .. })
            && deps.computes[id.index()]
            && !deps.kept[id.index()]
            && !readers.is_empty()
            && readers.iter().all(|reader| few(reader) && reads_first(draft, deps, *reader, *id))
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
    if !matches!(node.op, Op::Linear) {
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
            fused.x = reshaped_rows(x, &shape);
            fused.before = vec![from];
        }
        if fused.x.is_none() {
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
        fused.x = Some(x);
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
fn after(draft: &Draft, deps: &Deps, anchor: NodeId, taken: &HashSet<NodeId>, fused: &mut Fused) {
    let members = grown(draft, deps, anchor, taken);
    if members.is_empty() || deps.kept[anchor.index()] {
        return;
    }
    let set: HashSet<NodeId> = members.iter().copied().collect();
    let mut segments: Vec<(SegmentBody, (u64, u64))> = Vec::new();
    for component in components(draft, deps, anchor, &members) {
        let made = match draft.graph.node(component[0]).op {
            Op::Rope { .. } => rotation(draft, deps, anchor, component[0]),
            _ => elementwise(draft, deps, anchor, &component),
        };
        match made {
            Some(made) => segments.push(made),
            None => return,
        }
    }
    // Columns that others read are stored as ever.
    for reader in &deps.readers[anchor.index()] {
        if set.contains(reader) {
            continue;
        }
        for input in &draft.graph.node(*reader).inputs {
            if deps.producer(draft, *input) == Some(anchor) {
                match stored(draft, anchor, *input) {
                    Some(made) if segments.iter().any(|(_, range)| *range == made.1) => {}
                    Some(made) => segments.push(made),
                    None => return,
                }
            }
        }
    }
    segments.sort_by_key(|(_, range)| *range);
    let apart = segments.windows(2).all(|pair| pair[0].1.1 <= pair[1].1.0);
    if segments.len() > MAX_SEGMENTS || !apart {
        return;
    }
    fused.around.segments = segments.into_iter().map(|(segment, _)| segment).collect();
    fused.after = members;
}

/// Nodes behind the anchor that need nothing else that waits for the anchor.
fn grown(draft: &Draft, deps: &Deps, anchor: NodeId, taken: &HashSet<NodeId>) -> Vec<NodeId> {
    let graph = &draft.graph;
    let elements = &graph.node(anchor).shape.elements();
    let mut members: Vec<NodeId> = Vec::new();
    // Everything that waits for the anchor; what is not a member may not be an operand of one.
    let mut late: HashSet<NodeId> = HashSet::new();
    let mut open: std::collections::BTreeSet<NodeId> =
        deps.users[anchor.index()].iter().copied().collect();
    while let Some(id) = open.pop_first() {
        if late.len() > 4 * MOST_AFTER || members.len() >= MOST_AFTER {
            break;
        }
        let node = graph.node(id);
        let fits = match node.op {
            Op::Rope { .. } => matches!(graph.node(anchor).op, Op::Linear),
            Op::Update { .. } => true,
            _ => node.op.class() == OpClass::Elementwise,
        };
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
            && !matches!(node.op, Op::Rope { .. } | Op::Update { .. } if
                sources().any(|from| members.contains(&from)));
        late.insert(id);
        if joins {
            members.push(id);
        }
        open.extend(deps.users[id.index()].iter().filter(|user| !late.contains(user)));
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

type Made = (SegmentBody, (u64, u64));

/// A segment of elementwise work (or one copy into a state).
fn elementwise(draft: &Draft, deps: &Deps, anchor: NodeId, nodes: &[NodeId]) -> Option<Made> {
    let members: HashSet<NodeId> = nodes.iter().copied().collect();
    let is_linear = matches!(draft.graph.node(anchor).op, Op::Linear);
    let space = match is_linear {
        true => written(draft, *nodes.last()?).shape,
        false => planes(draft, anchor)?,
    };
    let mut trace = Trace::new(draft, &members, space, None).around(anchor);
    let mut outputs = Vec::new();
    for id in nodes {
        let inside = deps.readers[id.index()].iter().all(|reader| members.contains(reader));
        if inside && !deps.kept[id.index()] {
            continue;
        }
        let to = written(draft, *id);
        if to.dtype.bytes() != 4 {
            return None;
        }
        let chain = trace.root(&to.shape)?;
        let value = match &draft.graph.node(*id).op {
            Op::Update { .. } => trace.value(draft.graph.node(*id).inputs[1], &chain)?,
            _ => trace.value(*id, &chain)?,
        };
        outputs.push((trace.seen(&to, &chain)?, value));
    }
    let (body, seen) = trace.finish(outputs);
    segment(draft, anchor, body, seen)
}

/// The three dimensions of the result of an anchor that is no product with a weight matrix, as
/// `kernel::attach` has them.
fn planes(draft: &Draft, anchor: NodeId) -> Option<Shape> {
    let node = draft.graph.node(anchor);
    let dims = node.shape.dims();
    let product = |dims: &[Dim]| dims.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    match node.op {
        Op::MatMul => {
            let lead = dims.len().checked_sub(2)?;
            Some(Shape::new([product(&dims[..lead]), dims[lead].clone(), dims[lead + 1].clone()]))
        }
        Op::Conv2d(_) if dims.len() == 4 => {
            Some(Shape::new([product(&dims[..2]), dims[2].clone(), dims[3].clone()]))
        }
        Op::Attention { .. } if dims.len() == 3 => Some(node.shape.clone()),
        _ => None,
    }
}

/// A segment that rotates.
fn rotation(draft: &Draft, deps: &Deps, anchor: NodeId, id: NodeId) -> Option<Made> {
    let node = draft.graph.node(id);
    let Op::Rope { pairs, rot_dim } = node.op else { return None };
    let [x, positions, frequencies] = node.inputs[..] else { return None };
    let of_anchor = |input: &NodeId| deps.producer(draft, *input) == Some(anchor);
    if !node.shape.dims().last()?.is(rot_dim as i64)
        || [positions, frequencies].iter().any(of_anchor)
    {
        return None;
    }
    let half = rot_dim / 2;
    let space = Shape::new([node.shape[0].clone(), node.shape[1].clone(), Dim::from(half)]);
    let members = HashSet::new();
    let mut trace = Trace::new(draft, &members, node.shape.clone(), None).around(anchor);
    trace.value(x, &Rc::new(Chain::Space))?;
    let (_, seen) = trace.finish(Vec::new());
    let [whole] = &seen[..] else { return None };
    let lane = |view: &View, lane: usize| {
        let step = view.layout.strides[2].clone();
        let (at, step) = match pairs {
            RopePairs::Interleaved => (step.clone() * Dim::from(lane), step * Dim::new(2)),
            RopePairs::Half => (step.clone() * Dim::from(lane * half), step),
        };
        let mut part = View { shape: space.clone(), ..view.clone() };
        part.layout.offset = view.layout.offset.clone() + at;
        part.layout.strides[2] = step;
        part
    };
    let spread = |view: &View, shape: Shape| {
        let layout = crate::plan::alias::reshaped(view, &shape)?;
        let layout = layout.broadcast(&shape, &space);
        Some(View { layout, shape: space.clone(), ..view.clone() })
    };
    let position = &draft.views[positions.index()];
    let position = spread(position, Shape::new([node.shape[0].clone(), Dim::new(1), Dim::new(1)]))?;
    let frequency = &draft.views[frequencies.index()];
    let frequency = spread(frequency, Shape::new([Dim::new(1), Dim::new(1), Dim::from(half)]))?;
    let mut trace = Trace::new(draft, &members, space.clone(), None);
    let angle = trace.angle(position, frequency)?;
    let pair = [trace.anchor_value(0)?, trace.anchor_value(1)?];
    let [a, b] = trace.rotation(pair, angle)?;
    let to = &draft.views[id.index()];
    let (body, _) = trace.finish(vec![(lane(to, 0), a), (lane(to, 1), b)]);
    segment(draft, anchor, body, vec![lane(whole, 0), lane(whole, 1)])
}

/// A segment that stores what is seen at `input`.
fn stored(draft: &Draft, anchor: NodeId, input: NodeId) -> Option<Made> {
    let view = &draft.views[input.index()];
    let plain = Layout::contiguous(&draft.graph.node(anchor).shape);
    if !draft.views[anchor.index()].is_contiguous() {
        return None;
    }
    let base = draft.views[anchor.index()].layout.offset.clone();
    let mut seen = view.clone();
    seen.layout.offset = seen.layout.offset - base;
    let _ = plain;
    let body = Body {
        space: view.shape.clone(),
        inputs: Vec::new(),
        values: vec![Value::Anchor(0)],
        outputs: vec![(view.clone(), 0)],
    };
    segment(draft, anchor, body, vec![seen])
}

/// Puts a body into the index space of the anchor's kernel, with the range of columns it takes.
fn segment(draft: &Draft, anchor: NodeId, body: Body, seen: Vec<View>) -> Option<Made> {
    let node = draft.graph.node(anchor);
    let (reads, writes) = (body.reads(), body.writes());
    if body.outputs.is_empty() || writes.iter().any(|tensor| reads.contains(tensor)) {
        return None;
    }
    if !matches!(node.op, Op::Linear) {
        let [only] = &seen[..] else { return None };
        let plain = Layout::contiguous(&body.space);
        if only.layout != plain {
            return None;
        }
        let strides = body.views().map(|view| view.layout.strides.to_vec()).collect();
        let one = || Dim::new(1);
        let made = SegmentBody {
            body,
            strides,
            anchors: 1,
            first_row: Dim::new(0),
            sizes: [one(), one()],
            steps: [one(), one()],
            distance: Dim::new(0),
        };
        return Some((made, (0, 1)));
    }
    linear_segment(draft, anchor, body, seen)
}

/// For a product with a weight matrix: which rows of the weight meet in each evaluation.
fn linear_segment(
    draft: &Draft,
    anchor: NodeId,
    mut body: Body,
    mut seen: Vec<View>,
) -> Option<Made> {
    let shape = &draft.graph.node(anchor).shape;
    let n = shape.dims().last()?;
    let lead = &shape.dims()[..shape.rank() - 1];
    let m = lead.iter().cloned().fold(Dim::new(1), |a, b| a * b);
    // The anchor with the lower rows is the first.
    if let [a, b] = &seen[..]
        && b.layout.offset.as_const()? < a.layout.offset.as_const()?
    {
        seen.swap(0, 1);
        for value in &mut body.values {
            if let Value::Anchor(i) = value {
                *i = 1 - *i;
            }
        }
    }
    let first = seen.first()?.layout.offset.as_const()?;
    let last = seen.last()?.layout.offset.as_const()?;
    let columns = n.as_const()?;
    if seen.len() > 2 || seen.iter().any(|v| v.layout.strides != seen[0].layout.strides) {
        return None;
    }
    // Rows of x do not merge with columns: a layout without columns keeps them apart.
    let mut only_rows = seen[0].layout.clone();
    for stride in &mut only_rows.strides {
        if stride.as_const().is_some_and(|s| s < columns) {
            *stride = Dim::new(0);
        }
    }
    let merged = body.merged(&[only_rows, seen[0].layout.clone()]);
    let own = merged.strides.last()?;
    // One dimension for the rows of x, where there are several, then at most two of columns.
    let rows = match own.first() {
        Some(stride) if stride == n && merged.sizes[0] == m => 1,
        _ if m.is(1) => 0,
        _ => return None,
    };
    let count = merged.sizes.len() - rows;
    if count > 2 || own[rows..].iter().any(|stride| stride.as_const().is_none_or(|s| s <= 0)) {
        return None;
    }
    let mut sizes = [Dim::new(1), Dim::new(1)];
    let mut steps = [Dim::new(1), Dim::new(1)];
    for d in 0..count {
        sizes[2 - count + d] = merged.sizes[rows + d].clone();
        steps[2 - count + d] = own[rows + d].clone();
    }
    let mut extent = last;
    for (size, step) in sizes.iter().zip(&steps) {
        extent += (size.as_const()? - 1) * step.as_const()?;
    }
    if first < 0 || extent >= columns {
        return None;
    }
    let zero = || Dim::new(0);
    let three = |strides: &Vec<Dim>| {
        let row = if rows == 1 { strides[0].clone() } else { zero() };
        let mut all = vec![row, zero(), zero()];
        for d in 0..count {
            all[3 - count + d] = strides[rows + d].clone();
        }
        all
    };
    let strides = merged.strides[..body.views().count()].iter().map(three).collect();
    let made = SegmentBody {
        body,
        strides,
        anchors: seen.len() as u32,
        first_row: Dim::new(first),
        sizes,
        steps,
        distance: Dim::new(last - first),
    };
    Some((made, (first as u64, extent as u64 + 1)))
}
