//! Compiles value expressions.

use naga::{BinaryOperator, Expression, Handle, MathFunction as F, RelationalFunction};
use naga::{Scalar, ScalarKind, TypeInner};

use super::body::Body;
use super::bytecode::{Op, Root, Slot};
use super::compile::{four, not_valid};
use super::layout::{refused, scalar};
use super::lvalue::is_pointer;
use super::math::{self, Form, Function};
use super::number::{self, Unary};
use super::packing;
use warploom_core::error::Result;

/// Returns the number of components of a scalar, vector or matrix.
fn components(inner: &TypeInner) -> u8 {
    match *inner {
        TypeInner::Vector { size, .. } => size as u8,
        TypeInner::Matrix { columns, rows, .. } => columns as u8 * rows as u8,
        _ => 1,
    }
}

fn has_components(inner: &TypeInner) -> bool {
    matches!(inner, TypeInner::Vector { .. } | TypeInner::Matrix { .. })
}

impl Body<'_, '_> {
    /// Evaluates an expression at its `Emit` statement.
    pub(super) fn emit(&mut self, h: Handle<Expression>) -> Result<()> {
        // Pointers are resolved at their uses.
        if !is_pointer(self.inner(h)) {
            self.c.span = self.function.expressions.get_span(h);
            self.slots[h.index()] = self.evaluate(h)?;
        }
        Ok(())
    }

    /// Returns the first register of an expression's value, evaluating it if necessary.
    pub(super) fn value(&mut self, h: Handle<Expression>) -> Result<Slot> {
        match self.slots[h.index()] {
            super::bytecode::NONE if is_pointer(self.inner(h)) => self.pointer(h),
            super::bytecode::NONE => self.evaluate(h),
            slot => Ok(slot),
        }
    }

    fn evaluate(&mut self, h: Handle<Expression>) -> Result<Slot> {
        let function = self.function;
        let n = match self.inner(h) {
            inner if is_pointer(inner) => return self.pointer(h),
            inner => self.size(inner)?,
        };
        match function.expressions[h] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => {
                let words = self.c.constant(&function.expressions, h)?;
                self.c.fixed(words)
            }
            Expression::FunctionArgument(index) => Ok(self.arguments[index as usize]),
            Expression::AccessIndex { base, index } => self.part(base, index),
            Expression::Access { base, index } => {
                let from = self.value(base)?;
                let count = self.size(self.inner(base))? / n.max(1);
                let signed = self.scalar(index)?.kind == ScalarKind::Sint;
                let (index, to) = (self.value(index)?, self.c.registers(n)?);
                self.c.push(Op::Pick { to, from, index, count, n, signed });
                Ok(to)
            }
            Expression::Load { pointer } => self.load(pointer),
            Expression::Compose { ref components, .. } => {
                let to = self.c.registers(n)?;
                let mut at = to;
                for component in components {
                    let size = self.size(self.inner(*component))?;
                    let from = self.value(*component)?;
                    self.c.push(Op::Copy { to: at, from, n: size });
                    at += size;
                }
                Ok(to)
            }
            Expression::Splat { size, value } => {
                let (from, to) = (self.value(value)?, self.c.registers(n)?);
                self.c.push(Op::Swizzle { to, from, pattern: [0; 4], n: size as u8 });
                Ok(to)
            }
            Expression::Swizzle { size, vector, pattern } => {
                let (from, to) = (self.value(vector)?, self.c.registers(n)?);
                let pattern = pattern.map(|component| component as u8);
                self.c.push(Op::Swizzle { to, from, pattern, n: size as u8 });
                Ok(to)
            }
            Expression::Unary { op, expr } => {
                let op = number::unary_op(op, self.scalar(expr)?);
                let (a, to) = (self.value(expr)?, self.c.registers(n)?);
                self.c.push(Op::Unary { op, to, a, n: n as u8 });
                Ok(to)
            }
            Expression::Binary { op, left, right } => self.binary(op, left, right, n),
            Expression::Select { condition, accept, reject } => {
                let by_component = has_components(self.inner(condition));
                let condition = self.value(condition)?;
                let (accept, reject) = (self.value(accept)?, self.value(reject)?);
                let to = self.c.registers(n)?;
                self.c.push(Op::Select { to, condition, accept, reject, n, by_component });
                Ok(to)
            }
            Expression::Relational { fun, argument } => {
                let size = components(self.inner(argument));
                let (from, to) = (self.value(argument)?, self.c.registers(n)?);
                let op = match fun {
                    RelationalFunction::All => Op::Join { to, from, n: size, all: true },
                    RelationalFunction::Any => Op::Join { to, from, n: size, all: false },
                    RelationalFunction::IsNan => {
                        Op::Unary { op: Unary::IsNan, to, a: from, n: size }
                    }
                    RelationalFunction::IsInf => {
                        Op::Unary { op: Unary::IsInf, to, a: from, n: size }
                    }
                };
                self.c.push(op);
                Ok(to)
            }
            Expression::As { expr, kind, convert } => self.cast(expr, kind, convert, n),
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let args = [Some(arg), arg1, arg2, arg3];
                self.math(fun, args.into_iter().flatten().collect(), n)
            }
            Expression::ArrayLength(array) => {
                let spot = self.place(array)?;
                let Root::Region(region) = spot.root else {
                    return Err(not_valid("the length of an array of fixed size"));
                };
                let to = self.c.registers(1)?;
                self.c.push(Op::Length { to, region });
                Ok(to)
            }
            Expression::CooperativeLoad { ref data, .. } => self.cooperative_load(h, data),
            Expression::CooperativeMultiplyAdd { a, b, c } => self.cooperative_multiply([a, b, c]),
            Expression::Derivative { .. } => Err(refused("derivatives")),
            Expression::ImageSample { .. }
            | Expression::ImageLoad { .. }
            | Expression::ImageQuery { .. } => Err(refused("textures")),
            ref other => Err(refused(&format!("the expression {other:?}"))),
        }
    }

    fn scalar(&self, h: Handle<Expression>) -> Result<Scalar> {
        scalar(self.inner(h)).ok_or_else(|| not_valid("an operand that is not a number"))
    }

    /// Returns the first register of a component, which lies among the registers of the value.
    fn part(&mut self, base: Handle<Expression>, index: u32) -> Result<Slot> {
        let from = self.value(base)?;
        let module = self.c.module;
        let offset = match *self.inner(base) {
            TypeInner::Vector { .. } => index,
            TypeInner::Matrix { rows, .. } => index * rows as u32,
            TypeInner::Array { base, .. } => index * self.c.size_of(base)?,
            TypeInner::Struct { ref members, .. } => {
                let mut offset = 0;
                for member in &members[..index as usize] {
                    offset += self.size(&module.types[member.ty].inner)?;
                }
                offset
            }
            ref other => return Err(refused(&format!("an index into {other:?}"))),
        };
        Ok(from + offset)
    }

    /// Rounds the `n` registers from `at` to f16 if their type is f16.
    pub(super) fn rounded(&mut self, scalar: Scalar, at: Slot, n: u32) {
        if scalar == Scalar::F16 {
            self.c.push(Op::Halves { at, n });
        }
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
        n: u32,
    ) -> Result<Slot> {
        use TypeInner::{Matrix, Vector};
        let scalar = self.scalar(left)?;
        let (mut a, mut b) = (self.value(left)?, self.value(right)?);
        let to = self.c.registers(n)?;
        let sizes = match (self.inner(left), self.inner(right)) {
            _ if op != BinaryOperator::Multiply => None,
            (Matrix { columns, rows, .. }, Vector { .. }) => Some([*rows as u8, *columns as u8, 1]),
            (Vector { .. }, Matrix { columns, rows, .. }) => Some([1, *rows as u8, *columns as u8]),
            (Matrix { columns: shared, rows, .. }, Matrix { columns, .. }) => {
                Some([*rows as u8, *shared as u8, *columns as u8])
            }
            _ => None,
        };
        if let Some([rows, shared, columns]) = sizes {
            self.c.push(Op::Matrix { to, a, b, rows, shared, columns });
            self.rounded(scalar, to, n);
            return Ok(to);
        }
        let (name, swapped) = number::binary_op(op, scalar.kind);
        let bits = [left, right].map(|h| u8::from(has_components(self.inner(h))));
        let mut steps = bits[0] | bits[1] << 1;
        if swapped {
            std::mem::swap(&mut a, &mut b);
            steps = bits[1] | bits[0] << 1;
        }
        self.c.push(Op::Binary { op: name, to, a, b, n: n as u8, steps });
        if !number::compares(op) {
            self.rounded(scalar, to, n);
        }
        Ok(to)
    }

    fn cast(
        &mut self,
        expr: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
        n: u32,
    ) -> Result<Slot> {
        let from = self.scalar(expr)?;
        let width = convert.unwrap_or(from.width);
        let half = kind == ScalarKind::Float && width == 2;
        if convert.is_none() && from.width != 4 && from.kind != ScalarKind::Bool && !half {
            return Err(refused(&format!("a bitcast of {from:?}")));
        }
        let op = match convert {
            Some(_) => number::conversion(from.kind, kind),
            None => Unary::Bits,
        };
        let (a, to) = (self.value(expr)?, self.c.registers(n)?);
        self.c.push(Op::Unary { op, to, a, n: n as u8 });
        if half && convert.is_some() {
            self.rounded(Scalar::F16, to, n);
        }
        Ok(to)
    }

    fn math(&mut self, fun: F, args: Vec<Handle<Expression>>, n: u32) -> Result<Slot> {
        let scalar = self.scalar(args[0])?;
        let inner = self.inner(args[0]);
        let function = Function { fun, kind: scalar.kind };
        let mut slots = Vec::new();
        let mut steps = 0;
        for (i, arg) in args.iter().enumerate() {
            slots.push(self.value(*arg)?);
            steps |= u8::from(has_components(self.inner(*arg))) << i;
        }
        let to = self.c.registers(n)?;
        let table = self.c.code.math.len() as u32;
        self.c.code.math.push(four(&slots));
        let whole = |n: u8| Op::Whole { fun: function, to, args: table, n };
        let op = match math::form(fun) {
            Form::Component if math::has_component(function) => {
                Op::Math { fun: function, to, args: table, n: n as u8, steps }
            }
            Form::Component => return Err(refused(&format!("{fun:?} of {scalar:?}"))),
            Form::Vector | Form::Split => whole(components(inner)),
            Form::Packed => whole(packing::components(fun) as u8),
            Form::Matrix => match *inner {
                TypeInner::Matrix { columns, rows, .. } if fun == F::Transpose => {
                    let (rows, columns) = (rows as u8, columns as u8);
                    Op::Transpose { to, a: slots[0], rows, columns }
                }
                TypeInner::Matrix { columns, .. } if fun == F::Determinant => whole(columns as u8),
                _ => return Err(refused(&format!("{fun:?}"))),
            },
        };
        self.c.push(op);
        if !matches!(math::form(fun), Form::Packed | Form::Split) {
            self.rounded(scalar, to, n);
        }
        Ok(to)
    }
}
