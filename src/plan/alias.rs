//! The pass `alias`: gives every result memory. Views need none of their own.
//!
//! Every node that computes gets a tensor. Reshapes, transposes, slices and expands become strides
//! over the tensor of their operand. A reshape that strides cannot express becomes a copy. The rows
//! that an update writes to a state are computed in the state's own tensor if nothing else reads
//! them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::builder::PlanBuilder;
use crate::base::{Dim, Format, Layout, Shape};
use crate::broken_invariant;
use crate::engine::{Tensor, TensorId, TensorRole, View, tensor_bytes};
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, NodeId, Op, OpClass};
use crate::provider::GRANULE;

pub(super) fn alias(builder: &mut PlanBuilder) -> Result<()> {
    let mut states: HashMap<NodeId, View> = HashMap::new();
    for id in builder.graph.ids().collect::<Vec<_>>() {
        let node = builder.graph.node(id).clone();
        if let Op::State { name } = &node.op {
            let view = new_tensor(builder, id, &node, TensorRole::State(name.clone()))?;
            states.insert(id, view);
        }
    }
    let written_in_place = updates_in_place(&builder.graph);
    builder.absorbed = written_in_place.values().map(|update| update.update).collect();
    let ids: Vec<NodeId> = builder.graph.ids().collect();
    for id in ids {
        let node = builder.graph.node(id).clone();
        let view = match &node.op {
            _ if written_in_place.contains_key(&id) => {
                in_state(&states, &written_in_place[&id], &node)
            }
            Op::State { .. } => states[&id].clone(),
            Op::Input { name } => new_tensor(builder, id, &node, TensorRole::Input(name.clone()))?,
            Op::Weight { name, format } => {
                weight(builder, &node, name.clone(), TensorRole::Weight(name.clone()), *format)?
            }
            Op::Merged { parts, format } => {
                let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
                weight(builder, &node, names.join("+"), TensorRole::Merged(names), *format)?
            }
            Op::Constant { words } => constant(builder, &node, words),
            Op::Update { .. } | Op::Scatter => {
                let state = &builder.views[node.inputs[0].index()];
                let format = Format::Plain(node.dtype);
                View::whole(state.tensor, node.shape.clone(), node.dtype, format)
            }
            Op::Reshape(_) | Op::Transpose(_) | Op::Slice { .. } | Op::Expand(_) => {
                let operand = &builder.views[node.inputs[0].index()];
                match seen_as(operand, &node) {
                    Some(view) => view,
                    None => {
                        builder.copies.push(id);
                        new_tensor(builder, id, &node, TensorRole::Intermediate)?
                    }
                }
            }
            _ => new_tensor(builder, id, &node, TensorRole::Intermediate)?,
        };
        builder.views.push(view);
    }
    Ok(())
}

/// An update of a state whose new part can be computed in place.
struct InPlace {
    state: NodeId,
    update: NodeId,
    at: Dim,
}

/// Finds the updates that need no copy, keyed by the node that computes the new part. The new part
/// (or a reshape of it) and the old state may have no reader except the update.
fn updates_in_place(graph: &Graph) -> HashMap<NodeId, InPlace> {
    let users = graph.users();
    let wanted = |id: NodeId| graph.outputs().iter().any(|(_, output)| *output == id);
    let only = |id: NodeId, user: NodeId| users[id.index()][..] == [user] && !wanted(id);
    let mut found = HashMap::new();
    for (update, node) in graph.ids().zip(graph.nodes()) {
        let Op::Update { at } = &node.op else { continue };
        let state = node.inputs[0];
        let (mut user, mut source) = (update, node.inputs[1]);
        while matches!(graph.node(source).op, Op::Reshape(_)) && only(source, user) {
            (user, source) = (source, graph.node(source).inputs[0]);
        }
        let computes = !matches!(graph.node(source).op.class(), OpClass::Leaf | OpClass::Alias)
            && !graph.node(source).op.overwrites();
        let old = matches!(graph.node(state).op, Op::State { .. }) && only(state, update);
        if computes && old && only(source, user) {
            found.insert(source, InPlace { state, update, at: at.clone() });
        }
    }
    found
}

/// Returns the view of the rows of a state that a node computes for an update.
fn in_state(states: &HashMap<NodeId, View>, to: &InPlace, node: &Node) -> View {
    let state = &states[&to.state];
    let format = Format::Plain(node.dtype);
    let mut view = View::whole(state.tensor, node.shape.clone(), node.dtype, format);
    view.layout.offset = to.at.clone() * state.layout.strides[0].clone();
    view
}

fn add(builder: &mut PlanBuilder, tensor: Tensor) -> TensorId {
    builder.tensors.push(tensor);
    TensorId((builder.tensors.len() - 1) as u32)
}

fn new_tensor(
    builder: &mut PlanBuilder,
    id: NodeId,
    node: &Node,
    role: TensorRole,
) -> Result<View> {
    let bytes = tensor_bytes(builder.class, &node.shape, node.dtype)?;
    let name = if node.label.is_empty() { id.to_string() } else { node.label.clone() };
    let tensor = add(builder, Tensor { name, role, bytes });
    Ok(View::whole(tensor, node.shape.clone(), node.dtype, Format::Plain(node.dtype)))
}

fn weight(
    builder: &mut PlanBuilder,
    node: &Node,
    name: String,
    role: TensorRole,
    format: Format,
) -> Result<View> {
    let elements = builder.class.upper(&node.shape.elements())?;
    let bytes = format.bytes(elements).ok_or_else(|| {
        let len = format.block_len();
        Error::invalid(format!("weight {name:?} of {elements} elements is not blocks of {len}"))
    })?;
    let bytes = bytes.max(1).next_multiple_of(GRANULE);
    let tensor = add(builder, Tensor { name, role, bytes });
    Ok(View::whole(tensor, node.shape.clone(), node.dtype, format))
}

fn constant(builder: &mut PlanBuilder, node: &Node, words: &[u32]) -> View {
    let bytes = (words.len().max(1) as u64 * 4).next_multiple_of(GRANULE);
    let role = TensorRole::Constant(words.to_vec());
    let name = if node.label.is_empty() { "constant".into() } else { node.label.clone() };
    let tensor = add(builder, Tensor { name, role, bytes });
    let mut view = View::whole(tensor, node.shape.clone(), node.dtype, Format::Plain(node.dtype));
    if words.len() == 1 {
        view.layout.strides.iter_mut().for_each(|stride| *stride = Dim::new(0));
    }
    view
}

/// Returns the view of `operand` through an alias node, or `None` if strides cannot express it.
pub(super) fn seen_as(operand: &View, node: &Node) -> Option<View> {
    let layout = match &node.op {
        Op::Transpose(perm) => Layout {
            offset: operand.layout.offset.clone(),
            strides: perm.iter().map(|axis| operand.layout.strides[*axis].clone()).collect(),
        },
        Op::Expand(shape) => operand.layout.broadcast(&operand.shape, shape),
        Op::Slice { axis, start, step, .. } => {
            let mut layout = operand.layout.clone();
            let stride = layout.strides[*axis].clone();
            layout.offset = layout.offset + stride.clone() * start.clone();
            layout.strides[*axis] = stride * Dim::from(*step);
            layout
        }
        Op::Reshape(shape) => reshaped(operand, shape)?,
        other => broken_invariant(format_args!("{} is not an alias", other.name())),
    };
    let packed = operand.format != Format::Plain(operand.dtype);
    // A packed weight has no addressable elements: only the whole can be aliased.
    if packed && layout != Layout::contiguous(&node.shape) {
        return None;
    }
    Some(View { layout, shape: node.shape.clone(), ..operand.clone() })
}

pub(super) fn reshaped(operand: &View, shape: &Shape) -> Option<Layout> {
    if operand.is_contiguous() {
        let mut layout = Layout::contiguous(shape);
        layout.offset = operand.layout.offset.clone();
        return Some(layout);
    }
    // To add, drop or split dimensions of a tensor with gaps, match dimensions from the
    // innermost, each of the operand's against a run of the result's.
    let mut strides: SmallVec<[Dim; 4]> = SmallVec::new();
    let mut to = shape.dims().iter().rev().peekable();
    let from = operand.shape.dims().iter().zip(&operand.layout.strides).rev();
    for (size, stride) in from.filter(|(size, _)| !size.is(1)) {
        let (mut covered, mut step) = (Dim::new(1), stride.clone());
        while covered != *size {
            let next = to.next()?;
            strides.push(step.clone());
            step = step * next.clone();
            covered = covered * next.clone();
            if matches!((covered.as_const(), size.as_const()), (Some(c), Some(s)) if c > s) {
                return None;
            }
        }
    }
    for rest in to {
        if !rest.is(1) {
            return None;
        }
        strides.push(Dim::new(0));
    }
    strides.reverse();
    Some(Layout { offset: operand.layout.offset.clone(), strides })
}
