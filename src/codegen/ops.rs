//! One line of WGSL for each value of a fused expression, with the types checked.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{address, line};
use crate::base::DType;
use crate::ir::scalar::{BinaryOp, UnaryOp};
use crate::kernel::source::f32_literal;
use crate::kernel::{FusedExpr, Value};

/// The lines so far, the types of their values and the shared files that they need.
#[derive(Default)]
pub(super) struct Body {
    types: Vec<DType>,
    lines: String,
    declarations: String,
    imports: BTreeSet<&'static str>,
}

impl Body {
    pub(super) fn lines(&self) -> &str {
        &self.lines
    }

    /// Module-scope variables.
    pub(super) fn declarations(&self) -> &str {
        &self.declarations
    }

    pub(super) fn imports(&self) -> impl Iterator<Item = &'static str> {
        self.imports.iter().copied()
    }

    /// The type of an earlier value.
    pub(super) fn dtype(&self, value: u32) -> Result<DType, String> {
        self.types
            .get(value as usize)
            .copied()
            .ok_or_else(|| format!("value {value} of {} is not an earlier one", self.types.len()))
    }

    /// Adds the line of the next value.
    pub(super) fn value(&mut self, expr: &FusedExpr, value: Value) -> Result<(), String> {
        let (dtype, text) = match value {
            Value::Input(i) => {
                let operand = expr
                    .inputs
                    .get(i as usize)
                    .ok_or_else(|| format!("input {i} of {}", expr.inputs.len()))?;
                let name = format!("x{i}");
                let (buffer, _, element) = &super::buffers(expr)[operand.binding as usize];
                let load = format!("{buffer}[{}]", address(&name, operand, expr.rank));
                let load = match super::stored(operand.dtype) {
                    stored if stored == *element => load,
                    stored => format!("bitcast<{stored}>({load})"),
                };
                let test = if operand.dtype == DType::Bool { " != 0u" } else { "" };
                (operand.dtype, load + test)
            }
            Value::Constant(dtype, bits) => (dtype, self.constant(dtype, bits)?),
            Value::Index => (DType::U32, "i".to_string()),
            Value::Unary(op, a) => {
                let dtype = self.dtype(a)?;
                (dtype, self.unary(op, dtype, &format!("v{a}"))?)
            }
            Value::Binary(op, a, b) => {
                let dtype = self.dtype(a)?;
                if self.dtype(b)? != dtype {
                    return Err(format!("{} of {dtype} and {}", op.name(), self.dtype(b)?));
                }
                let text = match small_power(expr, op, b) {
                    Some(power) if dtype == DType::F32 => power.replace('a', &format!("v{a}")),
                    _ => self.binary(op, dtype, &format!("v{a}"), &format!("v{b}"))?,
                };
                (if op.is_comparison() { DType::Bool } else { dtype }, text)
            }
            Value::Select(c, a, b) => {
                let (kind, dtype, other) = (self.dtype(c)?, self.dtype(a)?, self.dtype(b)?);
                if kind != DType::Bool || dtype != other {
                    return Err(format!("select by {kind} of {dtype} and {other}"));
                }
                (dtype, format!("select(v{b}, v{a}, v{c})"))
            }
            Value::Cast(to, a) => {
                let from = self.dtype(a)?;
                (to, self.cast(from, to, &format!("v{a}"))?)
            }
            Value::Reduce(op, _) => return Err(format!("{} outside of rows", op.name())),
            Value::Anchor(_) => return Err("an anchor outside of an attachment".into()),
        };
        line!(self.lines, "    let v{} = {text};", self.types.len());
        self.types.push(dtype);
        Ok(())
    }

    fn constant(&mut self, dtype: DType, bits: u32) -> Result<String, String> {
        Ok(match dtype {
            DType::F32 => {
                let value = f32::from_bits(bits);
                if value.is_finite() {
                    format!("({})", f32_literal(value))
                } else {
                    // WGSL has no literal for it, and no constant expression may be one.
                    let name = format!("bits{}", self.types.len());
                    line!(self.declarations, "var<private> {name}: u32 = {bits:#x}u;");
                    format!("bitcast<f32>({name})")
                }
            }
            DType::I32 => format!("bitcast<i32>({bits}u)"),
            DType::U32 => format!("{bits}u"),
            DType::Bool => format!("{}", bits != 0),
            DType::F16 | DType::BF16 => return Err(format!("a constant of {dtype}")),
        })
    }

    /// A function of a shared file.
    fn call(&mut self, file: &'static str, function: &str, arguments: &str) -> String {
        self.imports.insert(file);
        format!("{function}({arguments})")
    }

    fn unary(&mut self, op: UnaryOp, dtype: DType, a: &str) -> Result<String, String> {
        let fits = match op {
            UnaryOp::Not => dtype == DType::Bool,
            UnaryOp::Neg | UnaryOp::Abs => matches!(dtype, DType::F32 | DType::I32),
            _ => dtype == DType::F32,
        };
        if !fits {
            return Err(format!("{} of {dtype}", op.name()));
        }
        Ok(match op {
            // Not -x, which some targets turn into 0 - x and lose the sign of zero.
            UnaryOp::Neg if dtype == DType::F32 => {
                format!("bitcast<f32>(bitcast<u32>({a}) ^ 0x80000000u)")
            }
            UnaryOp::Neg => format!("bitcast<i32>(~bitcast<u32>({a}) + 1u)"),
            UnaryOp::Abs => format!("abs({a})"),
            UnaryOp::Exp => format!("exp({a})"),
            UnaryOp::Log => format!("log({a})"),
            UnaryOp::Sqrt => format!("sqrt({a})"),
            UnaryOp::Rsqrt => format!("1.0 / sqrt({a})"),
            UnaryOp::Reciprocal => format!("1.0 / {a}"),
            UnaryOp::Sin => self.call("math_trig", "sin_cos", &format!("{a}, 0.0")) + ".sin",
            UnaryOp::Cos => self.call("math_trig", "sin_cos", &format!("{a}, 0.0")) + ".cos",
            UnaryOp::Tanh => self.call("math_tanh", "tanh_f32", a),
            UnaryOp::Erf => self.call("math_erf", "erf_f32", a),
            UnaryOp::Floor => format!("floor({a})"),
            UnaryOp::Ceil => format!("ceil({a})"),
            UnaryOp::Round => format!("round({a})"),
            UnaryOp::Sigmoid => self.call("math_sigmoid", "sigmoid", a),
            UnaryOp::Silu => format!("{a} * {}", self.call("math_sigmoid", "sigmoid", a)),
            UnaryOp::Gelu => {
                let erfc = self.call("math_erf", "erfc_f32", &format!("{a} * -0.70710678"));
                format!("0.5 * {a} * {erfc}")
            }
            UnaryOp::GeluTanh => {
                // (1 + tanh u) / 2 = sigmoid(2 u), which keeps its digits where u is negative.
                let u = format!("1.5957691 * {a} * (1.0 + 0.044715 * {a} * {a})");
                format!("{a} * {}", self.call("math_sigmoid", "sigmoid", &u))
            }
            UnaryOp::Relu => format!("max({a}, 0.0)"),
            UnaryOp::Not => format!("!{a}"),
        })
    }

    fn binary(&mut self, op: BinaryOp, dtype: DType, a: &str, b: &str) -> Result<String, String> {
        let fits = match op {
            BinaryOp::And | BinaryOp::Or => dtype == DType::Bool,
            BinaryOp::Eq | BinaryOp::Ne => true,
            BinaryOp::Pow => dtype == DType::F32,
            _ => dtype != DType::Bool,
        };
        if !fits {
            return Err(format!("{} of {dtype}", op.name()));
        }
        let both = format!("{a}, {b}");
        Ok(match (op, dtype) {
            (BinaryOp::Add, _) => format!("{a} + {b}"),
            (BinaryOp::Sub, _) => format!("{a} - {b}"),
            (BinaryOp::Mul, _) => format!("{a} * {b}"),
            (BinaryOp::Div, DType::I32) => self.call("math_integers", "div_i32", &both),
            (BinaryOp::Div, DType::U32) => self.call("math_integers", "div_u32", &both),
            (BinaryOp::Div, _) => format!("{a} / {b}"),
            (BinaryOp::Rem, DType::I32) => self.call("math_integers", "rem_i32", &both),
            (BinaryOp::Rem, DType::U32) => self.call("math_integers", "rem_u32", &both),
            (BinaryOp::Rem, _) => self.call("math_rem", "rem_f32", &both),
            (BinaryOp::Pow, _) => self.call("math_pow", "pow_f32", &both),
            (BinaryOp::Min, _) => format!("min({both})"),
            (BinaryOp::Max, _) => format!("max({both})"),
            (BinaryOp::Eq, _) => format!("{a} == {b}"),
            (BinaryOp::Ne, _) => format!("{a} != {b}"),
            (BinaryOp::Lt, _) => format!("{a} < {b}"),
            (BinaryOp::Le, _) => format!("{a} <= {b}"),
            (BinaryOp::Gt, _) => format!("{a} > {b}"),
            (BinaryOp::Ge, _) => format!("{a} >= {b}"),
            (BinaryOp::And, _) => format!("{a} && {b}"),
            (BinaryOp::Or, _) => format!("{a} || {b}"),
        })
    }

    fn cast(&mut self, from: DType, to: DType, a: &str) -> Result<String, String> {
        use DType::{BF16, Bool, F16, F32, I32, U32};
        Ok(match (from, to) {
            (F16 | BF16, _) | (_, F16 | BF16) => {
                return Err(format!("cast of {from} to {to}"));
            }
            (F32, F32) | (I32, I32) | (U32, U32) | (Bool, Bool) => a.to_string(),
            (F32, I32) => self.call("math_casts", "cast_i32", a),
            (F32, U32) => self.call("math_casts", "cast_u32", a),
            (I32 | U32, F32) => format!("f32({a})"),
            (U32, I32) => format!("bitcast<i32>({a})"),
            (I32, U32) => format!("bitcast<u32>({a})"),
            (F32, Bool) => format!("{a} != 0.0"),
            (I32, Bool) => format!("{a} != 0"),
            (U32, Bool) => format!("{a} != 0u"),
            (Bool, F32) => format!("select(0.0, 1.0, {a})"),
            (Bool, I32) => format!("select(0, 1, {a})"),
            (Bool, U32) => format!("select(0u, 1u, {a})"),
        })
    }
}

/// A power by a constant that products or roots give better, as text over `a`.
fn small_power(expr: &FusedExpr, op: BinaryOp, b: u32) -> Option<&'static str> {
    let Value::Constant(DType::F32, bits) = expr.values.get(b as usize)? else {
        return None;
    };
    if op != BinaryOp::Pow {
        return None;
    }
    Some(match f32::from_bits(*bits) {
        -1.0 => "1.0 / a",
        1.0 => "a",
        2.0 => "a * a",
        3.0 => "a * a * a",
        4.0 => "(a * a) * (a * a)",
        _ => return None,
    })
}
