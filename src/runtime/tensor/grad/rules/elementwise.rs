//! Elementwise operations.

use smallvec::smallvec;

use super::{Call, Parts, sum_to};
use crate::ir::{BinaryOp, UnaryOp};
use crate::runtime::tensor::Tensor;

/// Returns the gradient of the operand `x` of `y = op(x)`; `None` if it is 0 everywhere.
pub(super) fn unary(op: UnaryOp, x: &Tensor, y: &Tensor, g: &Tensor) -> Option<Tensor> {
    Some(match op {
        UnaryOp::Neg => g.neg(),
        UnaryOp::Abs => g.mul(x.sign()),
        UnaryOp::Exp => g.mul(y),
        UnaryOp::Log => g.div(x),
        UnaryOp::Sqrt => g.mul(0.5).div(y),
        UnaryOp::Rsqrt => g.mul(y).mul(y.square()).mul(-0.5),
        UnaryOp::Reciprocal => g.mul(y.square()).neg(),
        UnaryOp::Sin => g.mul(x.cos()),
        UnaryOp::Cos => g.mul(x.sin()).neg(),
        UnaryOp::Tanh => g.mul(one_minus(&y.square())),
        UnaryOp::Erf => g.mul(x.square().neg().exp()).mul(std::f32::consts::FRAC_2_SQRT_PI),
        UnaryOp::Sigmoid => g.mul(y.mul(one_minus(y))),
        UnaryOp::Silu => {
            let s = x.sigmoid();
            g.mul(s.mul(x.mul(one_minus(&s)).add(1.0)))
        }
        UnaryOp::Gelu => {
            let below = x.mul(std::f32::consts::FRAC_1_SQRT_2).erf().add(1.0).mul(0.5);
            let density = x.square().mul(-0.5).exp().mul(INV_SQRT_TAU);
            g.mul(x.mul(density).add(below))
        }
        UnaryOp::GeluTanh => {
            let t = x.square().mul(CUBIC).add(1.0).mul(x).mul(SQRT_2_OVER_PI).tanh();
            let inner = x.square().mul(3.0 * CUBIC).add(1.0).mul(SQRT_2_OVER_PI);
            let slope = one_minus(&t.square()).mul(inner).mul(x);
            g.mul(t.add(1.0).add(slope).mul(0.5))
        }
        UnaryOp::Relu => x.gt(0.0).select(g, 0.0),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Not => return None,
    })
}

/// `1 / sqrt(2 pi)`.
const INV_SQRT_TAU: f32 = 0.398_942_3;
/// `sqrt(2 / pi)`.
const SQRT_2_OVER_PI: f32 = 0.797_884_6;
/// The factor of the cube in the tanh approximation of GELU.
const CUBIC: f32 = 0.044_715;

fn one_minus(x: &Tensor) -> Tensor {
    x.neg().add(1.0)
}

pub(super) fn binary(op: BinaryOp, call: &Call<'_>) -> Parts {
    let ([a, b], g, y) = (call.inputs, call.gradient, call.output) else { return Parts::new() };
    let left = || {
        Some(match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Rem => g.clone(),
            BinaryOp::Mul => g.mul(b),
            BinaryOp::Div => g.div(b),
            // 0^-1 is infinite, but the derivative of x^0 is 0.
            BinaryOp::Pow => b.eq(0.0).select(0.0, g.mul(b).mul(a.pow(b.sub(1.0)))),
            BinaryOp::Min => shared(g, &a.lt(b), &a.eq(b)),
            BinaryOp::Max => shared(g, &a.gt(b), &a.eq(b)),
            _ => return None,
        })
    };
    let right = || {
        Some(match op {
            BinaryOp::Add => g.clone(),
            BinaryOp::Sub => g.neg(),
            BinaryOp::Mul => g.mul(a),
            BinaryOp::Div => g.mul(y).div(b).neg(),
            // a % b is a - b * trunc(a / b).
            BinaryOp::Rem => g.mul(a.div(b).trunc()).neg(),
            // 0^b is 0 for every b above 0.
            BinaryOp::Pow => a.eq(0.0).select(0.0, g.mul(y).mul(a.log())),
            BinaryOp::Min => shared(g, &b.lt(a), &a.eq(b)),
            BinaryOp::Max => shared(g, &b.gt(a), &a.eq(b)),
            _ => return None,
        })
    };
    let of = |i: usize| {
        let part = if i == 0 { left() } else { right() };
        part.map(|part| sum_to(&part, call.inputs[i].sizes()))
    };
    call.parts(|i| of(i).filter(|_| call.wants[i]))
}

/// Returns the gradient of a side that was chosen, half of it at ties.
fn shared(g: &Tensor, chosen: &Tensor, tie: &Tensor) -> Tensor {
    chosen.select(g, tie.select(g.mul(0.5), 0.0))
}

pub(super) fn select(call: &Call<'_>) -> Parts {
    let (inputs, g) = (call.inputs, call.gradient);
    let zeros = g.zeros_like();
    let a = sum_to(&inputs[0].select(g, &zeros), inputs[1].sizes());
    let b = sum_to(&inputs[0].select(&zeros, g), inputs[2].sizes());
    let parts: Parts = smallvec![None, Some(a), Some(b)];
    call.parts(|i| parts[i].clone())
}
