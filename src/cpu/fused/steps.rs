//! One step of a fused kernel on a tile.

use super::TILE;
use crate::cpu::arch::math;
use crate::ir::scalar::{BinaryOp, UnaryOp};

/// Arithmetic on registers.
pub(in crate::cpu) struct Step {
    pub(super) op: StepOp,
    /// Register that is written; never one that is read.
    pub(super) to: usize,
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) c: usize,
}

/// What a step does; the types of its operands are part of it. A `bool` is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOp {
    UnaryF32(UnaryOp),
    NegI32,
    AbsI32,
    Not,
    BinaryF32(BinaryOp),
    BinaryI32(BinaryOp),
    BinaryU32(BinaryOp),
    /// `if a { b } else { c }`.
    Select,
    F32ToI32,
    F32ToU32,
    F32ToBool,
    I32ToF32,
    U32ToF32,
    IntToBool,
    Copy,
}

/// Registers of the tile at hand, [`TILE`] words each.
pub(in crate::cpu) struct Registers {
    pub(super) base: *mut u32,
    /// Elements of the tile.
    pub(super) len: usize,
}

/// One loop over the tile: `$x`, `$y`, `$z` are read through `$from`, the value of the body is
/// written through `$into`. A macro and not a closure, so that the body is always compiled with
/// the instructions of the function around it.
macro_rules! each {
    ($s:ident, $r:ident, $from:expr, $into:expr, |$x:ident| $body:expr) => {{
        let (to, a) = ($r.base.add($s.to * TILE), $r.base.add($s.a * TILE));
        for i in 0..$r.len {
            let $x = $from(*a.add(i));
            *to.add(i) = $into($body);
        }
    }};
    ($s:ident, $r:ident, $from:expr, $into:expr, |$x:ident, $y:ident| $body:expr) => {{
        let (to, a) = ($r.base.add($s.to * TILE), $r.base.add($s.a * TILE));
        let b = $r.base.add($s.b * TILE);
        for i in 0..$r.len {
            let ($x, $y) = ($from(*a.add(i)), $from(*b.add(i)));
            *to.add(i) = $into($body);
        }
    }};
}

/// Executes one step.
///
/// # Safety
/// The registers that the step names lie in the memory behind `r`, which is shared with nobody.
#[inline(always)]
pub(in crate::cpu) unsafe fn step(s: &Step, r: &Registers) {
    let word = |bits: u32| bits;
    let int = |bits: u32| bits as i32;
    let bits = |v: i32| v as u32;
    // SAFETY: every loop stays inside registers, by the caller's contract.
    unsafe {
        match s.op {
            StepOp::UnaryF32(op) => unary_f32(op, s, r),
            StepOp::NegI32 => each!(s, r, int, bits, |x| x.wrapping_neg()),
            StepOp::AbsI32 => each!(s, r, int, bits, |x| x.wrapping_abs()),
            StepOp::Not => each!(s, r, word, u32::from, |x| x == 0),
            StepOp::BinaryF32(op) => binary_f32(op, s, r),
            StepOp::BinaryI32(op) => binary_i32(op, s, r),
            StepOp::BinaryU32(op) => binary_u32(op, s, r),
            StepOp::Select => {
                let (to, condition) = (r.base.add(s.to * TILE), r.base.add(s.a * TILE));
                let (a, b) = (r.base.add(s.b * TILE), r.base.add(s.c * TILE));
                for i in 0..r.len {
                    let (a, b) = (*a.add(i), *b.add(i));
                    *to.add(i) = if *condition.add(i) != 0 { a } else { b };
                }
            }
            StepOp::F32ToI32 => each!(s, r, f32::from_bits, bits, |x| x as i32),
            StepOp::F32ToU32 => each!(s, r, f32::from_bits, word, |x| x as u32),
            StepOp::F32ToBool => each!(s, r, f32::from_bits, u32::from, |x| x != 0.0),
            StepOp::I32ToF32 => each!(s, r, int, f32::to_bits, |x| x as f32),
            StepOp::U32ToF32 => each!(s, r, word, f32::to_bits, |x| x as f32),
            StepOp::IntToBool => each!(s, r, word, u32::from, |x| x != 0),
            StepOp::Copy => each!(s, r, word, word, |x| x),
        }
    }
}

/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn unary_f32(op: UnaryOp, s: &Step, r: &Registers) {
    macro_rules! float {
        (|$x:ident| $body:expr) => {
            each!(s, r, f32::from_bits, f32::to_bits, |$x| $body)
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match op {
            UnaryOp::Neg => float!(|x| -x),
            UnaryOp::Abs => float!(|x| x.abs()),
            UnaryOp::Exp => float!(|x| math::exp(x)),
            UnaryOp::Log => float!(|x| x.ln()),
            UnaryOp::Sqrt => float!(|x| x.sqrt()),
            UnaryOp::Rsqrt => float!(|x| 1.0 / x.sqrt()),
            UnaryOp::Reciprocal => float!(|x| 1.0 / x),
            UnaryOp::Sin => float!(|x| x.sin()),
            UnaryOp::Cos => float!(|x| x.cos()),
            UnaryOp::Tanh => float!(|x| x.tanh()),
            UnaryOp::Erf => float!(|x| math::erf(x)),
            UnaryOp::Floor => float!(|x| x.floor()),
            UnaryOp::Ceil => float!(|x| x.ceil()),
            UnaryOp::Round => float!(|x| x.round_ties_even()),
            UnaryOp::Sigmoid => float!(|x| math::sigmoid(x)),
            UnaryOp::Silu => float!(|x| x * math::sigmoid(x)),
            UnaryOp::Gelu => float!(|x| math::gelu(x)),
            UnaryOp::GeluTanh => float!(|x| math::gelu_tanh(x)),
            UnaryOp::Relu => float!(|x| if x < 0.0 { 0.0 } else { x }),
            UnaryOp::Not => crate::error::broken_invariant("`not` of f32 was translated"),
        }
    }
}

/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn binary_f32(op: BinaryOp, s: &Step, r: &Registers) {
    macro_rules! float {
        (|$x:ident, $y:ident| $body:expr) => {
            each!(s, r, f32::from_bits, f32::to_bits, |$x, $y| $body)
        };
    }
    macro_rules! compare {
        (|$x:ident, $y:ident| $body:expr) => {
            each!(s, r, f32::from_bits, u32::from, |$x, $y| $body)
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match op {
            BinaryOp::Add => float!(|x, y| x + y),
            BinaryOp::Sub => float!(|x, y| x - y),
            BinaryOp::Mul => float!(|x, y| x * y),
            BinaryOp::Div => float!(|x, y| x / y),
            BinaryOp::Rem => float!(|x, y| x % y),
            BinaryOp::Pow => float!(|x, y| x.powf(y)),
            BinaryOp::Min => float!(|x, y| x.min(y)),
            BinaryOp::Max => float!(|x, y| x.max(y)),
            BinaryOp::Eq => compare!(|x, y| x == y),
            BinaryOp::Ne => compare!(|x, y| x != y),
            BinaryOp::Lt => compare!(|x, y| x < y),
            BinaryOp::Le => compare!(|x, y| x <= y),
            BinaryOp::Gt => compare!(|x, y| x > y),
            BinaryOp::Ge => compare!(|x, y| x >= y),
            BinaryOp::And | BinaryOp::Or => {
                crate::error::broken_invariant("logic of f32 was translated")
            }
        }
    }
}

macro_rules! integers {
    ($name:ident, $from:expr, $into:expr) => {
        /// # Safety
        /// As [`step`].
        #[inline(always)]
        unsafe fn $name(op: BinaryOp, s: &Step, r: &Registers) {
            macro_rules! number {
                (|$x:ident, $y:ident| $body:expr) => {
                    each!(s, r, $from, $into, |$x, $y| $body)
                };
            }
            macro_rules! compare {
                (|$x:ident, $y:ident| $body:expr) => {
                    each!(s, r, $from, u32::from, |$x, $y| $body)
                };
            }
            // SAFETY: the caller's contract.
            unsafe {
                match op {
                    BinaryOp::Add => number!(|x, y| x.wrapping_add(y)),
                    BinaryOp::Sub => number!(|x, y| x.wrapping_sub(y)),
                    BinaryOp::Mul => number!(|x, y| x.wrapping_mul(y)),
                    BinaryOp::Div => number!(|x, y| if y == 0 { x } else { x.wrapping_div(y) }),
                    BinaryOp::Rem => number!(|x, y| if y == 0 { 0 } else { x.wrapping_rem(y) }),
                    BinaryOp::Min => number!(|x, y| x.min(y)),
                    BinaryOp::Max => number!(|x, y| x.max(y)),
                    BinaryOp::Eq => compare!(|x, y| x == y),
                    BinaryOp::Ne => compare!(|x, y| x != y),
                    BinaryOp::Lt => compare!(|x, y| x < y),
                    BinaryOp::Le => compare!(|x, y| x <= y),
                    BinaryOp::Gt => compare!(|x, y| x > y),
                    BinaryOp::Ge => compare!(|x, y| x >= y),
                    BinaryOp::Pow | BinaryOp::And | BinaryOp::Or => {
                        crate::error::broken_invariant("an operation without meaning for integers")
                    }
                }
            }
        }
    };
}
integers!(binary_i32, |bits: u32| bits as i32, |v: i32| v as u32);
integers!(binary_u32, |bits: u32| bits, |v: u32| v);
