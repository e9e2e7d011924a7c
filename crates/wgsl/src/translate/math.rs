//! Prints calls of built-in functions.

use naga::{Expression, Handle, MathFunction as F, ScalarKind, TypeInner};

use super::expression::Operand;
use super::function::Body;
use super::types::is_half;
use super::writer::Writer;
use warploom_core::error::{Result, broken_invariant};

impl<'a> Body<'_, 'a> {
    /// Prints a call of a built-in function; `h` is the expression, which determines the result
    /// type.
    pub(super) fn math(
        &mut self,
        fun: F,
        args: Vec<Operand<'a>>,
        h: Handle<Expression>,
    ) -> Result<String> {
        match fun {
            F::Modf | F::Frexp => return self.split_number(fun, &args[0], h),
            F::Dot
            | F::Cross
            | F::Outer
            | F::Distance
            | F::Length
            | F::Normalize
            | F::FaceForward
            | F::Reflect
            | F::Refract => return self.w.geometry(fun, &args),
            F::Transpose | F::Determinant | F::Inverse => return self.w.matrix_math(fun, &args[0]),
            F::Pack4x8snorm
            | F::Pack4x8unorm
            | F::Pack2x16snorm
            | F::Pack2x16unorm
            | F::Pack2x16float
            | F::Pack4xI8
            | F::Pack4xU8
            | F::Pack4xI8Clamp
            | F::Pack4xU8Clamp
            | F::Unpack4x8snorm
            | F::Unpack4x8unorm
            | F::Unpack2x16snorm
            | F::Unpack2x16unorm
            | F::Unpack2x16float
            | F::Unpack4xI8
            | F::Unpack4xU8 => {
                return self.w.packing(fun, &args[0]);
            }
            F::Dot4I8Packed | F::Dot4U8Packed => return self.packed_product(h, None),
            _ => {}
        }
        let scalar = args[0].scalar;
        let size = args.iter().find_map(|arg| arg.size);
        let name = format!("{fun:?}").to_lowercase();
        let texts = self.w.args(&args)?;
        self.w.lift_rounded(&name, size, scalar, &texts, &mut |w, t| match scalar.kind {
            ScalarKind::Float => w.float_form(fun, t),
            _ => w.integer_form(fun, scalar.kind == ScalarKind::Sint, t),
        })
    }

    /// Returns whether an expression without a variable is a product of packed bytes.
    pub(super) fn is_packed_product(&self, h: Handle<Expression>) -> bool {
        let fun = match self.function.expressions[h] {
            Expression::Math { fun, .. } => fun,
            _ => return false,
        };
        !self.values.contains_key(&h) && matches!(fun, F::Dot4I8Packed | F::Dot4U8Packed)
    }

    /// Prints the packed byte product `h`, plus `added` if there is one.
    pub(super) fn packed_product(
        &mut self,
        h: Handle<Expression>,
        added: Option<Handle<Expression>>,
    ) -> Result<String> {
        let Expression::Math { fun, arg: a, arg1: Some(b), .. } = self.function.expressions[h]
        else {
            broken_invariant("a product of packed bytes without two of them");
        };
        let (name, zero) = match fun {
            F::Dot4I8Packed => ("wl_dot4_i8", "0"),
            _ => ("wl_dot4_u8", "0u"),
        };
        self.w.helper(name)?;
        let (a, b) = (self.value(a)?, self.value(b)?);
        let added = added.map_or(Ok(zero.to_string()), |added| self.value(added))?;
        Ok(format!("{name}({a}, {b}, {added})"))
    }

    /// Prints `modf` or `frexp`: a struct of two results.
    fn split_number(&mut self, fun: F, arg: &Operand, h: Handle<Expression>) -> Result<String> {
        if is_half(arg.scalar) {
            return self.w.refuse(format!("{fun:?} of f16"));
        }
        let ty = self.type_name(h)?;
        let TypeInner::Struct { ref members, .. } = *self.inner(h) else {
            return self.w.refuse(format!("the result of {fun:?}"));
        };
        let text = [self.w.arg(arg)?];
        let mut part = |name: &str, result: &str| {
            self.w.lift(name, arg.size, result, &text, &mut |w, t| match name {
                "trunc" => Ok(w.dialect.math("trunc", t)),
                _ => {
                    let helper = format!("wl_{name}");
                    w.helper(&helper)?;
                    Ok(format!("{helper}({})", t[0]))
                }
            })
        };
        let parts = match fun {
            F::Modf => [part("modf_fract", "f32")?, part("trunc", "f32")?],
            _ => [part("frexp_fract", "f32")?, part("frexp_exp", "i32")?],
        };
        let parts = self.w.struct_parts(members, &parts)?;
        Ok(self.w.dialect.aggregate(&ty, &parts))
    }
}

impl Writer<'_> {
    fn call(&mut self, helper: &str, t: &[String]) -> Result<String> {
        self.helper(helper)?;
        Ok(format!("{helper}({})", t.join(", ")))
    }

    /// Prints a float function for one component.
    fn float_form(&mut self, fun: F, t: &[String]) -> Result<String> {
        let library = match fun {
            F::Abs => "fabs",
            F::Min => "fmin",
            F::Max => "fmax",
            F::Cos => "cos",
            F::Cosh => "cosh",
            F::Sin => "sin",
            F::Sinh => "sinh",
            F::Tan => "tan",
            F::Tanh => "tanh",
            F::Acos => "acos",
            F::Asin => "asin",
            F::Atan => "atan",
            F::Atan2 => "atan2",
            F::Asinh => "asinh",
            F::Acosh => "acosh",
            F::Atanh => "atanh",
            F::Ceil => "ceil",
            F::Floor => "floor",
            F::Round => "rint",
            F::Trunc => "trunc",
            F::Ldexp => "ldexp",
            F::Exp => "exp",
            F::Exp2 => "exp2",
            F::Log => "log",
            F::Log2 => "log2",
            F::Pow => "pow",
            F::Fma => "fma",
            F::Sqrt => "sqrt",
            F::InverseSqrt => "rsqrt",
            _ => return self.other_float_form(fun, t),
        };
        Ok(self.dialect.math(library, t))
    }

    fn other_float_form(&mut self, fun: F, t: &[String]) -> Result<String> {
        let clamp = |w: &Self, low: &str, high: &str| {
            let inside = w.dialect.math("fmax", &[t[0].clone(), low.to_string()]);
            w.dialect.math("fmin", &[inside, high.to_string()])
        };
        Ok(match fun {
            F::Clamp => clamp(self, &t[1], &t[2]),
            F::Saturate => clamp(self, "0.0f", "1.0f"),
            F::Radians => format!("({} * 0.017453292f)", t[0]),
            F::Degrees => format!("({} * 57.29578f)", t[0]),
            F::Fract => self.call("wl_fract", t)?,
            F::Sign => self.call("wl_sign_f32", t)?,
            F::Mix => self.call("wl_mix", t)?,
            F::Step => format!("({} <= {} ? 1.0f : 0.0f)", t[0], t[1]),
            F::SmoothStep => self.call("wl_smoothstep", t)?,
            F::QuantizeToF16 => self.call("wl_round_f16", t)?,
            _ => return self.refuse(format!("{fun:?} of floats")),
        })
    }

    /// Prints an integer function for one component.
    fn integer_form(&mut self, fun: F, signed: bool, t: &[String]) -> Result<String> {
        let named = |name: &str| format!("wl_{name}_{}", if signed { "i32" } else { "u32" });
        // Bit functions are written for u32.
        let bits = |w: &mut Self, helper: &str| {
            w.helper(helper)?;
            let call = format!("{helper}((u32){})", t[0]);
            Ok(if signed { format!("(i32){call}") } else { call })
        };
        match fun {
            F::Abs | F::Sign if signed => {
                self.call(&named(if fun == F::Abs { "abs" } else { "sign" }), t)
            }
            F::Abs => Ok(t[0].clone()),
            F::Min => self.call(&named("min"), t),
            F::Max => self.call(&named("max"), t),
            F::Clamp => {
                let inside = self.call(&named("max"), &t[..2])?;
                self.call(&named("min"), &[inside, t[2].clone()])
            }
            F::CountTrailingZeros => bits(self, "wl_ctz"),
            F::CountLeadingZeros => bits(self, "wl_clz"),
            F::CountOneBits => bits(self, "wl_popcount"),
            F::ReverseBits => bits(self, "wl_reverse"),
            F::FirstTrailingBit => bits(self, "wl_first_trailing"),
            F::FirstLeadingBit => self.call(&named("first_leading"), t),
            F::ExtractBits => self.call(&named("extract"), t),
            F::InsertBits => {
                self.helper("wl_insert")?;
                let call = format!("wl_insert((u32){}, (u32){}, {}, {})", t[0], t[1], t[2], t[3]);
                Ok(if signed { format!("(i32){call}") } else { call })
            }
            _ => self.refuse(format!("{fun:?} of integers")),
        }
    }
}
