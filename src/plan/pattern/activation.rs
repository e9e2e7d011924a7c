//! Pattern matching of sigmoid, SiLU, GELU and ReLU spelled out in primitives.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use super::matcher::{Matcher, Raised, is_about};
use crate::base::DType;
use crate::ir::{BinaryOp, NodeId, Op, UnaryOp};

/// The cubic coefficient of GELU's tanh form.
const CUBIC: f64 = 0.044_715;

fn raised(x: NodeId, op: UnaryOp) -> Raised {
    Raised::new([x], move |new, operands| new.add(Op::Unary(op), operands))
}

/// Matches sigmoid and ReLU, which are not products.
pub(super) fn simple(m: &Matcher, id: NodeId) -> Option<Raised> {
    if m.node(id).dtype != DType::F32 {
        return None;
    }
    let (x, op) = match sigmoid(m, id) {
        Some(x) => (x, UnaryOp::Sigmoid),
        None => (relu(m, id)?, UnaryOp::Relu),
    };
    (m.shape(x) == m.shape(id)).then(|| raised(x, op))
}

/// Matches SiLU and GELU: products of an operand and a function of that operand.
pub(super) fn gated(m: &Matcher, id: NodeId) -> Option<Raised> {
    if !matches!(m.op(id), Op::Binary(BinaryOp::Mul | BinaryOp::Div)) {
        return None;
    }
    let all = m.factors(id, None);
    let terms = all.over.iter().map(|term| (*term, false));
    terms.chain(all.under.iter().map(|term| (*term, true))).find_map(|(gate, under)| {
        [silu, gelu, gelu_tanh, gelu_sigmoid].iter().find_map(|rule| {
            let (x, number, op) = rule(m, gate, under)?;
            // Again with x as a whole, since x may be a product itself.
            let mut factors = m.factors(id, Some(x));
            let gates = if under { &mut factors.under } else { &mut factors.over };
            gates.remove(gates.iter().position(|term| *term == gate)?);
            let only_x = factors.over[..] == [x] && factors.under.is_empty();
            let same = only_x && m.shape(x) == m.shape(id);
            (same && is_about(factors.number, number)).then(|| raised(x, op))
        })
    })
}

/// The operand of a gate, the constant factor of the product, and the activation.
type Gate = Option<(NodeId, f64, UnaryOp)>;

/// Matches `sigmoid(x)`, or `1 + exp(-x)` as a divisor.
fn silu(m: &Matcher, gate: NodeId, under: bool) -> Gate {
    let x = match under {
        false => m.unary(gate, UnaryOp::Sigmoid)?,
        true => one_plus_exp_minus(m, gate)?,
    };
    Some((x, 1.0, UnaryOp::Silu))
}

/// Matches `1 + erf(x / sqrt(2))` with a factor 1/2 elsewhere, or with both terms halved.
fn gelu(m: &Matcher, gate: NodeId, under: bool) -> Gate {
    let (erf, one) = m.with_number(gate, BinaryOp::Add).filter(|_| !under)?;
    let erf = m.factors(erf, None);
    let [term] = erf.over[..] else { return None };
    let inside = m.unary(term, UnaryOp::Erf).filter(|_| erf.under.is_empty())?;
    let (x, scale) = scaled(m, inside)?;
    let fits = is_about(scale, FRAC_1_SQRT_2) && is_about(erf.number, one);
    fits.then_some((x, 0.5 / one, UnaryOp::Gelu))
}

/// Matches `1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))` with a factor 1/2 elsewhere, or with
/// both terms halved.
fn gelu_tanh(m: &Matcher, gate: NodeId, under: bool) -> Gate {
    let (tanh, one) = m.with_number(gate, BinaryOp::Add).filter(|_| !under)?;
    let tanh = m.factors(tanh, None);
    let [term] = tanh.over[..] else { return None };
    let inside = m.unary(term, UnaryOp::Tanh).filter(|_| tanh.under.is_empty())?;
    let x = cubic(m, inside, 1.0)?;
    is_about(tanh.number, one).then_some((x, 0.5 / one, UnaryOp::GeluTanh))
}

/// Matches `sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x^3))`, or `1 + exp(-..)` as a divisor.
fn gelu_sigmoid(m: &Matcher, gate: NodeId, under: bool) -> Gate {
    let inside = match under {
        false => m.unary(gate, UnaryOp::Sigmoid)?,
        true => one_plus_exp_minus(m, gate)?,
    };
    Some((cubic(m, inside, 2.0)?, 1.0, UnaryOp::GeluTanh))
}

/// Matches `number * x`; returns `x` and the number.
fn scaled(m: &Matcher, id: NodeId) -> Option<(NodeId, f64)> {
    // One factor at a time: x may be a product itself.
    let (x, number) = match m.binary(id, BinaryOp::Div) {
        Some([x, number]) => (x, 1.0 / m.number(number)?),
        None => m.with_number(id, BinaryOp::Mul)?,
    };
    Some((x, number))
}

/// Matches `1 / (1 + exp(-x))` or `exp(x) / (1 + exp(x))`; returns `x`.
fn sigmoid(m: &Matcher, id: NodeId) -> Option<NodeId> {
    if let Some(under) = m.unary(id, UnaryOp::Reciprocal) {
        return one_plus_exp_minus(m, under);
    }
    if let Some([base, power]) = m.binary(id, BinaryOp::Pow) {
        return one_plus_exp_minus(m, base).filter(|_| m.number(power) == Some(-1.0));
    }
    let [over, under] = m.binary(id, BinaryOp::Div)?;
    if m.number(over) == Some(1.0) {
        return one_plus_exp_minus(m, under);
    }
    let x = m.unary(over, UnaryOp::Exp)?;
    let (exp, one) = m.with_number(under, BinaryOp::Add)?;
    (exp == over && one == 1.0).then_some(x)
}

/// Matches `1 + exp(-x)`; returns `x`.
fn one_plus_exp_minus(m: &Matcher, id: NodeId) -> Option<NodeId> {
    let (exp, one) = m.with_number(id, BinaryOp::Add)?;
    let minus = m.unary(exp, UnaryOp::Exp).filter(|_| one == 1.0)?;
    let zero_minus = || {
        let [zero, x] = m.binary(minus, BinaryOp::Sub)?;
        (m.number(zero) == Some(0.0)).then_some(x)
    };
    let times = || m.with_number(minus, BinaryOp::Mul).filter(|(_, n)| *n == -1.0).map(|(x, _)| x);
    m.unary(minus, UnaryOp::Neg).or_else(times).or_else(zero_minus)
}

/// Matches `max(x, 0)` or `x > 0 ? x : 0`; returns `x`.
fn relu(m: &Matcher, id: NodeId) -> Option<NodeId> {
    if let Some((x, number)) = m.with_number(id, BinaryOp::Max) {
        return (number == 0.0).then_some(x);
    }
    let (Op::Select, [condition, x, zero]) = (m.op(id), &m.node(id).inputs[..]) else {
        return None;
    };
    let above = |op, x_first: bool| {
        let [a, b] = m.binary(*condition, op)?;
        let (value, number) = if x_first { (a, b) } else { (b, a) };
        (value == *x && m.number(number) == Some(0.0)).then_some(())
    };
    above(BinaryOp::Gt, true)
        .or_else(|| above(BinaryOp::Ge, true))
        .or_else(|| above(BinaryOp::Lt, false))
        .or_else(|| above(BinaryOp::Le, false))?;
    (m.number(*zero) == Some(0.0)).then_some(*x)
}

/// Matches `times * sqrt(2 / pi) * (x + 0.044715 * x^3)`, multiplied out in any way; returns `x`.
fn cubic(m: &Matcher, id: NodeId, times: f64) -> Option<NodeId> {
    let linear = times * FRAC_2_SQRT_PI / SQRT_2;
    // Candidates for x: the operands of sums within reach.
    variables(m, id, 5).into_iter().find(|x| {
        let Some(powers) = polynomial(m, id, *x, 6) else { return false };
        let fits = |power: u32, want: f64| {
            powers.get(&power).is_some_and(|have| (have / want - 1.0).abs() < 1e-5)
        };
        powers.len() == 2 && fits(1, linear) && fits(3, linear * CUBIC)
    })
}

/// Returns candidates for the variable of a polynomial.
fn variables(m: &Matcher, id: NodeId, depth: usize) -> Vec<NodeId> {
    if m.number(id).is_some() {
        return Vec::new();
    }
    let mut found = vec![id];
    let arithmetic = matches!(
        m.op(id),
        Op::Binary(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow)
    );
    if arithmetic && depth > 0 {
        for input in &m.node(id).inputs {
            for variable in variables(m, *input, depth - 1) {
                if !found.contains(&variable) {
                    found.push(variable);
                }
            }
        }
    }
    found
}

/// Returns the coefficients of a polynomial in `x`, by power; `None` beyond the third power.
fn polynomial(m: &Matcher, id: NodeId, x: NodeId, depth: usize) -> Option<BTreeMap<u32, f64>> {
    if id == x {
        return Some([(1, 1.0)].into());
    }
    if let Some(number) = m.number(id) {
        return Some([(0, number)].into());
    }
    let Op::Binary(op) = m.op(id) else { return None };
    let [a, b] = m.binary(id, *op)?;
    let left = polynomial(m, a, x, depth.checked_sub(1)?)?;
    let mut product = BTreeMap::new();
    let mut multiply = |left: &BTreeMap<u32, f64>, right: &BTreeMap<u32, f64>| {
        for (i, p) in left {
            for (j, q) in right {
                *product.entry(i + j).or_insert(0.0) += p * q;
            }
        }
        std::mem::take(&mut product)
    };
    let result = match op {
        BinaryOp::Add => {
            let mut sum = left;
            for (power, factor) in polynomial(m, b, x, depth - 1)? {
                *sum.entry(power).or_insert(0.0) += factor;
            }
            sum
        }
        BinaryOp::Mul => multiply(&left, &polynomial(m, b, x, depth - 1)?),
        BinaryOp::Div => multiply(&left, &[(0, 1.0 / m.number(b)?)].into()),
        BinaryOp::Pow => match m.number(b)? {
            2.0 => multiply(&left, &left),
            3.0 => {
                let square = multiply(&left, &left);
                multiply(&square, &left)
            }
            _ => return None,
        },
        _ => return None,
    };
    result.keys().all(|power| *power <= 3).then_some(result)
}
