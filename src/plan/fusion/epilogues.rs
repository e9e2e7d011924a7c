//! Epilogue fusion: segments of work on parts of an anchor's result.

use std::collections::HashSet;
use std::rc::Rc;

use super::dep_graph::Deps;
use super::expr_builder::{Chain, Link, Trace};
use super::{result, written};
use crate::base::{DType, Dim, Layout, Shape};
use crate::engine::{Body, SegmentBody, View};
use crate::ir::{NodeId, Op, RopePairs};
use crate::kernel::Value;
use crate::plan::builder::PlanBuilder;

/// A segment, and the range of columns of the anchor's result that it covers.
pub(super) type Made = (SegmentBody, (u64, u64));

/// Builds a segment of elementwise work (or of one copy into a state).
pub(super) fn elementwise(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    nodes: &[NodeId],
) -> Option<Made> {
    let members: HashSet<NodeId> = nodes.iter().copied().collect();
    let is_linear = matches!(builder.graph.node(anchor).op, Op::Linear { .. });
    let space = match is_linear {
        true => written(builder, *nodes.last()?).shape,
        false => planes(builder, anchor)?,
    };
    let mut trace = Trace::new(builder, &members, space, None).fusion(anchor);
    let mut outputs = Vec::new();
    for id in nodes {
        let inside = deps.readers[id.index()].iter().all(|reader| members.contains(reader));
        if inside && !deps.kept[id.index()] {
            continue;
        }
        let to = written(builder, *id);
        let chain = trace.root(&to.shape)?;
        let value = trace.value(result(builder, *id), &chain)?;
        outputs.push((trace.seen(&to, &chain)?, value));
    }
    let (body, seen) = trace.finish(outputs);
    segment(builder, anchor, body, seen)
}

/// Returns the three dimensions of the result of an anchor that is not a GEMM with a weight matrix,
/// as defined by `kernel::fusion`.
fn planes(builder: &PlanBuilder, anchor: NodeId) -> Option<Shape> {
    let node = builder.graph.node(anchor);
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

/// Returns the two-byte type that a node converts to, if it is a conversion to one.
pub(super) fn narrows(builder: &PlanBuilder, id: NodeId) -> Option<DType> {
    match builder.graph.node(id).op {
        Op::Cast(to) if to.is_half() => Some(to),
        _ => None,
    }
}

/// Returns the first or second elements (`lane` 0 or 1) of the pairs along the last axis of a view.
pub(super) fn lane(view: &View, pairs: RopePairs, lane: usize) -> Option<View> {
    let (axis, mut part) = (view.shape.rank().checked_sub(1)?, view.clone());
    let half = view.shape[axis].as_const()? / 2;
    let step = view.layout.strides[axis].clone();
    let (at, step) = match pairs {
        RopePairs::Interleaved => (step.clone() * Dim::from(lane), step * Dim::new(2)),
        RopePairs::Half => (step.clone() * Dim::from(lane) * Dim::new(half), step),
    };
    let dims = view.shape.dims().iter().take(axis).cloned();
    part.shape = dims.chain([Dim::new(half)]).collect();
    part.layout.offset = view.layout.offset.clone() + at;
    part.layout.strides[axis] = step;
    Some(part)
}

/// Builds a segment that rotates (RoPE) elementwise work on the anchor's result. The last of
/// `nodes` is the rotation, or its conversion to two bytes, and nothing else reads the others.
pub(super) fn rotation(
    builder: &PlanBuilder,
    deps: &Deps,
    anchor: NodeId,
    nodes: &[NodeId],
) -> Option<Made> {
    let (last, others) = nodes.split_last()?;
    let narrow = narrows(builder, *last);
    let (id, before) = match narrow {
        Some(_) => others.split_last()?,
        None => (last, others),
    };
    let node = builder.graph.node(*id);
    let Op::Rope { pairs, rot_dim } = node.op else { return None };
    let [x, positions, frequencies] = node.inputs[..] else { return None };
    let made = |input: &NodeId| {
        deps.producer(builder, *input).is_some_and(|from| from == anchor || before.contains(&from))
    };
    if !node.shape.dims().last()?.is(rot_dim as i64) || [positions, frequencies].iter().any(made) {
        return None;
    }
    let inside = |id: &NodeId| {
        !deps.kept[id.index()] && deps.readers[id.index()].iter().all(|r| nodes.contains(r))
    };
    if !before.iter().all(inside) || (narrow.is_some() && !inside(id)) {
        return None;
    }
    let half = rot_dim / 2;
    let space = Shape::new([node.shape[0].clone(), node.shape[1].clone(), Dim::from(half)]);
    let spread = |view: &View, shape: Shape| {
        let layout = crate::plan::alias::reshaped(view, &shape)?;
        let layout = layout.broadcast(&shape, &space);
        Some(View { layout, shape: space.clone(), ..view.clone() })
    };
    let position = &builder.views[positions.index()];
    let position = spread(position, Shape::new([node.shape[0].clone(), Dim::new(1), Dim::new(1)]))?;
    let frequency = &builder.views[frequencies.index()];
    let frequency = spread(frequency, Shape::new([Dim::new(1), Dim::new(1), Dim::from(half)]))?;
    let members: HashSet<NodeId> = before.iter().copied().collect();
    let mut trace = Trace::new(builder, &members, space.clone(), None).fusion(anchor);
    let mut pair = [0; 2];
    for (i, value) in pair.iter_mut().enumerate() {
        let chain = Chain::Link(Link::Lane(pairs, i), Rc::new(Chain::Space));
        *value = trace.value(x, &Rc::new(chain))?;
    }
    let angle = trace.angle(position, frequency)?;
    let [mut a, mut b] = trace.rotation(pair, angle)?;
    if let Some(dtype) = narrow {
        a = trace.push(Value::Cast(dtype, a))?;
        b = trace.push(Value::Cast(dtype, b))?;
    }
    let to = &builder.views[last.index()];
    let (body, seen) = trace.finish(vec![(lane(to, pairs, 0)?, a), (lane(to, pairs, 1)?, b)]);
    segment(builder, anchor, body, seen)
}

/// Builds a segment that stores the value seen at `input`.
pub(super) fn stored(builder: &PlanBuilder, anchor: NodeId, input: NodeId) -> Option<Made> {
    let view = &builder.views[input.index()];
    if !builder.views[anchor.index()].is_contiguous() {
        return None;
    }
    let base = builder.views[anchor.index()].layout.offset.clone();
    let mut seen = view.clone();
    seen.layout.offset = seen.layout.offset - base;
    let body = Body {
        space: view.shape.clone(),
        inputs: Vec::new(),
        values: vec![Value::Anchor(0)],
        outputs: vec![(view.clone(), 0)],
    };
    segment(builder, anchor, body, vec![seen])
}

/// Maps a body to the index space of the anchor's kernel; `seen` are the body's views of the
/// anchor's result. Also returns the range of columns that the segment covers.
fn segment(builder: &PlanBuilder, anchor: NodeId, body: Body, seen: Vec<View>) -> Option<Made> {
    let node = builder.graph.node(anchor);
    let (reads, writes) = (body.reads(), body.writes());
    if body.outputs.is_empty() || writes.iter().any(|tensor| reads.contains(tensor)) {
        return None;
    }
    if !matches!(node.op, Op::Linear { .. }) {
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
    linear_segment(builder, anchor, body, seen)
}

/// Same as [`segment`], for a GEMM with a weight matrix: finds the rows of the weight that each
/// evaluation combines.
fn linear_segment(
    builder: &PlanBuilder,
    anchor: NodeId,
    mut body: Body,
    mut seen: Vec<View>,
) -> Option<Made> {
    let shape = &builder.graph.node(anchor).shape;
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
    // One dimension for the rows of x, if there are several, then at most two of columns.
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
