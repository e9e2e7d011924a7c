//! Expression builder: from the nodes of a group to the body of one kernel.
//!
//! A value is traced from the group's outputs back to its inputs. Views and broadcasts on the way
//! are collected in a [`Chain`] and finally applied to the memory that is read. So a transpose or a
//! slice between two nodes is free, if strides can express it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::base::{DType, Dim, Format, Layout, Shape};
use crate::engine::{Body, View};
use crate::ir::{BinaryOp, Node, NodeId, Op, ReduceOp, RopePairs, UnaryOp};
use crate::kernel::Value;
use crate::plan::alias::{reshaped, seen_as};
use crate::plan::builder::PlanBuilder;

/// The index space of rows along which reductions run.
#[derive(Clone, PartialEq)]
pub(super) struct RowSpace {
    /// Shape of the reduced operand.
    from: Shape,
    /// Axes of `from`: the kept ones, then the reduced ones.
    order: Vec<usize>,
    /// Number of reduced axes.
    reduced: usize,
    /// The space: the kept axes, and one for all reduced ones.
    pub(super) space: Shape,
}

impl RowSpace {
    fn new(from: &Shape, axes: &[usize]) -> RowSpace {
        let rank = from.rank();
        let kept = (0..rank).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let stay = rank - axes.len();
        let len = axes.iter().fold(Dim::new(1), |len, axis| len * from[*axis].clone());
        let space = order[..stay].iter().map(|axis| from[*axis].clone()).chain([len]).collect();
        RowSpace { from: from.clone(), order, reduced: axes.len(), space }
    }

    /// Returns the row space of a node that reduces rows, or `None` for other nodes.
    pub(super) fn of(builder: &PlanBuilder, node: &Node) -> Option<RowSpace> {
        let from = || &builder.graph.node(node.inputs[0]).shape;
        match &node.op {
            Op::Reduce { axes, .. } => Some(RowSpace::new(from(), axes)),
            Op::Softmax | Op::RmsNorm { .. } | Op::LayerNorm { .. } => {
                Some(RowSpace::new(from(), &[from().rank().checked_sub(1)?]))
            }
            _ => None,
        }
    }

    /// Returns the shape of one value per row, with size 1 for reduced axes.
    fn keep(&self) -> Shape {
        let reduced = &self.order[self.order.len() - self.reduced..];
        let dims = self.from.dims().iter().enumerate();
        dims.map(|(i, d)| if reduced.contains(&i) { Dim::new(1) } else { d.clone() }).collect()
    }

    /// Maps a view of shape `from` to the space; `None` if strides cannot express it.
    fn embed(&self, view: &View) -> Option<View> {
        let mut moved = view.clone();
        moved.shape = self.order.iter().map(|axis| view.shape[*axis].clone()).collect();
        let strides = self.order.iter().map(|axis| view.layout.strides[*axis].clone());
        moved.layout.strides = strides.collect();
        moved.layout = reshaped(&moved, &self.space)?;
        moved.shape = self.space.clone();
        Some(moved)
    }
}

/// The views between a node and the index space; the first link is applied first.
pub(super) enum Chain {
    /// The node's shape is the space.
    Space,
    Link(Link, Rc<Chain>),
}

pub(super) enum Link {
    /// Seen through an alias node.
    Alias(NodeId),
    Broadcast(Shape),
    Reshape(Shape),
    Rows,
    /// The first or the second elements of the rotated pairs along the last axis.
    Lane(RopePairs, usize),
}

fn link(link: Link, then: &Rc<Chain>) -> Rc<Chain> {
    Rc::new(Chain::Link(link, then.clone()))
}

/// Adds a reshape to a chain. Only the last of consecutive reshapes matters.
fn reshape(shape: &Shape, then: &Rc<Chain>, builder: &PlanBuilder) -> Rc<Chain> {
    match &**then {
        Chain::Link(Link::Reshape(_), _) => then.clone(),
        Chain::Link(Link::Alias(id), next) => match &builder.graph.node(*id).op {
            Op::Reshape(to) => reshape(to, next, builder),
            _ => link(Link::Reshape(shape.clone()), then),
        },
        _ => link(Link::Reshape(shape.clone()), then),
    }
}

/// Traces the values of one group. Methods return a value as its index in `values`.
pub(super) struct Trace<'d, 'a> {
    builder: &'d PlanBuilder<'a>,
    members: &'d HashSet<NodeId>,
    space: Shape,
    rows: Option<RowSpace>,
    /// The anchor whose result is in registers, and the views of that result.
    anchor: Option<(NodeId, Vec<View>)>,
    inputs: Vec<View>,
    values: Vec<Value>,
    known: HashMap<Value, u32>,
    memo: HashMap<(NodeId, Layout), u32>,
}

/// Maximum values of a body; longer bodies are split into several kernels.
const MOST_VALUES: usize = 96;

impl<'d, 'a> Trace<'d, 'a> {
    pub(super) fn new(
        builder: &'d PlanBuilder<'a>,
        members: &'d HashSet<NodeId>,
        space: Shape,
        rows: Option<RowSpace>,
    ) -> Trace<'d, 'a> {
        Trace {
            builder,
            members,
            space,
            rows,
            anchor: None,
            inputs: Vec::new(),
            values: Vec::new(),
            known: HashMap::new(),
            memo: HashMap::new(),
        }
    }

    /// Traces work fused with an anchor, whose result is in registers.
    pub(super) fn fusion(mut self, anchor: NodeId) -> Trace<'d, 'a> {
        self.anchor = Some((anchor, Vec::new()));
        self
    }

    /// Returns the body that writes these values, and its views of the anchor's result.
    pub(super) fn finish(self, outputs: Vec<(View, u32)>) -> (Body, Vec<View>) {
        let Trace { space, inputs, values, anchor, .. } = self;
        (Body { space, inputs, values, outputs }, anchor.map_or_else(Vec::new, |(_, views)| views))
    }

    /// Returns the chain from an output of this shape to the space, or `None` if there is none.
    pub(super) fn root(&self, shape: &Shape) -> Option<Rc<Chain>> {
        let end = Rc::new(Chain::Space);
        let Some(rows) = &self.rows else {
            return match shape == &self.space {
                true => Some(end),
                false if shape.elements() == self.space.elements() => {
                    Some(link(Link::Reshape(self.space.clone()), &end))
                }
                false => None,
            };
        };
        let embed = link(Link::Rows, &end);
        if shape == &rows.from {
            return Some(embed);
        }
        if shape.elements() == rows.from.elements() {
            return Some(link(Link::Reshape(rows.from.clone()), &embed));
        }
        (shape.elements() == rows.keep().elements()).then(|| self.row(&embed))
    }

    /// Returns the chain from one value per row to the space.
    fn row(&self, embed: &Rc<Chain>) -> Rc<Chain> {
        let Some(rows) = &self.rows else { return embed.clone() };
        let wide = link(Link::Broadcast(rows.from.clone()), embed);
        link(Link::Reshape(rows.keep()), &wide)
    }

    /// Maps a view of a node to the space; `None` if strides cannot express it.
    pub(super) fn seen(&self, view: &View, mut chain: &Rc<Chain>) -> Option<View> {
        let mut view = view.clone();
        loop {
            let (link, next) = match &**chain {
                Chain::Space => return Some(view),
                Chain::Link(link, next) => (link, next),
            };
            view = match link {
                Link::Alias(id) => seen_as(&view, self.builder.graph.node(*id))?,
                Link::Broadcast(shape) => View {
                    layout: view.layout.broadcast(&view.shape, shape),
                    shape: shape.clone(),
                    ..view
                },
                Link::Reshape(shape) if *shape == view.shape => view,
                Link::Reshape(shape) => {
                    View { layout: reshaped(&view, shape)?, shape: shape.clone(), ..view }
                }
                Link::Rows => self.rows.as_ref()?.embed(&view)?,
                Link::Lane(pairs, lane) => super::epilogues::lane(&view, *pairs, *lane)?,
            };
            chain = next;
        }
    }

    /// Returns the layout in which the space visits row-major elements of this shape.
    fn walk(&self, shape: &Shape, chain: &Rc<Chain>) -> Option<Layout> {
        let plain = View::whole(
            crate::engine::TensorId(u32::MAX),
            shape.clone(),
            DType::F32,
            Format::Plain(DType::F32),
        );
        let mut seen = self.seen(&plain, chain)?;
        for (stride, size) in seen.layout.strides.iter_mut().zip(seen.shape.dims()) {
            if size.is(1) {
                *stride = Dim::new(0);
            }
        }
        Some(seen.layout)
    }

    /// Converts a value per row to a value per element if the output repeats it along rows: a
    /// kernel writes a row value only once.
    pub(super) fn for_output(&mut self, value: u32, to: &View) -> Option<u32> {
        let repeated = to.layout.strides.last().is_some_and(|stride| !stride.is(0));
        if self.rows.is_none() || !repeated || self.of_element(value) {
            return Some(value);
        }
        let index = self.push(Value::Index)?;
        let always = self.binary(BinaryOp::Eq, index, index)?;
        self.push(Value::Select(always, value, value))
    }

    fn of_element(&self, value: u32) -> bool {
        let value = self.values[value as usize];
        match value {
            Value::Input(i) => {
                let mut strides = self.inputs[i as usize].layout.strides.iter();
                !strides.all(|stride| stride.is(0))
            }
            Value::Index | Value::Anchor(_) => true,
            Value::Reduce(..) => false,
            _ => value.operands().any(|operand| self.of_element(operand)),
        }
    }

    pub(super) fn push(&mut self, value: Value) -> Option<u32> {
        if let Some(known) = self.known.get(&value) {
            return Some(*known);
        }
        if self.values.len() >= MOST_VALUES {
            return None;
        }
        self.values.push(value);
        let at = (self.values.len() - 1) as u32;
        self.known.insert(value, at);
        Some(at)
    }

    fn float(&mut self, value: f32) -> Option<u32> {
        self.push(Value::Constant(DType::F32, value.to_bits()))
    }

    fn unary(&mut self, op: UnaryOp, a: u32) -> Option<u32> {
        self.push(Value::Unary(op, a))
    }

    fn binary(&mut self, op: BinaryOp, a: u32, b: u32) -> Option<u32> {
        self.push(Value::Binary(op, a, b))
    }

    /// Returns the value of an input view, which is added if it is new.
    pub(super) fn input(&mut self, view: View) -> Option<u32> {
        let Format::Plain(stored) = view.format else { return None };
        if stored != view.dtype {
            // A weight in a two-byte format has elements of f32.
            let view = View { dtype: stored, ..view };
            let value = self.input(view)?;
            return self.push(Value::Cast(DType::F32, value));
        }
        // Work fused into a catalogue kernel reads words.
        if view.dtype.is_half() && self.anchor.is_some() {
            return None;
        }
        let same = |v: &View| v.tensor == view.tensor && v.layout == view.layout;
        let place = match self.inputs.iter().position(same) {
            Some(place) => place,
            None => {
                self.inputs.push(view);
                self.inputs.len() - 1
            }
        };
        self.push(Value::Input(place as u32))
    }

    /// Returns the value of a node at each index of the space.
    pub(super) fn value(&mut self, id: NodeId, chain: &Rc<Chain>) -> Option<u32> {
        let builder = self.builder;
        let node = builder.graph.node(id);
        if let Op::Constant { words } = &node.op
            && let [word] = words[..]
        {
            return self.push(Value::Constant(node.dtype, word));
        }
        if matches!(&self.anchor, Some((anchor, _)) if *anchor == id) {
            return self.taken(node, chain);
        }
        let is_alias =
            node.op.class() == crate::ir::OpClass::Alias && !builder.copies.contains(&id);
        if is_alias {
            let chain = match &node.op {
                Op::Reshape(shape) => reshape(shape, chain, builder),
                _ => link(Link::Alias(id), chain),
            };
            return self.value(node.inputs[0], &chain);
        }
        if !self.members.contains(&id) {
            return self.leaf(id, chain);
        }
        let key = (id, self.walk(&node.shape, chain)?);
        if let Some(known) = self.memo.get(&key) {
            return Some(*known);
        }
        let value = self.computed(node, chain)?;
        self.memo.insert(key, value);
        Some(value)
    }

    /// Returns the value of a node outside of the group, which is read from memory.
    fn leaf(&mut self, id: NodeId, chain: &Rc<Chain>) -> Option<u32> {
        let view = self.seen(&self.builder.views[id.index()], chain)?;
        self.input(view)
    }

    /// Returns the value of the anchor's result.
    fn taken(&mut self, node: &Node, chain: &Rc<Chain>) -> Option<u32> {
        let plain = View::whole(
            crate::engine::TensorId(u32::MAX),
            node.shape.clone(),
            node.dtype,
            Format::Plain(node.dtype),
        );
        let view = self.seen(&plain, chain)?;
        let (_, views) = self.anchor.as_mut()?;
        let place = match views.iter().position(|v| v.layout == view.layout) {
            Some(place) => place,
            None => {
                views.push(view);
                views.len() - 1
            }
        };
        self.push(Value::Anchor(place as u32))
    }

    /// Returns the value of a node of the group.
    fn computed(&mut self, node: &Node, chain: &Rc<Chain>) -> Option<u32> {
        match &node.op {
            Op::Unary(op) => {
                let [a] = self.operands(node, chain)?;
                self.unary(*op, a)
            }
            Op::Binary(op) => {
                let [a, b] = self.operands(node, chain)?;
                self.binary(*op, a, b)
            }
            Op::Select => {
                let [c, a, b] = self.operands(node, chain)?;
                self.push(Value::Select(c, a, b))
            }
            Op::Cast(dtype) => {
                let [mut a] = self.operands(node, chain)?;
                let from = self.builder.graph.node(node.inputs[0]).dtype;
                // f16 and bf16 convert to and from f32 only.
                if (from.is_half() || dtype.is_half()) && from != DType::F32 {
                    a = self.push(Value::Cast(DType::F32, a))?;
                }
                self.push(Value::Cast(*dtype, a))
            }
            Op::Reduce { op, .. } => self.reduction(node, *op, chain),
            Op::Softmax => self.softmax(node, chain),
            Op::RmsNorm { eps } => self.rms_norm(node, *eps, chain),
            Op::LayerNorm { eps } => self.layer_norm(node, *eps, chain),
            _ => None,
        }
    }

    fn operands<const N: usize>(&mut self, node: &Node, chain: &Rc<Chain>) -> Option<[u32; N]> {
        let mut values = [0; N];
        for (value, input) in values.iter_mut().zip(&node.inputs) {
            *value = match self.builder.graph.node(*input).shape == node.shape {
                true => self.value(*input, chain)?,
                false => self.value(*input, &link(Link::Broadcast(node.shape.clone()), chain))?,
            };
        }
        Some(values)
    }

    /// Returns the shape of a row operation's operand and the chain from it, if the operation's
    /// result is visited in the order of rows.
    fn row_operand(
        &self,
        node: &Node,
        chain: &Rc<Chain>,
        of_row: bool,
    ) -> Option<(Shape, Rc<Chain>)> {
        let rows = self.rows.as_ref()?;
        if Some(rows) != RowSpace::of(self.builder, node).as_ref() {
            return None;
        }
        let embed = link(Link::Rows, &Rc::new(Chain::Space));
        let usual = if of_row { self.row(&embed) } else { embed.clone() };
        if self.walk(&node.shape, chain)? != self.walk(&node.shape, &usual)? {
            return None;
        }
        Some((rows.from.clone(), embed))
    }

    fn reduction(&mut self, node: &Node, op: ReduceOp, chain: &Rc<Chain>) -> Option<u32> {
        let (_, embed) = self.row_operand(node, chain, true)?;
        if node.dtype != DType::F32 {
            return None;
        }
        let x = self.value(node.inputs[0], &embed)?;
        self.push(Value::Reduce(op, x))
    }

    /// Expands a softmax. A row that is all -inf becomes zeros, as [`Op::Softmax`] specifies.
    fn softmax(&mut self, node: &Node, chain: &Rc<Chain>) -> Option<u32> {
        let (_, embed) = self.row_operand(node, chain, false)?;
        let x = self.value(node.inputs[0], &embed)?;
        let largest = self.push(Value::Reduce(ReduceOp::Max, x))?;
        let lowest = self.float(f32::NEG_INFINITY)?;
        let zero = self.float(0.0)?;
        let nothing = self.binary(BinaryOp::Eq, largest, lowest)?;
        let shift = self.push(Value::Select(nothing, zero, largest))?;
        let below = self.binary(BinaryOp::Sub, x, shift)?;
        let e = self.unary(UnaryOp::Exp, below)?;
        let sum = self.push(Value::Reduce(ReduceOp::Sum, e))?;
        let one = self.float(1.0)?;
        let divisor = self.push(Value::Select(nothing, one, sum))?;
        let factor = self.unary(UnaryOp::Reciprocal, divisor)?;
        self.binary(BinaryOp::Mul, e, factor)
    }

    fn rms_norm(&mut self, node: &Node, eps: f32, chain: &Rc<Chain>) -> Option<u32> {
        let (from, embed) = self.row_operand(node, chain, false)?;
        let x = self.value(node.inputs[0], &embed)?;
        let weight = self.value(node.inputs[1], &link(Link::Broadcast(from), &embed))?;
        let square = self.binary(BinaryOp::Mul, x, x)?;
        let factor = self.rsqrt_mean(square, eps)?;
        let normal = self.binary(BinaryOp::Mul, x, factor)?;
        self.binary(BinaryOp::Mul, normal, weight)
    }

    fn layer_norm(&mut self, node: &Node, eps: f32, chain: &Rc<Chain>) -> Option<u32> {
        let (from, embed) = self.row_operand(node, chain, false)?;
        let x = self.value(node.inputs[0], &embed)?;
        let wide = link(Link::Broadcast(from), &embed);
        let weight = self.value(node.inputs[1], &wide)?;
        let bias = self.value(node.inputs[2], &wide)?;
        let mean = self.push(Value::Reduce(ReduceOp::Mean, x))?;
        let centred = self.binary(BinaryOp::Sub, x, mean)?;
        let square = self.binary(BinaryOp::Mul, centred, centred)?;
        let factor = self.rsqrt_mean(square, eps)?;
        let normal = self.binary(BinaryOp::Mul, centred, factor)?;
        let scaled = self.binary(BinaryOp::Mul, normal, weight)?;
        self.binary(BinaryOp::Add, scaled, bias)
    }

    fn rsqrt_mean(&mut self, square: u32, eps: f32) -> Option<u32> {
        let mean = self.push(Value::Reduce(ReduceOp::Mean, square))?;
        let eps = self.float(eps)?;
        let sum = self.binary(BinaryOp::Add, mean, eps)?;
        self.unary(UnaryOp::Rsqrt, sum)
    }

    /// Returns the two elements of each rotated pair, over the space `[tokens, heads, pairs]`.
    pub(super) fn rotation(&mut self, x: [u32; 2], angle: u32) -> Option<[u32; 2]> {
        let cos = self.unary(UnaryOp::Cos, angle)?;
        let sin = self.unary(UnaryOp::Sin, angle)?;
        let [a, b] = x;
        let (a_cos, b_sin) =
            (self.binary(BinaryOp::Mul, a, cos)?, self.binary(BinaryOp::Mul, b, sin)?);
        let (a_sin, b_cos) =
            (self.binary(BinaryOp::Mul, a, sin)?, self.binary(BinaryOp::Mul, b, cos)?);
        Some([self.binary(BinaryOp::Sub, a_cos, b_sin)?, self.binary(BinaryOp::Add, a_sin, b_cos)?])
    }

    /// Returns the angle of a rotation: the position converted to `f32`, times the frequency.
    pub(super) fn angle(&mut self, position: View, frequency: View) -> Option<u32> {
        let position = self.input(position)?;
        let position = self.push(Value::Cast(DType::F32, position))?;
        let frequency = self.input(frequency)?;
        self.binary(BinaryOp::Mul, position, frequency)
    }
}
