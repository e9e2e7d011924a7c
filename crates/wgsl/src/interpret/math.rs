//! Built-in functions on registers: componentwise here, on whole vectors in `vectors.rs`, on packed
//! words in `packing.rs`.

use naga::{MathFunction as F, ScalarKind};

use super::number::{bounded, f};
use super::packing;

/// A built-in function, with the scalar kind of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) fun: F,
    pub(super) kind: ScalarKind,
}

/// The form of a function's arguments and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One result for each component.
    Component,
    /// One result, a scalar or a vector, of whole vectors.
    Vector,
    /// A conversion between a word and a vector.
    Packed,
    /// A struct of two results for each component.
    Split,
    Matrix,
}

pub(super) fn form(fun: F) -> Form {
    match fun {
        F::Dot
        | F::Cross
        | F::Distance
        | F::Length
        | F::Normalize
        | F::FaceForward
        | F::Reflect
        | F::Refract => Form::Vector,
        F::Modf | F::Frexp => Form::Split,
        F::Transpose | F::Determinant | F::Inverse | F::Outer => Form::Matrix,
        fun if packing::is_packing(fun) => Form::Packed,
        _ => Form::Component,
    }
}

/// Computes one component of the result from the same component of each argument.
pub(super) fn component(function: Function, a: [u32; 4]) -> u32 {
    match function.kind {
        ScalarKind::Float => float(function.fun, a).to_bits(),
        _ => integer(function.fun, function.kind == ScalarKind::Sint, a),
    }
}

fn float(fun: F, args: [u32; 4]) -> f32 {
    let [a, b, c] = [f(args[0]), f(args[1]), f(args[2])];
    match fun {
        F::Abs => a.abs(),
        F::Min => a.min(b),
        F::Max => a.max(b),
        F::Clamp => a.max(b).min(c),
        F::Saturate => bounded(a, 0.0, 1.0),
        F::Cos => a.cos(),
        F::Cosh => a.cosh(),
        F::Sin => a.sin(),
        F::Sinh => a.sinh(),
        F::Tan => a.tan(),
        F::Tanh => a.tanh(),
        F::Acos => a.acos(),
        F::Asin => a.asin(),
        F::Atan => a.atan(),
        F::Atan2 => a.atan2(b),
        F::Asinh => a.asinh(),
        F::Acosh => a.acosh(),
        F::Atanh => a.atanh(),
        F::Radians => a.to_radians(),
        F::Degrees => a.to_degrees(),
        F::Ceil => a.ceil(),
        F::Floor => a.floor(),
        F::Round => a.round_ties_even(),
        F::Fract => a - a.floor(),
        F::Trunc => a.trunc(),
        F::Ldexp => ldexp(a, args[1] as i32),
        F::Exp => a.exp(),
        F::Exp2 => a.exp2(),
        F::Log => a.ln(),
        F::Log2 => a.log2(),
        F::Pow => a.powf(b),
        F::Sign => f32::from(i8::from(a > 0.0) - i8::from(a < 0.0)),
        F::Fma => a.mul_add(b, c),
        F::Mix => a * (1.0 - c) + b * c,
        F::Step => f32::from(u8::from(a <= b)),
        F::SmoothStep => {
            let t = bounded((c - a) / (b - a), 0.0, 1.0);
            t * t * (3.0 - 2.0 * t)
        }
        F::Sqrt => a.sqrt(),
        F::InverseSqrt => 1.0 / a.sqrt(),
        F::QuantizeToF16 => super::number::to_half(a),
        // Refused at compilation.
        _ => f32::NAN,
    }
}

/// Returns whether the function exists for components of this kind.
pub(super) fn has_component(function: Function) -> bool {
    let of_both = matches!(function.fun, F::Abs | F::Min | F::Max | F::Clamp | F::Sign);
    let of_integers = matches!(
        function.fun,
        F::CountTrailingZeros
            | F::CountLeadingZeros
            | F::CountOneBits
            | F::ReverseBits
            | F::ExtractBits
            | F::InsertBits
            | F::FirstTrailingBit
            | F::FirstLeadingBit
            | F::Dot4I8Packed
            | F::Dot4U8Packed
    );
    match function.kind {
        ScalarKind::Float => !of_integers,
        ScalarKind::Sint | ScalarKind::Uint => of_both || of_integers,
        _ => false,
    }
}

/// Computes `a * 2^b` without intermediate overflow.
fn ldexp(a: f32, b: i32) -> f32 {
    // f64 holds every f32 times 2^b for any b that matters.
    (f64::from(a) * 2f64.powi(b.clamp(-400, 400))) as f32
}

fn integer(fun: F, signed: bool, args: [u32; 4]) -> u32 {
    let [a, b, c, d] = args;
    let (ia, ib, ic) = (a as i32, b as i32, c as i32);
    match (fun, signed) {
        (F::Abs, true) => ia.wrapping_abs() as u32,
        (F::Abs, false) => a,
        (F::Min, true) => ia.min(ib) as u32,
        (F::Min, false) => a.min(b),
        (F::Max, true) => ia.max(ib) as u32,
        (F::Max, false) => a.max(b),
        (F::Clamp, true) => ia.max(ib).min(ic) as u32,
        (F::Clamp, false) => a.max(b).min(c),
        (F::Sign, true) => ia.signum() as u32,
        (F::Sign, false) => a.min(1),
        (F::CountTrailingZeros, _) => a.trailing_zeros(),
        (F::CountLeadingZeros, _) => a.leading_zeros(),
        (F::CountOneBits, _) => a.count_ones(),
        (F::ReverseBits, _) => a.reverse_bits(),
        (F::FirstTrailingBit, _) => {
            if a == 0 {
                u32::MAX
            } else {
                a.trailing_zeros()
            }
        }
        (F::FirstLeadingBit, true) => {
            let bits = if ia < 0 { !a } else { a };
            31u32.wrapping_sub(bits.leading_zeros())
        }
        (F::FirstLeadingBit, false) => 31u32.wrapping_sub(a.leading_zeros()),
        (F::ExtractBits, _) => extract(a, b, c, signed),
        (F::InsertBits, _) => insert(a, b, c, d),
        (F::Dot4I8Packed, _) => dot4(a, b, |byte| i32::from(byte as i8)),
        (F::Dot4U8Packed, _) => dot4(a, b, i32::from),
        // Refused at compilation.
        _ => 0,
    }
}

fn dot4(a: u32, b: u32, part: impl Fn(u8) -> i32) -> u32 {
    let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
    pairs.map(|(a, b)| part(a) * part(b)).sum::<i32>() as u32
}

/// Clamps the offset and length of a bit field to 32 bits.
fn within(offset: u32, count: u32) -> (u32, u32) {
    let offset = offset.min(32);
    (offset, count.min(32 - offset))
}

fn extract(a: u32, offset: u32, count: u32, signed: bool) -> u32 {
    let (offset, count) = within(offset, count);
    if count == 0 {
        return 0;
    }
    let high = a << (32 - count - offset);
    match signed {
        true => (high as i32 >> (32 - count)) as u32,
        false => high >> (32 - count),
    }
}

fn insert(a: u32, b: u32, offset: u32, count: u32) -> u32 {
    let (offset, count) = within(offset, count);
    if count == 0 {
        return a;
    }
    let mask = (u32::MAX >> (32 - count)) << offset;
    (a & !mask) | ((b << offset) & mask)
}

/// Computes the two results of `modf` or `frexp` for one component, in the order of their struct.
pub(super) fn split(fun: F, a: u32) -> (u32, u32) {
    let value = f(a);
    if fun == F::Modf {
        let whole = value.trunc();
        return ((value - whole).to_bits(), whole.to_bits());
    }
    if value == 0.0 || !value.is_finite() {
        return (a, 0);
    }
    // Denormals are normalised first.
    let (value, shift) = if value.is_normal() { (value, 0) } else { (value * 2f32.powi(32), 32) };
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 126 - shift;
    ((bits & 0x807f_ffff) | 0x3f00_0000, exponent as u32)
}
