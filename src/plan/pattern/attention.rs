//! Pattern matching of attention: `softmax(scale * q @ k^T + mask) @ v`, where the axes of heads
//! come before that of tokens.
//!
//! Keys and values that are repeated for every group of query heads are read without the repetition
//! (GQA). A mask must be a constant that hides exactly what a causal or sliding window hides; with
//! any other mask, the products and the softmax stay.

use super::matcher::{Matcher, Raised};
use crate::base::{Dim, Shape};
use crate::error::Result;
use crate::ir::{BinaryOp, Graph, NodeId, Op};
use crate::kernel::catalogue::MAX_HEAD_DIM;

/// Largest value that masks a score, whether added to it or in its place: the exponential of such a
/// score is 0 relative to any other.
const HIDDEN: f32 = -1e9;

/// The keys visible to a token.
#[derive(Clone, Copy, Default)]
struct Sees {
    causal: bool,
    window: Option<u32>,
    past: i64,
}

/// Keys or values before their heads are repeated: a node that is reshaped, then transposed.
struct Source {
    node: NodeId,
    /// The shape that the node is reshaped to.
    shape: Shape,
    /// The permutation of axes after the reshape.
    perm: Vec<usize>,
}

pub(super) fn attention(m: &Matcher, id: NodeId) -> Option<Raised> {
    let [weights, values] = product(m, id)?;
    let scores = m.input(weights).filter(|_| *m.op(weights) == Op::Softmax)?;
    let (scores, sees) = masked(m, scores)?;
    let (scores, outer) = scaled(m, scores);
    let [q, keys] = product(m, scores)?;
    let (q, on_q) = scaled(m, q);
    let (keys, on_k) = scaled(m, keys);
    let scale = (outer * on_q * on_k) as f32;

    let dims = m.shape(q).dims();
    let (lead, [tokens, head_dim]) = dims.split_last_chunk()?;
    let same = *m.shape(id).dims().last()? == *head_dim && m.shape(id).rank() == dims.len();
    let size = head_dim.as_const().filter(|d| (1..=i64::from(MAX_HEAD_DIM)).contains(d))?;
    if !same || !scale.is_finite() || lead.is_empty() {
        return None;
    }
    let (k, v) = (source(m, keys, lead)?, source(m, values, lead)?);
    let kv_lead = permuted(&k).dims()[..lead.len()].to_vec();
    if permuted(&v).dims()[..lead.len()] != kv_lead[..] {
        return None;
    }
    let (all, groups) = (heads(lead), heads(&kv_lead));
    let numbers = all.as_const().zip(groups.as_const());
    let shared = all == groups || numbers.is_some_and(|(_, groups)| groups > 0);
    if !shared {
        return None;
    }
    let op = Op::attention(scale, sees.causal, sees.window, Dim::new(sees.past));
    let (lead, tokens, size) = (lead.to_vec(), tokens.clone(), Dim::new(size));
    Some(Raised::new([q, k.node, v.node], move |new: &mut Graph, operands| {
        let last = lead.len() + 1;
        let q = rows(new, operands[0], last - 1, last, &lead)?;
        let k = sourced(new, operands[1], &k)?;
        let k = rows(new, k, last, last - 1, &kv_lead)?;
        let v = sourced(new, operands[2], &v)?;
        let v = rows(new, v, last - 1, last, &kv_lead)?;
        let y = new.add(op.clone(), &[q, k, v])?;
        let parts = [&tokens].into_iter().chain(&lead).chain([&size]).cloned();
        let y = new.add(Op::Reshape(parts.collect()), &[y])?;
        let heads_first = (1..last).chain([0, last]).collect();
        new.add(Op::Transpose(heads_first), &[y])
    }))
}

fn product(m: &Matcher, id: NodeId) -> Option<[NodeId; 2]> {
    match (m.op(id), &m.node(id).inputs[..]) {
        (Op::MatMul, [a, b]) => Some([*a, *b]),
        _ => None,
    }
}

/// Separates a constant factor from a value.
fn scaled(m: &Matcher, id: NodeId) -> (NodeId, f64) {
    let divided = || {
        let [x, number] = m.binary(id, BinaryOp::Div)?;
        Some((x, 1.0 / m.number(number)?))
    };
    m.with_number(id, BinaryOp::Mul).or_else(divided).unwrap_or((id, 1.0))
}

/// Transposes and reshapes `[lead.., ..]` to `[n, heads, size]`; `n` and `size` are the indices of
/// these axes.
fn rows(new: &mut Graph, id: NodeId, n: usize, size: usize, lead: &[Dim]) -> Result<NodeId> {
    let perm: Vec<usize> = [n].into_iter().chain(0..lead.len()).chain([size]).collect();
    let dims = new.node(id).shape.dims().to_vec();
    let id = new.add(Op::Transpose(perm), &[id])?;
    new.add(Op::Reshape(Shape::new([dims[n].clone(), heads(lead), dims[size].clone()])), &[id])
}

fn heads(lead: &[Dim]) -> Dim {
    lead.iter().cloned().fold(Dim::new(1), |product, dim| product * dim)
}

fn sourced(new: &mut Graph, id: NodeId, source: &Source) -> Result<NodeId> {
    let id = new.add(Op::Reshape(source.shape.clone()), &[id])?;
    new.add(Op::Transpose(source.perm.clone()), &[id])
}

fn permuted(source: &Source) -> Shape {
    source.perm.iter().map(|axis| source.shape[*axis].clone()).collect()
}

/// Finds the source of keys or values for the heads of `lead`. It has as many heads, or fewer that
/// are repeated for each group, by broadcasting or explicitly.
fn source(m: &Matcher, id: NodeId, lead: &[Dim]) -> Option<Source> {
    let rank = m.shape(id).rank();
    let own = m.shape(id).dims().get(..lead.len())?;
    let (inner, perm) = match m.op(id) {
        Op::Transpose(perm) => (m.input(id)?, perm.clone()),
        _ => (id, (0..rank).collect()),
    };
    if let Some((node, shape, axis)) = unrepeated(m, inner) {
        // The group must be the slowest part of the query head's index.
        let heads_last = perm.iter().position(|from| *from == axis) == lead.len().checked_sub(1);
        return (own == lead && heads_last && rank == lead.len() + 2).then_some(Source {
            node,
            shape,
            perm,
        });
    }
    let shared = own.iter().zip(lead).take_while(|(own, lead)| own == lead).count();
    let fits = own[shared..].iter().all(|dim| dim.is(1)) && rank == lead.len() + 2;
    let plain = Source { node: id, shape: m.shape(id).clone(), perm: (0..rank).collect() };
    fits.then_some(plain)
}

/// Matches a repetition of each index along an axis; returns its operand, the shape without the
/// repetition, and the axis.
fn unrepeated(m: &Matcher, id: NodeId) -> Option<(NodeId, Shape, usize)> {
    let (Op::Reshape(to), Some(wide)) = (m.op(id), m.input(id)) else { return None };
    let (Op::Expand(wide), Some(narrow)) = (m.op(wide), m.input(wide)) else { return None };
    let from = m.shape(narrow);
    if from.rank() != wide.rank() || wide.rank() != to.rank() + 1 {
        return None;
    }
    (0..to.rank()).find_map(|axis| {
        let mut shape = to.dims().to_vec();
        shape[axis] = wide[axis].clone();
        let kept = |i: usize| from[i] == wide[i];
        let merged = to[axis] == wide[axis].clone() * wide[axis + 1].clone()
            && from[axis + 1].is(1)
            && (0..wide.rank()).all(|i| i == axis + 1 || kept(i))
            && to.dims()[..axis] == wide.dims()[..axis]
            && to.dims()[axis + 1..] == wide.dims()[axis + 2..];
        merged.then(|| (narrow, Shape::new(shape), axis))
    })
}

/// Separates scores from their mask; returns the scores and the keys that the mask leaves visible.
fn masked(m: &Matcher, id: NodeId) -> Option<(NodeId, Sees)> {
    let hides = |value: f32| value <= HIDDEN;
    if let Op::Select = m.op(id) {
        let [condition, a, b] = m.node(id).inputs[..] else { return None };
        let hidden = |id: NodeId| m.number(id).is_some_and(|number| hides(number as f32));
        let (scores, shown) = match (hidden(a), hidden(b)) {
            (false, true) => (a, 1),
            (true, false) => (b, 0),
            _ => return None,
        };
        return Some((scores, sees(m, id, condition, |word| Some(word == shown))?));
    }
    let mask = m.either(id, BinaryOp::Add).find_map(|[scores, mask]| {
        let visible = |word: u32| match f32::from_bits(word) {
            0.0 => Some(true),
            value => hides(value).then_some(false),
        };
        Some((scores, sees(m, id, mask, visible)?))
    });
    // A sum with an unreadable mask is no product of queries and keys, so the match ends there.
    Some(mask.unwrap_or((id, Sees::default())))
}

/// Returns the keys that a constant mask `[.., tokens, keys]` leaves visible, if it is the same for
/// every head and a causal or sliding window.
fn sees(
    m: &Matcher,
    scores: NodeId,
    mask: NodeId,
    visible: impl Fn(u32) -> Option<bool>,
) -> Option<Sees> {
    let Op::Constant { words } = m.op(mask) else { return None };
    let size = |dim: &Dim| dim.as_const().and_then(|d| usize::try_from(d).ok());
    let (lead, [rows, keys]) = m.shape(mask).dims().split_last_chunk()?;
    let (_, [tokens, columns]) = m.shape(scores).dims().split_last_chunk()?;
    let whole = rows == tokens && keys == columns && lead.iter().all(|dim| dim.is(1));
    let (tokens, keys) = (size(tokens)?, size(keys)?);
    if !whole || tokens == 0 || keys == 0 {
        return None;
    }
    let all: Vec<bool> = words.iter().map(|word| visible(*word)).collect::<Option<_>>()?;
    let row = |token: usize| -> Option<(usize, usize)> {
        let at = |key: usize| if all.len() == 1 { all[0] } else { all[token * keys + key] };
        let first = (0..keys).find(|key| at(*key))?;
        let end = (first..keys).find(|key| !at(*key)).unwrap_or(keys);
        (end..keys).all(|key| !at(key)).then_some((first, end))
    };
    let rows: Vec<(usize, usize)> = (0..tokens).map(row).collect::<Option<_>>()?;
    if rows.iter().all(|seen| *seen == (0, keys)) {
        return Some(Sees::default());
    }
    let past = rows[0].1 - 1;
    let window = rows.iter().zip(past..).find(|((first, _), _)| *first > 0);
    let window = window.map(|((first, _), position)| position + 1 - first);
    let fits = rows.iter().zip(past..).all(|((first, end), position)| {
        let begin = window.map_or(0, |window| (position + 1).saturating_sub(window));
        *first == begin && *end == keys.min(position + 1)
    });
    let window = window.map(u32::try_from).transpose().ok()?;
    fits.then_some(Sees { causal: true, window, past: past as i64 })
}
