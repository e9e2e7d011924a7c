//! Prints scalar conversions. Floats become integers towards zero and saturate, as in naga's other
//! writers.

use naga::{Scalar, ScalarKind, VectorSize};

use super::expression::Operand;
use super::operator::{Arg, tag};
use super::types::is_half;
use super::writer::Writer;
use warploom_core::error::Result;

impl<'a> Writer<'a> {
    /// Prints the conversion `T(x)`, where `convert` is the width of `T` in bytes; if it is `None`,
    /// prints `bitcast<T>(x)`.
    pub(super) fn cast(
        &mut self,
        a: Operand,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> Result<String> {
        let from = a.scalar;
        if a.is_matrix() {
            return match convert {
                Some(width) if (from == Scalar { kind, width }) => Ok(a.text),
                _ => self.refuse("a conversion of a matrix"),
            };
        }
        let to = Scalar { kind, width: convert.unwrap_or(from.width) };
        let result = self.scalar(to)?;
        let arg = [self.arg(&a)?];
        if from == to {
            return Ok(a.text);
        }
        if convert.is_none() {
            if is_half(from) || kind == ScalarKind::Bool || from.kind == ScalarKind::Bool {
                return self.refuse("a bitcast of f16 or bool");
            }
            let name = format!("bits_{}", tag(to));
            return self.lift(&name, a.size, result, &arg, &mut |w, t| w.bitcast(from, to, &t[0]));
        }
        if from.kind == ScalarKind::Float && kind == ScalarKind::Float {
            // An f16 value is an f32 already.
            if is_half(from) {
                return Ok(a.text);
            }
            return self.rounded_to_half(a.text, a.size);
        }
        let name = format!("to_{}", tag(to));
        self.lift(&name, a.size, result, &arg, &mut |w, t| w.convert(from, to, &t[0]))
    }

    fn convert(&mut self, from: Scalar, to: Scalar, a: &str) -> Result<String> {
        use ScalarKind::{Bool, Float, Sint, Uint};
        let helper = match (from.kind, to.kind) {
            (Float, Bool) => return Ok(format!("({a} != 0.0f)")),
            (_, Bool) => return Ok(format!("({a} != 0)")),
            (Bool, Float) => return Ok(format!("({a} ? 1.0f : 0.0f)")),
            (Bool, Sint) => return Ok(format!("({a} ? 1 : 0)")),
            (Bool, _) => return Ok(format!("({a} ? 1u : 0u)")),
            (Float, Sint) => "wl_i32_of_f32",
            (Float, Uint) => "wl_u32_of_f32",
            (_, Float) if is_half(to) => "wl_round_f16",
            _ => return Ok(format!("({}){a}", self.scalar(to)?)),
        };
        self.helper(helper)?;
        Ok(format!("{helper}({})", if to.kind == Float { format!("(f32){a}") } else { a.into() }))
    }

    fn bitcast(&mut self, from: Scalar, to: Scalar, a: &str) -> Result<String> {
        use ScalarKind::{Float, Sint};
        let (cuda, opencl) = match (from.kind, to.kind) {
            (Float, Sint) => ("__float_as_int", "as_int"),
            (Float, _) => ("__float_as_uint", "as_uint"),
            (Sint, Float) => ("__int_as_float", "as_float"),
            (_, Float) => ("__uint_as_float", "as_float"),
            _ => return Ok(format!("({}){a}", self.scalar(to)?)),
        };
        Ok(format!("{}({a})", self.dialect.pick(cuda, opencl)))
    }

    /// Prints the rounding of `f32` values to the nearest f16, as `f32`.
    pub(super) fn rounded_to_half(
        &mut self,
        text: String,
        size: Option<VectorSize>,
    ) -> Result<String> {
        let arg = [Arg { text, ty: "f32", vector: size.is_some() }];
        self.lift("round_f16", size, "f32", &arg, &mut |w, t| {
            w.helper("wl_round_f16")?;
            Ok(format!("wl_round_f16({})", t[0]))
        })
    }

    /// Prints the conversion of f16 in memory to values, which are `f32`.
    pub(super) fn half_to_value(
        &mut self,
        text: String,
        size: Option<VectorSize>,
    ) -> Result<String> {
        let arg = [Arg { text, ty: "f16", vector: size.is_some() }];
        self.lift("value", size, "f32", &arg, &mut |w, t| {
            w.helper("wl_f32_of_f16")?;
            Ok(format!("wl_f32_of_f16({})", t[0]))
        })
    }

    /// Prints the conversion of `f32` values to f16 in memory.
    pub(super) fn value_to_half(
        &mut self,
        text: String,
        size: Option<VectorSize>,
    ) -> Result<String> {
        let arg = [Arg { text, ty: "f32", vector: size.is_some() }];
        self.lift("half", size, "f16", &arg, &mut |w, t| {
            w.helper("wl_f16_of_f32")?;
            Ok(format!("wl_f16_of_f32({})", t[0]))
        })
    }
}
