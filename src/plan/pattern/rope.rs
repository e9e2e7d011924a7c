//! Pattern matching of rotary position embeddings (RoPE) in both pair layouts, if the tables can be
//! traced back to positions and frequencies.

use super::matcher::{Matcher, Raised};
use crate::base::{DType, Dim, Shape};
use crate::error::Result;
use crate::ir::{BinaryOp, Graph, NodeId, Op, RopePairs, UnaryOp};

/// The tables `cos` and `sin` of `position * frequency`.
struct Tables {
    positions: NodeId,
    frequencies: NodeId,
    /// The tables themselves, which other heads may read as well.
    own: [NodeId; 2],
    /// The token axis of the rotated operand.
    tokens: usize,
}

/// A table as it is read: its source, and whether each angle appears twice, in both halves.
struct Table {
    angles: NodeId,
    twice: bool,
}

/// Matches `x * cos + rotate(x) * sin`, or the same with the two parts of every pair computed
/// separately.
pub(super) fn rope(m: &Matcher, id: NodeId) -> Option<Raised> {
    let (x, pairs, tables) = rotated_half(m, id).or_else(|| joined_parts(m, id))?;
    let shape = m.shape(x);
    let rank = shape.rank();
    if shape != m.shape(id) || rank < 2 {
        return None;
    }
    let rot_dim = usize::try_from(shape[rank - 1].as_const()?).ok()?;
    // Tokens first, then all other axes as heads: `[tokens, heads, head_dim]`.
    let axes: Vec<usize> = [tables.tokens]
        .into_iter()
        .chain((0..rank - 1).filter(|axis| *axis != tables.tokens))
        .chain([rank - 1])
        .collect();
    let (tokens, dims) = (shape[tables.tokens].clone(), shape.dims().to_vec());
    let operands = [x, tables.positions, tables.frequencies];
    let mut raised = Raised::new(operands, move |new: &mut Graph, operands| {
        let turned = Shape::new(axes.iter().map(|axis| dims[*axis].clone()));
        let heads = turned.dims()[1..axes.len() - 1].iter().cloned();
        let heads = heads.fold(Dim::new(1), |product, dim| product * dim);
        let three = Shape::new([tokens.clone(), heads, Dim::from(rot_dim)]);
        let mut back = axes.clone();
        axes.iter().enumerate().for_each(|(to, from)| back[*from] = to);
        let x = new.add(Op::Transpose(axes.clone()), &[operands[0]])?;
        let x = new.add(Op::Reshape(three), &[x])?;
        let positions = flat(new, operands[1], &tokens)?;
        let frequencies = flat(new, operands[2], &Dim::from(rot_dim / 2))?;
        let y = new.add(Op::Rope { pairs, rot_dim }, &[x, positions, frequencies])?;
        let y = new.add(Op::Reshape(turned), &[y])?;
        new.add(Op::Transpose(back), &[y])
    });
    raised.shared = tables.own.to_vec();
    Some(raised)
}

fn flat(new: &mut Graph, id: NodeId, len: &Dim) -> Result<NodeId> {
    new.add(Op::Reshape(Shape::new([len.clone()])), &[id])
}

/// Matches `concat(rope(x[.., ..r]), x[.., r..])`: elements from `rot_dim` on are unchanged.
pub(super) fn partial(m: &Matcher, id: NodeId) -> Option<Raised> {
    let [turned, rest] = concat_of_two(m, id)?;
    let Op::Rope { pairs, rot_dim } = *m.op(turned) else { return None };
    let [head, positions, frequencies] = m.node(turned).inputs[..] else { return None };
    let (x, start, _) = slice_of_last(m, head, 1)?;
    let (other, from, _) = slice_of_last(m, rest, 1)?;
    let fits = x == other && start.is(0) && from == Dim::from(rot_dim);
    let operands = [x, positions, frequencies];
    (fits && m.shape(x) == m.shape(id)).then(|| {
        Raised::new(operands, move |new, operands| new.add(Op::Rope { pairs, rot_dim }, operands))
    })
}

type Match = Option<(NodeId, RopePairs, Tables)>;

/// Matches `x * cos + concat(-x2, x1) * sin`, where `x` is `concat(x1, x2)`.
fn rotated_half(m: &Matcher, id: NodeId) -> Match {
    m.either(id, BinaryOp::Add).find_map(|[straight, crossed]| {
        let (first, second, sin) = m.either(crossed, BinaryOp::Mul).find_map(|[turned, sin]| {
            let [minus, first] = concat_of_two(m, turned)?;
            Some((first, m.unary(minus, UnaryOp::Neg)?, sin))
        })?;
        let halves = |x: NodeId| {
            let (of, start, len, step) = range_of_last(m, x)?;
            let half = m.shape(first).dims().last()?.clone();
            let part = |begin: Dim| Some((of, begin, half.clone(), step));
            let second_start = start.clone() + half.clone() * Dim::from(step);
            let both = range_of_last(m, first) == part(start)
                && range_of_last(m, second) == part(second_start);
            (both && len == half.clone() * Dim::new(2)).then_some(())
        };
        let mut products = m.either(straight, BinaryOp::Mul);
        let [x, cos] = products.find(|[x, _]| halves(*x).is_some())?;
        let tables = tables(m, [cos, sin], m.shape(id).dims(), true)?;
        Some((x, RopePairs::Half, tables))
    })
}

/// Matches `concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)`; for pairs of neighbours, the parts
/// are stacked.
fn joined_parts(m: &Matcher, id: NodeId) -> Match {
    let (joined, stacked) = match m.op(id) {
        Op::Reshape(_) => (m.input(id)?, true),
        _ => (id, false),
    };
    let [low, high] = concat_of_two(m, joined)?;
    let [x1_cos, x2_sin] = m.binary(m.unshaped(low), BinaryOp::Sub)?;
    let (x1, x2, cos, sin) = m.either(x1_cos, BinaryOp::Mul).find_map(|[x1, cos]| {
        m.either(x2_sin, BinaryOp::Mul).find_map(|[x2, sin]| {
            let same = |id: NodeId, a: NodeId, b: NodeId| {
                m.either(id, BinaryOp::Mul).any(|pair| pair == [a, b])
            };
            let crossed = m
                .either(m.unshaped(high), BinaryOp::Add)
                .any(|[a, b]| same(a, x2, cos) && same(b, x1, sin));
            crossed.then_some((x1, x2, cos, sin))
        })
    })?;
    let (x, pairs) = if stacked { neighbours(m, x1, x2)? } else { halves(m, x1, x2)? };
    let one_wide = |id: NodeId| m.shape(id).dims().last().is_some_and(|dim| dim.is(1));
    let fits = !stacked || one_wide(low) && one_wide(high);
    // The parts of a stack may end in an axis of size one, as their tables then do.
    let mut dims = m.shape(x1_cos).dims();
    if dims.len() > m.shape(x).rank() {
        dims = &dims[..dims.len() - 1];
    }
    let tables = tables(m, [cos, sin], dims, false).filter(|_| fits)?;
    Some((x, pairs, tables))
}

/// Returns the operands of a concatenation of two tensors along the last axis.
fn concat_of_two(m: &Matcher, id: NodeId) -> Option<[NodeId; 2]> {
    let Op::Concat { axis } = m.op(id) else { return None };
    let [a, b] = m.node(id).inputs[..] else { return None };
    (*axis + 1 == m.shape(id).rank()).then_some([a, b])
}

/// Matches a slice along the last axis with step `want`; returns its operand, start and length.
fn slice_of_last(m: &Matcher, id: NodeId, want: u64) -> Option<(NodeId, Dim, Dim)> {
    let Op::Slice { axis, start, len, step } = m.op(id) else { return None };
    let fits = *axis + 1 == m.shape(id).rank() && *step == want;
    fits.then_some((m.input(id)?, start.clone(), len.clone()))
}

/// Returns a strided range of the last axis, or all of it: operand, start, length, step.
fn range_of_last(m: &Matcher, id: NodeId) -> Option<(NodeId, Dim, Dim, u64)> {
    match m.op(id) {
        Op::Slice { axis, start, len, step } if *axis + 1 == m.shape(id).rank() => {
            Some((m.input(id)?, start.clone(), len.clone(), *step))
        }
        _ => Some((id, Dim::new(0), m.shape(id).dims().last()?.clone(), 1)),
    }
}

/// Returns the tensor whose halves along the last axis are these two nodes.
fn halves(m: &Matcher, first: NodeId, second: NodeId) -> Option<(NodeId, RopePairs)> {
    let (x, a, len) = slice_of_last(m, first, 1)?;
    let (y, b, other) = slice_of_last(m, second, 1)?;
    let all = m.shape(x).dims().last()?;
    let whole = x == y && len == other && *all == len.clone() * Dim::new(2);
    (whole && a.is(0) && b == len).then_some((x, RopePairs::Half))
}

/// Returns the tensor whose alternate elements are these two nodes: slices in steps of two, or the
/// columns of `[.., n, 2]`.
fn neighbours(m: &Matcher, first: NodeId, second: NodeId) -> Option<(NodeId, RopePairs)> {
    let [first, second] = [m.unshaped(first), m.unshaped(second)];
    if let Some((x, a, len)) = slice_of_last(m, first, 2) {
        let (y, b, other) = slice_of_last(m, second, 2)?;
        let all = m.shape(x).dims().last()?;
        let whole = x == y && len == other && *all == len * Dim::new(2);
        return (whole && a.is(0) && b.is(1)).then_some((x, RopePairs::Interleaved));
    }
    let (x, a, len) = slice_of_last(m, first, 1)?;
    let (y, b, _) = slice_of_last(m, second, 1)?;
    let (last, lead) = m.shape(x).dims().split_last()?;
    let columns = x == y && last.is(2) && len.is(1) && a.is(0) && b.is(1);
    let Op::Reshape(_) = m.op(x) else { return None };
    let (whole, n) = (m.input(x)?, lead.last()?);
    let (all, rest) = m.shape(whole).dims().split_last()?;
    let split = *all == n.clone() * Dim::new(2) && *rest == lead[..lead.len() - 1];
    (columns && split).then_some((whole, RopePairs::Interleaved))
}

/// Matches both tables, if they fit an operand of the sizes `dims`; `twice` is that of [`Table`].
fn tables(m: &Matcher, own: [NodeId; 2], dims: &[Dim], twice: bool) -> Option<Tables> {
    let [cos, sin] =
        [(own[0], UnaryOp::Cos), (own[1], UnaryOp::Sin)].map(|(id, op)| table(m, id, op));
    let (cos, sin) = (cos?, sin?);
    if cos.angles != sin.angles || cos.twice != twice || sin.twice != twice {
        return None;
    }
    let (positions, frequencies) = angles(m, cos.angles)?;
    let count = m.shape(positions).elements();
    let columns = m.shape(frequencies).elements() * Dim::new(if twice { 2 } else { 1 });
    let (last, lead) = dims.split_last()?;
    let tokens = own.map(|id| {
        let mut shape = m.shape(id).dims();
        if shape.len() > dims.len() || shape.last()?.is(1) && !last.is(1) {
            shape = &shape[..shape.len() - 1];
        }
        let (width, rows) = shape.split_last()?;
        let axis = (0..lead.len()).find(|axis| {
            // Aligns the table with the sizes from the innermost, as broadcasting does.
            let size = |i: usize| (i + rows.len()).checked_sub(lead.len()).map(|j| &rows[j]);
            lead[*axis] == count
                && (0..lead.len()).all(|i| match size(i) {
                    Some(dim) if i == *axis => *dim == count,
                    None if i == *axis => count.is(1),
                    size => size.is_none_or(|dim| dim.is(1)),
                })
        });
        axis.filter(|_| width == last && *last == columns)
    });
    let axis = tokens[0].filter(|axis| tokens[1] == Some(*axis))?;
    Some(Tables { positions, frequencies, own, tokens: axis })
}

/// Matches a table `f(angles)`, in which the angles appear once, or twice side by side.
fn table(m: &Matcher, id: NodeId, f: UnaryOp) -> Option<Table> {
    let id = m.unshaped(id);
    let twin = |id: NodeId| concat_of_two(m, id).and_then(|[a, b]| (a == b).then_some(a));
    if let Some(once) = twin(id) {
        let angles = m.unshaped(m.unary(m.unshaped(once), f)?);
        return Some(Table { angles, twice: true });
    }
    let angles = m.unshaped(m.unary(id, f)?);
    Some(match twin(angles) {
        Some(once) => Table { angles: m.unshaped(once), twice: true },
        None => Table { angles, twice: false },
    })
}

/// Matches `position * frequency` with one row per position; returns both.
fn angles(m: &Matcher, id: NodeId) -> Option<(NodeId, NodeId)> {
    let outer = |position: NodeId, frequency: NodeId| {
        let cast = m.unshaped(position);
        let positions = m.input(cast).filter(|_| *m.op(cast) == Op::Cast(DType::F32))?;
        let column = m.shape(position).dims().last().is_some_and(|dim| dim.is(1));
        let count = m.shape(frequency).elements();
        let row = m.shape(frequency).dims().last() == Some(&count);
        let integers = m.node(positions).dtype == DType::I32;
        let rows = m.shape(id).elements() == m.shape(positions).elements() * count.clone();
        let last = m.shape(id).dims().last() == Some(&count);
        (column && row && integers && rows && last).then_some((positions, frequency))
    };
    if let Op::MatMul = m.op(id) {
        let [position, frequency] = m.node(id).inputs[..] else { return None };
        return outer(position, frequency);
    }
    m.either(id, BinaryOp::Mul).find_map(|[position, frequency]| outer(position, frequency))
}
