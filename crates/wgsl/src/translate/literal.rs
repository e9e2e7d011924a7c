//! Prints constants: literals, and initialisers at file scope.

use naga::{Expression, Handle, Literal, Type, TypeInner};

use super::types::{has_gap, is_half, numeric};
use super::writer::Writer;
use warploom_core::error::Result;

/// Formats a float literal.
fn float(value: f32) -> String {
    // The shortest text that round-trips.
    let text = format!("{value:?}f");
    if value.is_sign_negative() { format!("({text})") } else { text }
}

impl Writer<'_> {
    pub(super) fn literal(&self, literal: &Literal) -> Result<String> {
        Ok(match *literal {
            Literal::F32(value) if value.is_finite() => float(value),
            Literal::F16(value) if value.is_finite() => float(value.to_f32()),
            Literal::U32(value) => format!("{value}u"),
            Literal::I32(i32::MIN) => "(-2147483647 - 1)".to_string(),
            Literal::I32(value) if value < 0 => format!("({value})"),
            Literal::I32(value) => format!("{value}"),
            Literal::Bool(value) => format!("{value}"),
            ref other => return self.refuse(format!("the literal {other:?}")),
        })
    }

    /// Prints the zero of a type, as a value.
    pub(super) fn zero(&mut self, ty: Handle<Type>) -> Result<String> {
        let name = self.type_of(ty)?;
        self.zero_of(&self.module.types[ty].inner, &name)
    }

    pub(super) fn zero_of(&mut self, inner: &TypeInner, name: &str) -> Result<String> {
        Ok(match numeric(inner) {
            Some((None, scalar)) => match self.scalar(scalar)? {
                "bool" => "false".to_string(),
                "f32" => "0.0f".to_string(),
                "u32" => "0u".to_string(),
                _ => "0".to_string(),
            },
            // Unnamed members of a struct are zero in both languages.
            _ => self.dialect.aggregate(name, self.dialect.pick("", "0")),
        })
    }

    /// Prints a constant expression in nested braces, for an array or struct at file scope.
    pub(super) fn initializer(&mut self, h: Handle<Expression>) -> Result<String> {
        let module = self.module;
        match module.global_expressions[h] {
            Expression::Constant(constant) => self.initializer(module.constants[constant].init),
            Expression::Literal(Literal::F16(value)) => {
                // In memory an f16 is its bits.
                Ok(format!("{:#06x}", value.to_bits()))
            }
            Expression::Literal(ref literal) => self.literal(literal),
            Expression::ZeroValue(ty) => Ok(match numeric(&module.types[ty].inner) {
                Some((None, scalar)) if !is_half(scalar) => self.zero(ty)?,
                Some((None, _)) => "0".to_string(),
                _ => "{0}".to_string(),
            }),
            Expression::Splat { size, value } => {
                let value = self.initializer(value)?;
                Ok(format!("{{{}}}", vec![value; size as usize].join(", ")))
            }
            Expression::Compose { ty, ref components } => {
                let parts = components
                    .iter()
                    .map(|part| self.initializer(*part))
                    .collect::<Result<Vec<_>>>()?;
                self.braces(ty, parts)
            }
            ref other => self.refuse(format!("the constant expression {other:?}")),
        }
    }

    fn braces(&mut self, ty: Handle<Type>, parts: Vec<String>) -> Result<String> {
        let module = self.module;
        Ok(match module.types[ty].inner {
            TypeInner::Vector { size, .. } if parts.len() != size as usize => {
                return self.refuse("a constant vector made of vectors");
            }
            TypeInner::Vector { .. } => format!("{{{}}}", parts.join(", ")),
            TypeInner::Struct { ref members, .. } => {
                format!("{{{}}}", self.struct_parts(members, &parts)?)
            }
            TypeInner::Array { base, .. } => {
                let gap = has_gap(&module.types[base].inner);
                format!("{{{{{}}}}}", spaced(parts, gap))
            }
            TypeInner::Matrix { rows, .. } => {
                format!("{{{{{}}}}}", spaced(parts, rows as u8 == 3))
            }
            _ => return self.refuse("a constant of this type"),
        })
    }
}

/// Joins array elements with commas, each wrapped in its struct if the elements have gaps.
pub(super) fn spaced(parts: Vec<String>, gap: bool) -> String {
    let parts: Vec<String> =
        parts.into_iter().map(|part| if gap { format!("{{{part}, 0}}") } else { part }).collect();
    parts.join(", ")
}
