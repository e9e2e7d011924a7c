//! Prints `pack*` and `unpack*`, the conversions between a vector and a word.

use naga::{MathFunction as F, VectorSize};

use super::expression::Operand;
use super::types::COMPONENTS;
use super::writer::Writer;
use warploom_core::error::Result;

/// Conversion between components and the fields of a word.
struct Packing {
    name: &'static str,
    size: VectorSize,
    /// The component type.
    scalar: &'static str,
    /// Expression in `a`. To pack, it computes the unmasked field from the component `a`; to
    /// unpack, the component from the field's bits `a`.
    form: &'static str,
    /// Helpers that the form calls.
    needs: &'static [&'static str],
}

/// The direction of a conversion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Pack,
    /// Unpacks unsigned fields.
    Unpack,
    /// Unpacks signed fields.
    UnpackSigned,
}

use Way::{Pack, Unpack, UnpackSigned};

fn packing(fun: F) -> Option<(Way, Packing)> {
    use VectorSize::{Bi, Quad};
    let (way, name, size, scalar, form, needs): (_, _, _, _, _, &'static [&'static str]) = match fun
    {
        F::Pack4x8snorm => (Pack, "pack4x8snorm", Quad, "f32", SNORM8, &[]),
        F::Pack4x8unorm => (Pack, "pack4x8unorm", Quad, "f32", UNORM8, &[]),
        F::Pack2x16snorm => (Pack, "pack2x16snorm", Bi, "f32", SNORM16, &[]),
        F::Pack2x16unorm => (Pack, "pack2x16unorm", Bi, "f32", UNORM16, &[]),
        F::Pack2x16float => {
            (Pack, "pack2x16float", Bi, "f32", "wl_f16_of_f32(a)", &["wl_f16_of_f32"])
        }
        F::Pack4xI8 => (Pack, "pack4xI8", Quad, "i32", "a", &[]),
        F::Pack4xU8 => (Pack, "pack4xU8", Quad, "u32", "a", &[]),
        F::Pack4xI8Clamp => {
            let form = "wl_min_i32(wl_max_i32(a, -128), 127)";
            (Pack, "pack4xI8Clamp", Quad, "i32", form, &["wl_min_i32", "wl_max_i32"])
        }
        F::Pack4xU8Clamp => {
            (Pack, "pack4xU8Clamp", Quad, "u32", "wl_min_u32(a, 255u)", &["wl_min_u32"])
        }
        F::Unpack4x8snorm => {
            (UnpackSigned, "unpack4x8snorm", Quad, "f32", "fmax$((f32)a / 127.0f, -1.0f)", &[])
        }
        F::Unpack4x8unorm => (Unpack, "unpack4x8unorm", Quad, "f32", "(f32)a / 255.0f", &[]),
        F::Unpack2x16snorm => {
            (UnpackSigned, "unpack2x16snorm", Bi, "f32", "fmax$((f32)a / 32767.0f, -1.0f)", &[])
        }
        F::Unpack2x16unorm => (Unpack, "unpack2x16unorm", Bi, "f32", "(f32)a / 65535.0f", &[]),
        F::Unpack2x16float => {
            (Unpack, "unpack2x16float", Bi, "f32", "wl_f32_of_f16((f16)a)", &["wl_f32_of_f16"])
        }
        F::Unpack4xI8 => (UnpackSigned, "unpack4xI8", Quad, "i32", "a", &[]),
        F::Unpack4xU8 => (Unpack, "unpack4xU8", Quad, "u32", "a", &[]),
        _ => return None,
    };
    Some((way, Packing { name, size, scalar, form, needs }))
}

const SNORM8: &str = "(i32)floor$(0.5f + 127.0f * fmin$(fmax$(a, -1.0f), 1.0f))";
const UNORM8: &str = "(u32)floor$(0.5f + 255.0f * fmin$(fmax$(a, 0.0f), 1.0f))";
const SNORM16: &str = "(i32)floor$(0.5f + 32767.0f * fmin$(fmax$(a, -1.0f), 1.0f))";
const UNORM16: &str = "(u32)floor$(0.5f + 65535.0f * fmin$(fmax$(a, 0.0f), 1.0f))";

impl Writer<'_> {
    pub(super) fn packing(&mut self, fun: F, arg: &Operand) -> Result<String> {
        let Some((way, packing)) = packing(fun) else {
            return self.refuse(format!("{fun:?}"));
        };
        let name = format!("wl_{}", packing.name);
        self.define(&name, |w| {
            for need in packing.needs {
                w.helper(need)?;
            }
            let ty = w.vector(packing.scalar, packing.size)?;
            let form = packing.form.replace('$', w.dialect.pick("f", ""));
            Ok(match way {
                Pack => pack_text(&name, &ty, &packing, &form),
                _ => unpack_text(&name, &ty, &packing, &form, way),
            })
        })?;
        Ok(format!("{name}({})", arg.text))
    }
}

fn pack_text(name: &str, ty: &str, packing: &Packing, form: &str) -> String {
    let n = packing.size as usize;
    let (bits, scalar) = (32 / n, packing.scalar);
    let mask = u32::MAX >> (32 - bits);
    let parts: Vec<String> = COMPONENTS[..n]
        .iter()
        .enumerate()
        .map(|(i, c)| format!("(({name}_part(v.{c}) & {mask:#x}u) << {})", bits * i))
        .collect();
    let part = format!("WL_FN u32 {name}_part({scalar} a) {{ return (u32)({form}); }}");
    format!("{part}\nWL_FN u32 {name}({ty} v) {{ return {}; }}", parts.join(" | "))
}

fn unpack_text(name: &str, ty: &str, packing: &Packing, form: &str, way: Way) -> String {
    let n = packing.size as usize;
    let (bits, scalar) = (32 / n, packing.scalar);
    let mask = u32::MAX >> (32 - bits);
    let given = match way {
        UnpackSigned => format!("const i32 a = (i32)(bits << {0}) >> {0};", 32 - bits),
        _ => format!("const u32 a = bits & {mask:#x}u;"),
    };
    let steps: Vec<String> = COMPONENTS[..n]
        .iter()
        .enumerate()
        .map(|(i, c)| format!("r.{c} = {name}_part(word >> {});", bits * i))
        .collect();
    let part = format!("WL_FN {scalar} {name}_part(u32 bits) {{ {given} return {form}; }}");
    let steps = steps.join(" ");
    format!("{part}\nWL_FN {ty} {name}(u32 word) {{ {ty} r; {steps} return r; }}")
}
