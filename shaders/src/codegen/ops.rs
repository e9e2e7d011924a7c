//! Prints the values of a fused expression as WGSL, and checks their types.

use std::collections::BTreeSet;

use crate::source::f32_literal;
use crate::{FusedExpr, Value};
use warploom_core::base::DType;
use warploom_core::ir::ReduceOp;
use warploom_core::ir::scalar::{BinaryOp, UnaryOp};

/// Shared file of maximum and minimum with NaN.
const EXTREMA: &str = "math_extrema";

/// A type-checked expression, with the declarations and imports that its values need.
pub(super) struct Body<'a> {
    expr: &'a FusedExpr,
    types: Vec<DType>,
    declarations: BTreeSet<String>,
    imports: BTreeSet<&'static str>,
}

impl<'a> Body<'a> {
    /// Checks every value of a body that may read `anchors` results of the anchor kernel.
    pub(super) fn new(expr: &'a FusedExpr, anchors: u32) -> Result<Body<'a>, String> {
        let (declarations, imports) = Default::default();
        let mut body = Body { expr, types: Vec::new(), declarations, imports };
        for (i, value) in expr.values.iter().enumerate() {
            let dtype = body.check(*value, anchors).map_err(|what| format!("value {i}: {what}"))?;
            body.types.push(dtype);
            if matches!(value, Value::Reduce(ReduceOp::Max | ReduceOp::Min, _)) {
                body.imports.insert(EXTREMA);
            }
        }
        Ok(body)
    }

    /// Returns the module-scope variables that the values need, one per line.
    pub(super) fn declarations(&self) -> String {
        self.declarations.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Iterates over the files of `shaders/shared` that the values need.
    pub(super) fn imports(&self) -> impl Iterator<Item = &'static str> {
        self.imports.iter().copied()
    }

    /// Returns the type of the value with this index, which must be checked already.
    pub(super) fn dtype(&self, value: u32) -> Result<DType, String> {
        self.types
            .get(value as usize)
            .copied()
            .ok_or_else(|| format!("value {value} of {} is not an earlier one", self.types.len()))
    }

    /// Checks the next value, and returns its type.
    fn check(&self, value: Value, anchors: u32) -> Result<DType, String> {
        let refuse = |name: &str, dtype: DType| Err(format!("{name} of {dtype}"));
        Ok(match value {
            Value::Input(i) => match self.expr.inputs.get(i as usize) {
                Some(operand) => operand.dtype,
                None => return Err(format!("input {i} of {}", self.expr.inputs.len())),
            },
            Value::Constant(dtype, _) => dtype,
            Value::Index => DType::U32,
            Value::Anchor(i) if i < anchors => DType::F32,
            Value::Anchor(_) => return Err("an anchor outside of an attachment".into()),
            Value::Unary(op, a) => {
                let dtype = self.dtype(a)?;
                let fits = match op {
                    UnaryOp::Not => dtype == DType::Bool,
                    UnaryOp::Neg | UnaryOp::Abs => matches!(dtype, DType::F32 | DType::I32),
                    _ => dtype == DType::F32,
                };
                if !fits {
                    return refuse(op.name(), dtype);
                }
                dtype
            }
            Value::Binary(op, a, b) => {
                let (dtype, other) = (self.dtype(a)?, self.dtype(b)?);
                let fits = match op {
                    BinaryOp::And | BinaryOp::Or => dtype == DType::Bool,
                    BinaryOp::Pow => dtype == DType::F32,
                    BinaryOp::Eq | BinaryOp::Ne => !dtype.is_half(),
                    _ => dtype != DType::Bool && !dtype.is_half(),
                };
                match (fits, dtype == other) {
                    (_, false) => return Err(format!("{} of {dtype} and {other}", op.name())),
                    (false, _) => return refuse(op.name(), dtype),
                    _ if op.is_comparison() => DType::Bool,
                    _ => dtype,
                }
            }
            Value::Select(c, a, b) => {
                let (kind, dtype, other) = (self.dtype(c)?, self.dtype(a)?, self.dtype(b)?);
                if kind != DType::Bool || dtype != other {
                    return Err(format!("select by {kind} of {dtype} and {other}"));
                }
                dtype
            }
            Value::Cast(to, a) => {
                let from = self.dtype(a)?;
                let through_f32 = from.is_half() || to.is_half();
                if through_f32 && from != to && from != DType::F32 && to != DType::F32 {
                    return Err(format!("cast of {from} to {to}"));
                }
                to
            }
            Value::Reduce(op, a) => match self.dtype(a)? {
                DType::F32 => DType::F32,
                dtype => return refuse(op.name(), dtype),
            },
        })
    }

    /// Returns the text of a value, given the names of its operands, or `None` for values without
    /// an expression: inputs, the index, anchors and reductions.
    pub(super) fn text(&mut self, value: u32, name: impl Fn(u32) -> String) -> Option<String> {
        Some(match self.expr.values[value as usize] {
            Value::Input(_) | Value::Index | Value::Anchor(_) | Value::Reduce(..) => return None,
            Value::Constant(dtype, bits) => self.constant(dtype, bits),
            Value::Unary(op, a) => self.unary(op, self.types[a as usize], &name(a)),
            Value::Binary(op, a, b) => {
                let dtype = self.types[a as usize];
                match small_power(self.expr, op, b) {
                    Some(power) if dtype == DType::F32 => power.replace('a', &name(a)),
                    _ => self.binary(op, dtype, &name(a), &name(b)),
                }
            }
            Value::Select(c, a, b) => format!("select({}, {}, {})", name(b), name(a), name(c)),
            Value::Cast(to, a) => self.cast(self.types[a as usize], to, &name(a)),
        })
    }

    /// Returns an expression for the `f32` with these bits: for infinities and NaN, which have no
    /// literal in WGSL and are not allowed in constant expressions.
    pub(super) fn of_bits(&mut self, bits: u32) -> String {
        self.declarations.insert(format!("var<private> bits_{bits:08x}: u32 = {bits:#010x}u;"));
        format!("bitcast<f32>(bits_{bits:08x})")
    }

    fn constant(&mut self, dtype: DType, bits: u32) -> String {
        match dtype {
            DType::I32 => format!("bitcast<i32>({bits}u)"),
            DType::U32 => format!("{bits}u"),
            DType::F16 | DType::BF16 => format!("{}u", bits & 0xffff),
            DType::Bool => format!("{}", bits != 0),
            _ => match f32::from_bits(bits) {
                value if value.is_finite() => format!("({})", f32_literal(value)),
                _ => self.of_bits(bits),
            },
        }
    }

    /// Returns a call of a function in a shared file, and imports the file.
    fn call(&mut self, file: &'static str, function: &str, arguments: &str) -> String {
        self.imports.insert(file);
        format!("{function}({arguments})")
    }

    fn unary(&mut self, op: UnaryOp, dtype: DType, a: &str) -> String {
        match op {
            // Not -x: some targets turn it into 0 - x and lose the sign of zero.
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
                // (1 + tanh u) / 2 = sigmoid(2 u), which keeps its digits for negative u.
                let u = format!("1.5957691 * {a} * (1.0 + 0.044715 * {a} * {a})");
                format!("{a} * {}", self.call("math_sigmoid", "sigmoid", &u))
            }
            // NaN stays NaN. Without a test for it, NVIDIA's Vulkan compiler makes a select a maximum.
            UnaryOp::Relu => self.call(EXTREMA, "max_f32", &format!("0.0, {a}")),
            UnaryOp::Not => format!("!{a}"),
        }
    }

    fn binary(&mut self, op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
        let both = format!("{a}, {b}");
        match (op, dtype) {
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
            (BinaryOp::Min, DType::F32) => self.call(EXTREMA, "min_f32", &both),
            (BinaryOp::Max, DType::F32) => self.call(EXTREMA, "max_f32", &both),
            (BinaryOp::Min, _) => format!("min({both})"),
            (BinaryOp::Max, _) => format!("max({both})"),
            // Compilers take a float for equal to itself.
            (BinaryOp::Eq, DType::F32) if a == b => format!("!{}", self.call(EXTREMA, "is_nan", a)),
            (BinaryOp::Ne, DType::F32) if a == b => self.call(EXTREMA, "is_nan", a),
            (BinaryOp::Eq, _) => format!("{a} == {b}"),
            (BinaryOp::Ne, DType::I32 | DType::U32 | DType::Bool) => format!("{a} != {b}"),
            // naga writes `!=` of floats as SPIR-V's ordered comparison, which is false for NaN.
            (BinaryOp::Ne, _) => format!("!({a} == {b})"),
            (BinaryOp::Lt, _) => format!("{a} < {b}"),
            (BinaryOp::Le, _) => format!("{a} <= {b}"),
            (BinaryOp::Gt, _) => format!("{a} > {b}"),
            (BinaryOp::Ge, _) => format!("{a} >= {b}"),
            (BinaryOp::And, _) => format!("{a} && {b}"),
            (BinaryOp::Or, _) => format!("{a} || {b}"),
        }
    }

    fn cast(&mut self, from: DType, to: DType, a: &str) -> String {
        use DType::{BF16, Bool, F16, I32, U32};
        match (from, to) {
            (I32 | U32, I32 | U32) if from != to => format!("bitcast<{to}>({a})"),
            _ if from == to => a.to_string(),
            (F16, _) => self.call("math_f16", "f32_of_f16", a),
            (BF16, _) => self.call("math_f16", "f32_of_bf16", a),
            (_, F16) => self.call("math_f16", "f16_of", a),
            (_, BF16) => self.call("math_f16", "bf16_of", a),
            (I32, Bool) => format!("{a} != 0"),
            (U32, Bool) => format!("{a} != 0u"),
            (_, Bool) => format!("{a} != 0.0"),
            (Bool, I32) => format!("select(0, 1, {a})"),
            (Bool, U32) => format!("select(0u, 1u, {a})"),
            (Bool, _) => format!("select(0.0, 1.0, {a})"),
            (_, I32) => self.call("math_casts", "cast_i32", a),
            (_, U32) => self.call("math_casts", "cast_u32", a),
            _ => format!("f32({a})"),
        }
    }
}

/// Returns a power whose exponent, value `b`, is a small constant as products or a quotient of the
/// placeholder `a`. Returns `None` for other operations.
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
