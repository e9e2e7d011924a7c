//! Adds elementwise operations with broadcasting to random graphs.

use super::range::{self, Range};
use super::{Known, Maker};
use warploom_core::base::{DType, Dim, Shape};
use warploom_core::ir::{BinaryOp, Op, UnaryOp};

/// Functions with a small range for any operand.
const SATURATING: [UnaryOp; 3] = [UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Erf];

impl Maker {
    pub(super) fn unary(&mut self, op: UnaryOp, x: Known) -> Option<Known> {
        let dtype = self.dtype(x);
        let range = match (dtype, op) {
            (DType::Bool, UnaryOp::Not) => x.range,
            (_, UnaryOp::Not) => return None,
            _ if dtype.is_float() => range::unary(op, x.range)?,
            (DType::I32, UnaryOp::Neg | UnaryOp::Abs) => {
                let range = range::unary(op, x.range)?;
                let whole = range::whole(dtype);
                if range.high <= whole.high { range } else { whole }
            }
            _ => return None,
        };
        Some(self.add(Op::Unary(op), &[x], range))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Known, b: Known) -> Option<Known> {
        let dtype = self.dtype(a);
        if self.dtype(b) != dtype {
            return None;
        }
        self.broadcast(&[a, b])?;
        let range = match dtype {
            _ if dtype.is_float() && !op.is_logical() => {
                range::binary(op, a.range, b.range, a.id == b.id)?
            }
            DType::I32 | DType::U32 if !op.is_logical() && op != BinaryOp::Pow => {
                range::integers(op, dtype, a.range, b.range)
            }
            DType::Bool if op.is_logical() || matches!(op, BinaryOp::Eq | BinaryOp::Ne) => {
                range::whole(dtype)
            }
            _ => return None,
        };
        Some(self.add(Op::Binary(op), &[a, b], range))
    }

    pub(super) fn select(&mut self, c: Known, a: Known, b: Known) -> Option<Known> {
        if self.dtype(c) != DType::Bool || self.dtype(a) != self.dtype(b) {
            return None;
        }
        self.broadcast(&[c, a, b])?;
        Some(self.add(Op::Select, &[c, a, b], a.range.union(b.range)))
    }

    pub(super) fn cast(&mut self, to: DType, x: Known) -> Option<Known> {
        let range = range::cast(self.dtype(x), to, x.range)?;
        Some(self.add(Op::Cast(to), &[x], range))
    }

    /// Returns the broadcast shape of several operands, if it exists and is not too large.
    pub(super) fn broadcast(&self, all: &[Known]) -> Option<Shape> {
        let mut shape = Shape::default();
        for x in all {
            shape = shape.broadcast(&self.b.shape(x.id)).ok()?;
        }
        self.fits(shape.dims()).then_some(shape)
    }

    /// Returns a shape that broadcasts to these sizes: some sizes are 1, or leading ones are
    /// omitted.
    fn narrower(&mut self, dims: &[Dim]) -> Vec<Dim> {
        match self.below(5) {
            0 => dims.to_vec(),
            1 => dims.iter().skip(1).cloned().collect(),
            2 => dims.last().cloned().into_iter().collect(),
            3 => {
                let last = dims.len().saturating_sub(1);
                let keep = |(i, d): (usize, &Dim)| if i == last { Dim::new(1) } else { d.clone() };
                dims.iter().enumerate().map(keep).collect()
            }
            _ => {
                let all: Vec<bool> = dims.iter().map(|_| self.random.below(2) == 0).collect();
                let keep = |(d, k): (&Dim, bool)| if k { d.clone() } else { Dim::new(1) };
                dims.iter().zip(all).map(keep).collect()
            }
        }
    }

    /// Returns a second operand for an operation on `x`.
    pub(super) fn partner(&mut self, x: Known) -> Known {
        let dtype = self.dtype(x);
        let found = match self.below(10) {
            0..5 => self.pick(|maker, y| {
                y.id != x.id && maker.dtype(y) == dtype && maker.broadcast(&[x, y]).is_some()
            }),
            5 if dtype == DType::F32 => {
                let value = self.one_of(&[0.5, 2.0, -1.0, 0.25, 1.5, 0.1, 3.0, 0.044_715]);
                Some(self.constant(value))
            }
            6 => Some(x),
            _ => None,
        };
        match found {
            Some(y) => y,
            None => {
                let dims = self.dims(x);
                let dims = self.narrower(&dims);
                match dtype {
                    DType::F32 => self.new_float(Some(dims)),
                    DType::F16 | DType::BF16 => self.new_half(dtype, &dims),
                    DType::I32 => self.new_integers(dtype, &dims, -9, 9),
                    _ => self.new_integers(dtype, &dims, 0, 1 + i32::from(dtype == DType::U32) * 8),
                }
            }
        }
    }

    /// Adds a unary or binary operation; `None` if the random choice does not fit.
    pub(super) fn any_elementwise(&mut self, x: Known) -> Option<Known> {
        match self.dtype(x) {
            DType::F32 if self.chance(4) => self.half(x),
            DType::F16 | DType::BF16 if self.chance(20) => self.cast(DType::F32, x),
            dtype if dtype.is_float() && self.chance(45) => {
                let op = self.one_of(&UnaryOp::ALL);
                self.unary(op, x)
            }
            dtype if dtype.is_float() => {
                use BinaryOp::{Add, Div, Max, Min, Mul, Pow, Rem, Sub};
                let op = self.one_of(&[
                    Add, Add, Add, Sub, Sub, Mul, Mul, Mul, Div, Div, Min, Max, Pow, Rem,
                ]);
                if op == Rem && dtype != DType::F32 {
                    return None;
                }
                if op == Rem {
                    let value = self.one_of(&[0.5, 1.0, 2.0]);
                    let power = self.constant(value);
                    return self.binary(op, x, power);
                }
                let y = self.partner(x);
                match self.chance(75) {
                    true => self.binary(op, x, y),
                    false => self.binary(op, y, x),
                }
            }
            _ => self.any_integer(x),
        }
    }

    /// Adds a conversion to a 2-byte type.
    pub(super) fn half(&mut self, x: Known) -> Option<Known> {
        let to = self.one_of(&[DType::F16, DType::BF16]);
        self.cast(to, x)
    }

    fn any_integer(&mut self, x: Known) -> Option<Known> {
        let op = self.one_of(&BinaryOp::ALL);
        match self.below(5) {
            0 => {
                let op = self.one_of(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not]);
                self.unary(op, x)
            }
            1 => {
                let to = self.one_of(&[DType::F32, DType::I32, DType::U32, DType::Bool]);
                self.cast(to, x)
            }
            _ => {
                let y = self.partner(x);
                self.binary(op, x, y)
            }
        }
    }

    /// Adds a chain of up to `length` elementwise operations.
    pub(super) fn chain(&mut self, x: Known, length: u32) -> Known {
        let mut y = x;
        for _ in 0..length {
            for _ in 0..4 {
                if let Some(next) = self.any_elementwise(y) {
                    y = next;
                    break;
                }
            }
            y = self.tame(y);
        }
        y
    }

    /// Adds an operation that reduces the magnitude of `x` if its values may be large.
    pub(super) fn tame(&mut self, x: Known) -> Known {
        let Range { low, high, .. } = x.range;
        if self.dtype(x) != DType::F32 || x.range.most() <= 24.0 {
            return x;
        }
        if low != high && self.chance(30) {
            let op = self.one_of(&SATURATING);
            if let Some(y) = self.unary(op, x) {
                return y;
            }
        }
        let factor = (2.0 / x.range.most()).log2().floor().exp2();
        let factor = self.constant(factor as f32);
        self.binary(BinaryOp::Mul, x, factor).unwrap_or(x)
    }

    /// Returns a condition that broadcasts to the shape of `x`: a comparison of exact values, or an
    /// input.
    pub(super) fn condition(&mut self, x: Known) -> Option<Known> {
        use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
        if self.dtype(x) == DType::F32 && x.range.is_exact() && self.chance(70) {
            let value = self.one_of(&[0.0, 0.5, -0.25]);
            let y = match self.chance(50) {
                true => self.constant(value),
                false => self.partner(x),
            };
            let op = self.one_of(&[Lt, Le, Gt, Ge, Eq, Ne]);
            if let Some(c) = self.binary(op, x, y) {
                return Some(c);
            }
        }
        let dims = self.dims(x);
        let dims = self.narrower(&dims);
        Some(self.new_integers(DType::Bool, &dims, 0, 1))
    }

    /// Adds a selection between two tensors by a condition.
    pub(super) fn masked(&mut self, x: Known) -> Option<Known> {
        let c = self.condition(x)?;
        let c = match self.chance(25) {
            true => self.unary(UnaryOp::Not, c)?,
            false => c,
        };
        let y = self.partner(x);
        match self.chance(50) {
            true => self.select(c, x, y),
            false => self.select(c, y, x),
        }
    }

    /// Adds a conversion to integers, operations on them, and usually the conversion back.
    pub(super) fn through_integers(&mut self, x: Known) -> Option<Known> {
        let to = self.one_of(&[DType::I32, DType::U32, DType::I32, DType::Bool]);
        let mut y = self.cast(to, x)?;
        for _ in 0..self.below(4) {
            y = self.any_integer(y).unwrap_or(y);
        }
        match self.dtype(y) {
            DType::F32 => Some(y),
            _ if self.chance(70) => self.cast(DType::F32, y),
            _ => Some(y),
        }
    }
}
