//! Pattern matching of RMSNorm, LayerNorm and softmax along the last axis.

use super::matcher::{Factors, Matcher, Raised, is_about, one_a_row};
use crate::base::{DType, Dim, Format, Shape};
use crate::ir::{BinaryOp, Graph, NodeId, Op, ReduceOp, UnaryOp};

/// A value per column: a tensor, or one constant for all.
enum Columns {
    Tensor(NodeId),
    Number(f64),
}

/// Matches `x * rsqrt(mean(x^2) + eps) * weight` in any order.
pub(super) fn rms_norm(m: &Matcher, id: NodeId) -> Option<Raised> {
    let (root, divided) = scale_by_row(m, id)?;
    let (mean, eps) = plus_eps(m, root)?;
    let x = square(m, mean_of(m, mean)?)?;
    if !is_row_number(m, divided, x, id) {
        return None;
    }
    let factors = without(m.factors(id, Some(x)), divided, x)?;
    let weight = columns(m, id, &factors)?;
    let n = m.shape(id).dims().last()?.clone();
    Some(normalised(Op::RmsNorm { eps }, n, x, weight, None))
}

/// Matches `(x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias` in any order.
pub(super) fn layer_norm(m: &Matcher, id: NodeId) -> Option<Raised> {
    let with_bias = m.either(id, BinaryOp::Add).find_map(|[scaled, bias]| {
        let bias = column(m, id, bias)?;
        (m.shape(scaled) == m.shape(id)).then(|| layer_norm_of(m, scaled, Some(bias)))?
    });
    with_bias.or_else(|| layer_norm_of(m, id, None))
}

fn layer_norm_of(m: &Matcher, id: NodeId, bias: Option<Columns>) -> Option<Raised> {
    let (root, divided) = scale_by_row(m, id)?;
    let (variance, eps) = plus_eps(m, root)?;
    let (x, centred) = variance_of(m, variance)?;
    let centred = match centred {
        Some(centred) => centred,
        None => m.factors(id, None).over.iter().copied().find(|t| centre(m, *t) == Some(x))?,
    };
    if !is_row_number(m, divided, x, id) {
        return None;
    }
    let factors = without(m.factors(id, Some(centred)), divided, centred)?;
    let weight = columns(m, id, &factors)?;
    let n = m.shape(id).dims().last()?.clone();
    Some(normalised(
        Op::LayerNorm { eps },
        n,
        x,
        weight,
        Some(bias.unwrap_or(Columns::Number(0.0))),
    ))
}

/// Matches `exp(x - max(x)) / sum(exp(x - max(x)))`, also without the maximum.
pub(super) fn softmax(m: &Matcher, id: NodeId) -> Option<Raised> {
    let exponentials = |exp: NodeId, sum: NodeId| {
        let summed = reduced(m, sum, ReduceOp::Sum)?;
        let inside = m.unary(exp, UnaryOp::Exp).filter(|_| summed == exp)?;
        let shifted = m.binary(inside, BinaryOp::Sub).and_then(|[x, max]| {
            let of = reduced(m, max, ReduceOp::Max)?;
            (of == x && Some(m.shape(max)) == one_a_row(m.shape(x)).as_ref()).then_some(x)
        });
        let x = shifted.unwrap_or(inside);
        let row = Some(m.shape(sum)) == one_a_row(m.shape(x)).as_ref();
        (row && m.shape(x) == m.shape(id)).then_some(x)
    };
    let divided = m.binary(id, BinaryOp::Div).and_then(|[exp, sum]| exponentials(exp, sum));
    let multiplied = || {
        m.either(id, BinaryOp::Mul)
            .find_map(|[exp, inverse]| exponentials(exp, m.unary(inverse, UnaryOp::Reciprocal)?))
    };
    let x = divided.or_else(multiplied)?;
    Some(Raised::new([x], |new, operands| new.add(Op::Softmax, operands)))
}

/// Matches a product that is divided by the square root of one value per row; returns the radicand
/// and the factor that contains the root.
fn scale_by_row(m: &Matcher, id: NodeId) -> Option<(NodeId, NodeId)> {
    if !matches!(m.op(id), Op::Binary(BinaryOp::Mul | BinaryOp::Div)) {
        return None;
    }
    let factors = m.factors(id, None);
    let over = factors.over.iter().map(|factor| (*factor, inverse_root(m, *factor)));
    let under = factors.under.iter().map(|factor| (*factor, root(m, *factor)));
    over.chain(under).find_map(|(factor, inside)| Some((inside?, factor)))
}

/// Matches `sqrt(u)`; returns `u`.
fn root(m: &Matcher, id: NodeId) -> Option<NodeId> {
    let id = m.unshaped(id);
    m.unary(id, UnaryOp::Sqrt).or_else(|| power(m, id, 0.5))
}

/// Matches `1 / sqrt(u)`; returns `u`.
fn inverse_root(m: &Matcher, id: NodeId) -> Option<NodeId> {
    let id = m.unshaped(id);
    let over_root = || {
        let [one, under] = m.binary(id, BinaryOp::Div)?;
        (m.number(one) == Some(1.0)).then(|| root(m, under))?
    };
    m.unary(id, UnaryOp::Rsqrt)
        .or_else(|| power(m, id, -0.5))
        .or_else(|| root(m, m.unary(id, UnaryOp::Reciprocal)?))
        .or_else(over_root)
}

fn power(m: &Matcher, id: NodeId, exponent: f64) -> Option<NodeId> {
    let [base, power] = m.binary(id, BinaryOp::Pow)?;
    (m.number(power) == Some(exponent)).then_some(base)
}

/// Matches `u + eps`; returns both, with 0 for `eps` if nothing is added.
fn plus_eps(m: &Matcher, id: NodeId) -> Option<(NodeId, f32)> {
    let id = m.unshaped(id);
    let (u, eps) = m.with_number(id, BinaryOp::Add).unwrap_or((id, 0.0));
    (eps >= 0.0 && eps.is_finite()).then_some((u, eps as f32))
}

/// Matches `x * x` or `x^2`; returns `x`.
fn square(m: &Matcher, id: NodeId) -> Option<NodeId> {
    match m.binary(id, BinaryOp::Mul) {
        Some([a, b]) => (a == b).then_some(a),
        None => power(m, id, 2.0),
    }
}

/// Returns the operand of a reduction of the last axis.
fn reduced(m: &Matcher, id: NodeId, want: ReduceOp) -> Option<NodeId> {
    let id = m.unshaped(id);
    let Op::Reduce { op, axes, .. } = m.op(id) else { return None };
    let of = m.input(id)?;
    let last = m.shape(of).rank().checked_sub(1)?;
    (*op == want && axes[..] == [last]).then_some(of)
}

/// Returns the operand of a mean along the last axis, or of a sum divided by the number of columns.
fn mean_of(m: &Matcher, id: NodeId) -> Option<NodeId> {
    let id = m.unshaped(id);
    if let Some(of) = reduced(m, id, ReduceOp::Mean) {
        return Some(of);
    }
    let divided = || {
        let [sum, n] = m.binary(id, BinaryOp::Div)?;
        Some((sum, 1.0 / m.number(n)?))
    };
    let (sum, share) = m.with_number(id, BinaryOp::Mul).or_else(divided)?;
    let of = reduced(m, sum, ReduceOp::Sum)?;
    let n = m.shape(of).dims().last()?.as_const()?;
    is_about(share * n as f64, 1.0).then_some(of)
}

/// Matches `x - mean(x)`; returns `x`.
fn centre(m: &Matcher, id: NodeId) -> Option<NodeId> {
    let [x, mean] = m.binary(id, BinaryOp::Sub)?;
    let rows = one_a_row(m.shape(x))?;
    (mean_of(m, mean) == Some(x) && *m.shape(mean) == rows).then_some(x)
}

/// Matches the variance of `x`. Returns `x`, and `x - mean(x)` if the variance is the mean square
/// of that.
fn variance_of(m: &Matcher, id: NodeId) -> Option<(NodeId, Option<NodeId>)> {
    let id = m.unshaped(id);
    if let Some(centred) = mean_of(m, id).and_then(|squared| square(m, squared)) {
        return Some((centre(m, centred)?, Some(centred)));
    }
    let [squares, mean] = m.binary(id, BinaryOp::Sub)?;
    let x = square(m, mean_of(m, squares)?)?;
    let of = mean_of(m, square(m, mean)?)?;
    (of == x).then_some((x, None))
}

/// Returns whether `x` has the shape of the result `id`, and `factor` has one value per row of `x`.
fn is_row_number(m: &Matcher, factor: NodeId, x: NodeId, id: NodeId) -> bool {
    m.shape(x) == m.shape(id) && Some(m.shape(factor)) == one_a_row(m.shape(x)).as_ref()
}

/// Returns the factors without these two, or `None` if either is missing or a divisor remains.
fn without(mut factors: Factors, a: NodeId, b: NodeId) -> Option<Factors> {
    let mut drop = |id: NodeId| {
        for list in [&mut factors.over, &mut factors.under] {
            if let Some(at) = list.iter().position(|factor| *factor == id) {
                list.remove(at);
                return Some(());
            }
        }
        None
    };
    drop(a)?;
    drop(b)?;
    factors.under.is_empty().then_some(factors)
}

/// Returns the one factor that remains of a product, if it is a value per column.
fn columns(m: &Matcher, id: NodeId, factors: &Factors) -> Option<Columns> {
    match factors.over[..] {
        [] => Some(Columns::Number(factors.number)),
        [weight] if factors.number == 1.0 => column(m, id, weight),
        _ => None,
    }
}

/// Matches one value for each column of `id`: a constant, or a plain tensor `[n]` or `[1, .., n]`.
fn column(m: &Matcher, id: NodeId, weight: NodeId) -> Option<Columns> {
    if let Some(number) = m.number(weight) {
        return Some(Columns::Number(number));
    }
    let (node, n) = (m.node(weight), m.shape(id).dims().last()?);
    let (last, lead) = node.shape.dims().split_last()?;
    let plain = m.op(m.unshaped(weight)).stored().is_none_or(|format| format == Format::F32);
    let fits = last == n && lead.iter().all(|dim| dim.is(1)) && lead.len() < m.shape(id).rank();
    (fits && plain && node.dtype == DType::F32).then_some(Columns::Tensor(weight))
}

/// Builds the norm of `x` with a weight and an optional bias.
fn normalised(op: Op, n: Dim, x: NodeId, weight: Columns, bias: Option<Columns>) -> Raised {
    let mut operands = vec![x];
    // For each: its index among the operands, or a constant.
    let parts: Vec<Result<usize, f32>> = [Some(weight), bias]
        .into_iter()
        .flatten()
        .map(|columns| match columns {
            Columns::Tensor(id) => {
                operands.push(id);
                Ok(operands.len() - 1)
            }
            Columns::Number(number) => Err(number as f32),
        })
        .collect();
    Raised::new(operands, move |new: &mut Graph, operands| {
        let mut inputs = vec![operands[0]];
        for part in &parts {
            let shape = Shape::new([n.clone()]);
            inputs.push(match part {
                Err(number) => new.constant_f32(shape, &[*number]),
                Ok(place) if new.node(operands[*place]).shape == shape => operands[*place],
                Ok(place) => new.add(Op::Reshape(shape), &[operands[*place]])?,
            });
        }
        new.add(op.clone(), &inputs)
    })
}
