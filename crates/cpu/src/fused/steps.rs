//! One step of a fused kernel on a tile: arithmetic, or a reduction.

use crate::arch::math;
use warploom_core::ir::ReduceOp;
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};

/// The operation of a step, which includes its operand types. A `bool` is 0 or 1; an `f16` or
/// `bf16` is represented by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOp {
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
    F16ToF32,
    BF16ToF32,
    F32ToF16,
    F32ToBF16,
    Copy,
}

/// The operands of a step on a tile, `len` words each; pointers of absent operands are null.
pub(crate) struct Operands {
    /// The result; shares no word with the operands.
    pub(super) to: *mut u32,
    pub(super) from: [*const u32; 3],
    pub(super) len: usize,
}

/// A reduction of `rows` contiguous rows of `cols` values into one partial result per row.
pub(crate) struct Fold {
    pub(super) op: ReduceOp,
    pub(super) from: *const f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) to: *mut f64,
}

/// One loop over the tile: reads `$x`, `$y`, `$z` through `$from` and writes the value of the body
/// through `$into`. It is a macro, not a closure, so that the body is always compiled with the
/// target features of the surrounding function.
macro_rules! each {
    ($r:ident, $from:expr, $into:expr, |$x:ident| $body:expr) => {{
        let (to, a) = ($r.to, $r.from[0]);
        for i in 0..$r.len {
            let $x = $from(*a.add(i));
            *to.add(i) = $into($body);
        }
    }};
    ($r:ident, $from:expr, $into:expr, |$x:ident, $y:ident| $body:expr) => {{
        let (to, a, b) = ($r.to, $r.from[0], $r.from[1]);
        for i in 0..$r.len {
            let ($x, $y) = ($from(*a.add(i)), $from(*b.add(i)));
            *to.add(i) = $into($body);
        }
    }};
}

/// Executes one step.
///
/// # Safety
/// The operands hold `len` words; `to` is not shared.
#[inline(always)]
pub(crate) unsafe fn step(op: StepOp, r: &Operands) {
    let word = |bits: u32| bits;
    let int = |bits: u32| bits as i32;
    let bits = |v: i32| v as u32;
    // SAFETY: every loop stays below `len`, by the caller's contract.
    unsafe {
        match op {
            StepOp::UnaryF32(op) => unary_f32(op, r),
            StepOp::NegI32 => each!(r, int, bits, |x| x.wrapping_neg()),
            StepOp::AbsI32 => each!(r, int, bits, |x| x.wrapping_abs()),
            StepOp::Not => each!(r, word, u32::from, |x| x == 0),
            StepOp::BinaryF32(op) => binary_f32(op, r),
            StepOp::BinaryI32(op) => binary_i32(op, r),
            StepOp::BinaryU32(op) => binary_u32(op, r),
            StepOp::Select => {
                let [condition, a, b] = r.from;
                for i in 0..r.len {
                    let (a, b) = (*a.add(i), *b.add(i));
                    *r.to.add(i) = if *condition.add(i) != 0 { a } else { b };
                }
            }
            StepOp::F32ToI32 => each!(r, f32::from_bits, bits, |x| x as i32),
            StepOp::F32ToU32 => each!(r, f32::from_bits, word, |x| x as u32),
            StepOp::F32ToBool => each!(r, f32::from_bits, u32::from, |x| x != 0.0),
            StepOp::I32ToF32 => each!(r, int, f32::to_bits, |x| x as f32),
            StepOp::U32ToF32 => each!(r, word, f32::to_bits, |x| x as f32),
            StepOp::IntToBool => each!(r, word, u32::from, |x| x != 0),
            StepOp::F16ToF32 => each!(r, word, f32::to_bits, |x| math::f32_of_f16(x)),
            StepOp::BF16ToF32 => each!(r, word, word, |x| x << 16),
            StepOp::F32ToF16 => each!(r, word, word, |x| math::f16_of(x)),
            StepOp::F32ToBF16 => each!(r, word, word, |x| math::bf16_of(x)),
            StepOp::Copy => each!(r, word, word, |x| x),
        }
    }
}

/// Executes a unary step on f32 values.
///
/// # Safety
/// Same as [`step`].
#[inline(always)]
unsafe fn unary_f32(op: UnaryOp, r: &Operands) {
    macro_rules! float {
        (|$x:ident| $body:expr) => {
            each!(r, f32::from_bits, f32::to_bits, |$x| $body)
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match op {
            UnaryOp::Neg => float!(|x| -x),
            UnaryOp::Abs => float!(|x| x.abs()),
            UnaryOp::Exp => float!(|x| math::exp(x)),
            UnaryOp::Log => float!(|x| math::log(x)),
            UnaryOp::Sqrt => float!(|x| x.sqrt()),
            UnaryOp::Rsqrt => float!(|x| 1.0 / x.sqrt()),
            UnaryOp::Reciprocal => float!(|x| 1.0 / x),
            UnaryOp::Sin => {
                float!(|x| math::sin(x));
                beyond_angles(r, f32::sin);
            }
            UnaryOp::Cos => {
                float!(|x| math::cos(x));
                beyond_angles(r, f32::cos);
            }
            UnaryOp::Tanh => float!(|x| math::tanh(x)),
            UnaryOp::Erf => float!(|x| math::erf(x)),
            UnaryOp::Floor => float!(|x| x.floor()),
            UnaryOp::Ceil => float!(|x| x.ceil()),
            UnaryOp::Round => float!(|x| x.round_ties_even()),
            UnaryOp::Sigmoid => float!(|x| math::sigmoid(x)),
            UnaryOp::Silu => float!(|x| x * math::sigmoid(x)),
            UnaryOp::Gelu => float!(|x| math::gelu(x)),
            UnaryOp::GeluTanh => float!(|x| math::gelu_tanh(x)),
            UnaryOp::Relu => float!(|x| if x < 0.0 { 0.0 } else { x }),
            UnaryOp::Not => warploom_core::error::broken_invariant("`not` of f32 was translated"),
        }
    }
}

/// Recomputes with `function` the few elements whose angle is outside the range of [`math::sin`].
///
/// # Safety
/// Same as [`step`].
#[inline(always)]
unsafe fn beyond_angles(r: &Operands, function: impl Fn(f32) -> f32) {
    for i in 0..r.len {
        // SAFETY: the caller's contract.
        unsafe {
            let x = f32::from_bits(*r.from[0].add(i));
            if x.abs() > math::LARGEST_ANGLE {
                *r.to.add(i) = function(x).to_bits();
            }
        }
    }
}

/// Executes a binary step on f32 values.
///
/// # Safety
/// Same as [`step`].
#[inline(always)]
unsafe fn binary_f32(op: BinaryOp, r: &Operands) {
    macro_rules! float {
        (|$x:ident, $y:ident| $body:expr) => {
            each!(r, f32::from_bits, f32::to_bits, |$x, $y| $body)
        };
    }
    macro_rules! compare {
        (|$x:ident, $y:ident| $body:expr) => {
            each!(r, f32::from_bits, u32::from, |$x, $y| $body)
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
            BinaryOp::Pow => float!(|x, y| math::pow(x, y)),
            // NaN if one of both is: x stays if it is NaN, since comparisons with it are false.
            BinaryOp::Min => float!(|x, y| if y < x || y.is_nan() { y } else { x }),
            BinaryOp::Max => float!(|x, y| if y > x || y.is_nan() { y } else { x }),
            BinaryOp::Eq => compare!(|x, y| x == y),
            BinaryOp::Ne => compare!(|x, y| x != y),
            BinaryOp::Lt => compare!(|x, y| x < y),
            BinaryOp::Le => compare!(|x, y| x <= y),
            BinaryOp::Gt => compare!(|x, y| x > y),
            BinaryOp::Ge => compare!(|x, y| x >= y),
            BinaryOp::And | BinaryOp::Or => {
                warploom_core::error::broken_invariant("logic of f32 was translated")
            }
        }
    }
}

macro_rules! integers {
    ($name:ident, $from:expr, $into:expr) => {
        /// Executes a binary step on integers.
        ///
        /// # Safety
        /// Same as [`step`].
        #[inline(always)]
        unsafe fn $name(op: BinaryOp, r: &Operands) {
            macro_rules! number {
                (|$x:ident, $y:ident| $body:expr) => {
                    each!(r, $from, $into, |$x, $y| $body)
                };
            }
            macro_rules! compare {
                (|$x:ident, $y:ident| $body:expr) => {
                    each!(r, $from, u32::from, |$x, $y| $body)
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
                        warploom_core::error::broken_invariant(
                            "an operation without meaning for integers",
                        )
                    }
                }
            }
        }
    };
}
integers!(binary_i32, |bits: u32| bits as i32, |v: i32| v as u32);
integers!(binary_u32, |bits: u32| bits, |v: u32| v);

/// Reduces each row in 32 interleaved accumulators of type `$part`, which are then combined into
/// the row's f64 result, so that accuracy does not depend on the length.
macro_rules! folded {
    ($f:ident, $part:ty, $first:expr, |$all:ident, $v:ident| $body:expr) => {{
        const PARTS: usize = 32;
        let (rows, cols) = ($f.rows, $f.cols);
        if cols == 1 {
            for r in 0..rows {
                let ($all, $v) = (*$f.to.add(r), f64::from(*$f.from.add(r)));
                *$f.to.add(r) = $body;
            }
            return;
        }
        let body = cols - cols % PARTS;
        for r in 0..rows {
            let row = $f.from.add(r * cols);
            let mut whole = *$f.to.add(r);
            if body > 0 {
                let mut parts: [$part; PARTS] = [$first; PARTS];
                for at in (0..body).step_by(PARTS) {
                    for (j, part) in parts.iter_mut().enumerate() {
                        let ($all, $v) = (*part, <$part>::from(*row.add(at + j)));
                        *part = $body;
                    }
                }
                for half in [16, 8, 4, 2, 1] {
                    for j in 0..half {
                        let ($all, $v) = (parts[j], parts[j + half]);
                        parts[j] = $body;
                    }
                }
                let ($all, $v) = (whole, f64::from(parts[0]));
                whole = $body;
            }
            for at in body..cols {
                let ($all, $v) = (whole, f64::from(*row.add(at)));
                whole = $body;
            }
            *$f.to.add(r) = whole;
        }
    }};
}

/// Accumulates the values of a tile into partial results. Maximum and minimum
/// keep NaN.
///
/// # Safety
/// `from` holds `rows * cols` floats; `to` holds `rows` partial results that are not shared.
#[inline(always)]
pub(crate) unsafe fn fold(f: &Fold) {
    // SAFETY: every index stays below rows and rows * cols.
    unsafe {
        match f.op {
            ReduceOp::Sum | ReduceOp::Mean => folded!(f, f32, 0.0, |all, v| all + v),
            ReduceOp::Prod => folded!(f, f64, 1.0, |all, v| all * v),
            ReduceOp::Max => folded!(f, f32, f32::NEG_INFINITY, |all, v| {
                if v > all || v.is_nan() { v } else { all }
            }),
            ReduceOp::Min => folded!(f, f32, f32::INFINITY, |all, v| {
                if v < all || v.is_nan() { v } else { all }
            }),
        }
    }
}

/// Returns the partial result of a reduction of no values, from which every reduction starts.
pub(super) fn nothing(op: ReduceOp) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => f64::NEG_INFINITY,
        ReduceOp::Min => f64::INFINITY,
    }
}

/// Returns the final result of a reduction of `count` values.
pub(super) fn finish(op: ReduceOp, all: f64, count: usize) -> f32 {
    match op {
        ReduceOp::Mean => (all / count as f64) as f32,
        _ => all as f32,
    }
}
