//! Operators on registers, with WGSL's semantics: integers wrap, shift amounts are modulo 32,
//! division by zero yields the dividend, and float-to-integer conversions saturate.

use half::f16;
use naga::{BinaryOperator, Scalar, ScalarKind, UnaryOperator};

/// An operation on one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Bits,
    NegF32,
    NegI32,
    Not,
    Complement,
    F32OfI32,
    F32OfU32,
    I32OfF32,
    U32OfF32,
    BoolOfBits,
    BoolOfF32,
    F32OfBool,
    IsNan,
    IsInf,
}

/// An operation on two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    AddF32,
    SubF32,
    MulF32,
    DivF32,
    RemF32,
    MinF32,
    MaxF32,
    Add,
    Sub,
    Mul,
    DivI32,
    DivU32,
    RemI32,
    RemU32,
    MinI32,
    MaxI32,
    MinU32,
    MaxU32,
    And,
    Or,
    Xor,
    Shl,
    ShrI32,
    ShrU32,
    Equal,
    NotEqual,
    LessI32,
    LessEqualI32,
    LessU32,
    LessEqualU32,
    EqualF32,
    NotEqualF32,
    LessF32,
    LessEqualF32,
}

pub(super) fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Clamps the value; NaN yields the lower bound, as on devices.
pub(super) fn bounded(value: f32, low: f32, high: f32) -> f32 {
    if value > low { value.min(high) } else { low }
}

/// Rounds to the nearest f16, as an `f32`.
pub(super) fn to_half(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

pub(super) fn unary_op(op: UnaryOperator, scalar: Scalar) -> Unary {
    match (op, scalar.kind) {
        (UnaryOperator::Negate, ScalarKind::Float) => Unary::NegF32,
        (UnaryOperator::Negate, _) => Unary::NegI32,
        (UnaryOperator::LogicalNot, _) => Unary::Not,
        (UnaryOperator::BitwiseNot, _) => Unary::Complement,
    }
}

/// Returns the conversion between two scalar kinds.
pub(super) fn conversion(from: ScalarKind, to: ScalarKind) -> Unary {
    use ScalarKind::{Bool, Float, Sint, Uint};
    match (from, to) {
        (Float, Sint) => Unary::I32OfF32,
        (Float, Uint) => Unary::U32OfF32,
        (Float, Bool) => Unary::BoolOfF32,
        (Sint, Float) => Unary::F32OfI32,
        (Uint, Float) => Unary::F32OfU32,
        (Bool, Float) => Unary::F32OfBool,
        (Sint | Uint, Bool) => Unary::BoolOfBits,
        _ => Unary::Bits,
    }
}

/// Returns the operation for an operator, and whether its operands must be swapped.
pub(super) fn binary_op(op: BinaryOperator, kind: ScalarKind) -> (Binary, bool) {
    use BinaryOperator as Op;
    use ScalarKind::{Float, Sint};
    let swapped = matches!(op, Op::Greater | Op::GreaterEqual);
    let pick = |float, signed, unsigned| match kind {
        Float => float,
        Sint => signed,
        _ => unsigned,
    };
    let op = match op {
        Op::Add => pick(Binary::AddF32, Binary::Add, Binary::Add),
        Op::Subtract => pick(Binary::SubF32, Binary::Sub, Binary::Sub),
        Op::Multiply => pick(Binary::MulF32, Binary::Mul, Binary::Mul),
        Op::Divide => pick(Binary::DivF32, Binary::DivI32, Binary::DivU32),
        Op::Modulo => pick(Binary::RemF32, Binary::RemI32, Binary::RemU32),
        Op::Equal => pick(Binary::EqualF32, Binary::Equal, Binary::Equal),
        Op::NotEqual => pick(Binary::NotEqualF32, Binary::NotEqual, Binary::NotEqual),
        Op::Less | Op::Greater => pick(Binary::LessF32, Binary::LessI32, Binary::LessU32),
        Op::LessEqual | Op::GreaterEqual => {
            pick(Binary::LessEqualF32, Binary::LessEqualI32, Binary::LessEqualU32)
        }
        Op::And | Op::LogicalAnd => Binary::And,
        Op::InclusiveOr | Op::LogicalOr => Binary::Or,
        Op::ExclusiveOr => Binary::Xor,
        Op::ShiftLeft => Binary::Shl,
        Op::ShiftRight => pick(Binary::ShrU32, Binary::ShrI32, Binary::ShrU32),
    };
    (op, swapped)
}

/// Returns whether the operator is a comparison.
pub(super) fn compares(op: BinaryOperator) -> bool {
    use BinaryOperator as Op;
    matches!(
        op,
        Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual
    )
}

pub(super) fn unary(op: Unary, a: u32) -> u32 {
    match op {
        Unary::Bits => a,
        Unary::NegF32 => a ^ 0x8000_0000,
        Unary::NegI32 => a.wrapping_neg(),
        Unary::Not => a ^ 1,
        Unary::Complement => !a,
        Unary::F32OfI32 => (a as i32 as f32).to_bits(),
        Unary::F32OfU32 => (a as f32).to_bits(),
        // The upper bound is the largest f32 that the integer type can hold.
        Unary::I32OfF32 => bounded(f(a), -2_147_483_648.0, 2_147_483_520.0) as i32 as u32,
        Unary::U32OfF32 => bounded(f(a), 0.0, 4_294_967_040.0) as u32,
        Unary::BoolOfBits => u32::from(a != 0),
        Unary::BoolOfF32 => u32::from(f(a) != 0.0),
        Unary::F32OfBool => ((a & 1) as f32).to_bits(),
        Unary::IsNan => u32::from(f(a).is_nan()),
        Unary::IsInf => u32::from(f(a).is_infinite()),
    }
}

#[inline]
pub(super) fn binary(op: Binary, a: u32, b: u32) -> u32 {
    let (ia, ib) = (a as i32, b as i32);
    let (fa, fb) = (f(a), f(b));
    match op {
        Binary::AddF32 => (fa + fb).to_bits(),
        Binary::SubF32 => (fa - fb).to_bits(),
        Binary::MulF32 => (fa * fb).to_bits(),
        Binary::DivF32 => (fa / fb).to_bits(),
        Binary::RemF32 => (fa % fb).to_bits(),
        Binary::MinF32 => fa.min(fb).to_bits(),
        Binary::MaxF32 => fa.max(fb).to_bits(),
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::DivI32 => match ib {
            0 => a,
            _ => ia.wrapping_div(ib) as u32,
        },
        Binary::DivU32 => a.checked_div(b).unwrap_or(a),
        Binary::RemI32 => match ib {
            0 => 0,
            _ => ia.wrapping_rem(ib) as u32,
        },
        Binary::RemU32 => a.checked_rem(b).unwrap_or(0),
        Binary::MinI32 => ia.min(ib) as u32,
        Binary::MaxI32 => ia.max(ib) as u32,
        Binary::MinU32 => a.min(b),
        Binary::MaxU32 => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a.wrapping_shl(b),
        Binary::ShrI32 => ia.wrapping_shr(b) as u32,
        Binary::ShrU32 => a.wrapping_shr(b),
        Binary::Equal => u32::from(a == b),
        Binary::NotEqual => u32::from(a != b),
        Binary::LessI32 => u32::from(ia < ib),
        Binary::LessEqualI32 => u32::from(ia <= ib),
        Binary::LessU32 => u32::from(a < b),
        Binary::LessEqualU32 => u32::from(a <= b),
        Binary::EqualF32 => u32::from(fa == fb),
        Binary::NotEqualF32 => u32::from(fa != fb),
        Binary::LessF32 => u32::from(fa < fb),
        Binary::LessEqualF32 => u32::from(fa <= fb),
    }
}
