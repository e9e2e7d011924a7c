//! Helper functions with fixed text, each defined on first use. A `$` stands for the suffix of
//! library functions: `floor$` is `floorf` in CUDA.

use super::dialect::Dialect;
use super::writer::Writer;
use warploom_core::error::{Result, broken_invariant};

/// A helper: its name, its dependencies, and its text in both languages.
struct Helper {
    name: &'static str,
    needs: &'static [&'static str],
    cuda: &'static str,
    opencl: &'static str,
}

const fn both(name: &'static str, text: &'static str) -> Helper {
    Helper { name, needs: &[], cuda: text, opencl: text }
}

const fn each(name: &'static str, cuda: &'static str, opencl: &'static str) -> Helper {
    Helper { name, needs: &[], cuda, opencl }
}

const fn with(name: &'static str, needs: &'static [&'static str], text: &'static str) -> Helper {
    Helper { name, needs, cuda: text, opencl: text }
}

const HELPERS: &[Helper] = &[
    // Integers.
    both("wl_min_u32", "u32 wl_min_u32(u32 a, u32 b) { return a < b ? a : b; }"),
    both("wl_max_u32", "u32 wl_max_u32(u32 a, u32 b) { return a > b ? a : b; }"),
    both("wl_min_i32", "i32 wl_min_i32(i32 a, i32 b) { return a < b ? a : b; }"),
    both("wl_max_i32", "i32 wl_max_i32(i32 a, i32 b) { return a > b ? a : b; }"),
    both("wl_abs_i32", "i32 wl_abs_i32(i32 a) { return a < 0 ? (i32)(0u - (u32)a) : a; }"),
    both("wl_sign_i32", "i32 wl_sign_i32(i32 a) { return (a > 0) - (a < 0); }"),
    both("wl_div_u32", "u32 wl_div_u32(u32 a, u32 b) { return a / (b == 0u ? 1u : b); }"),
    both("wl_rem_u32", "u32 wl_rem_u32(u32 a, u32 b) { return a % (b == 0u ? 1u : b); }"),
    both(
        "wl_divisor",
        "i32 wl_divisor(i32 a, i32 b) {
    return b == 0 || (b == -1 && (u32)a == 0x80000000u) ? 1 : b;
}",
    ),
    with(
        "wl_div_i32",
        &["wl_divisor"],
        "i32 wl_div_i32(i32 a, i32 b) { return a / wl_divisor(a, b); }",
    ),
    with(
        "wl_rem_i32",
        &["wl_divisor"],
        "i32 wl_rem_i32(i32 a, i32 b) { return a % wl_divisor(a, b); }",
    ),
    // Bits.
    each(
        "wl_clz",
        "u32 wl_clz(u32 a) { return (u32)__clz((i32)a); }",
        "u32 wl_clz(u32 a) { return clz(a); }",
    ),
    each(
        "wl_popcount",
        "u32 wl_popcount(u32 a) { return (u32)__popc(a); }",
        "u32 wl_popcount(u32 a) { return popcount(a); }",
    ),
    with("wl_ctz", &["wl_popcount"], "u32 wl_ctz(u32 a) { return wl_popcount(~a & (a - 1u)); }"),
    each(
        "wl_reverse",
        "u32 wl_reverse(u32 a) { return __brev(a); }",
        "u32 wl_reverse(u32 a) {
    a = ((a >> 1) & 0x55555555u) | ((a & 0x55555555u) << 1);
    a = ((a >> 2) & 0x33333333u) | ((a & 0x33333333u) << 2);
    a = ((a >> 4) & 0x0f0f0f0fu) | ((a & 0x0f0f0f0fu) << 4);
    a = ((a >> 8) & 0x00ff00ffu) | ((a & 0x00ff00ffu) << 8);
    return (a >> 16) | (a << 16);
}",
    ),
    with(
        "wl_first_trailing",
        &["wl_ctz"],
        "u32 wl_first_trailing(u32 a) { return a == 0u ? 0xffffffffu : wl_ctz(a); }",
    ),
    with(
        "wl_first_leading_u32",
        &["wl_clz"],
        "u32 wl_first_leading_u32(u32 a) { return 31u - wl_clz(a); }",
    ),
    with(
        "wl_first_leading_i32",
        &["wl_clz"],
        "i32 wl_first_leading_i32(i32 a) { return (i32)(31u - wl_clz((u32)(a < 0 ? ~a : a))); }",
    ),
    with(
        "wl_extract_u32",
        &["wl_min_u32"],
        "u32 wl_extract_u32(u32 a, u32 offset, u32 count) {
    const u32 o = wl_min_u32(offset, 32u);
    const u32 c = wl_min_u32(count, 32u - o);
    return c == 0u ? 0u : (a >> o) & (0xffffffffu >> (32u - c));
}",
    ),
    with(
        "wl_extract_i32",
        &["wl_min_u32"],
        "i32 wl_extract_i32(i32 a, u32 offset, u32 count) {
    const u32 o = wl_min_u32(offset, 32u);
    const u32 c = wl_min_u32(count, 32u - o);
    return c == 0u ? 0 : (i32)((u32)a << (32u - c - o)) >> (32u - c);
}",
    ),
    with(
        "wl_insert",
        &["wl_min_u32"],
        "u32 wl_insert(u32 a, u32 b, u32 offset, u32 count) {
    const u32 o = wl_min_u32(offset, 32u);
    const u32 c = wl_min_u32(count, 32u - o);
    const u32 mask = c == 0u ? 0u : (0xffffffffu >> (32u - c)) << o;
    return c == 0u ? a : (a & ~mask) | ((b << o) & mask);
}",
    ),
    // Numbers.
    both("wl_fract", "f32 wl_fract(f32 a) { return a - floor$(a); }"),
    both("wl_sign_f32", "f32 wl_sign_f32(f32 a) { return (f32)((a > 0.0f) - (a < 0.0f)); }"),
    both("wl_mix", "f32 wl_mix(f32 a, f32 b, f32 t) { return a * (1.0f - t) + b * t; }"),
    both(
        "wl_smoothstep",
        "f32 wl_smoothstep(f32 low, f32 high, f32 a) {
    const f32 t = fmin$(fmax$((a - low) / (high - low), 0.0f), 1.0f);
    return t * t * (3.0f - 2.0f * t);
}",
    ),
    both("wl_modf_fract", "f32 wl_modf_fract(f32 a) { return a - trunc$(a); }"),
    both("wl_frexp_fract", "f32 wl_frexp_fract(f32 a) { i32 e; return frexp$(a, &e); }"),
    both("wl_frexp_exp", "i32 wl_frexp_exp(f32 a) { i32 e; frexp$(a, &e); return e; }"),
    // Tests on bits, so that a compiler that assumes finite numbers cannot remove them.
    each(
        "wl_isnan",
        "bool wl_isnan(f32 a) { return (__float_as_uint(a) & 0x7fffffffu) > 0x7f800000u; }",
        "bool wl_isnan(f32 a) { return (as_uint(a) & 0x7fffffffu) > 0x7f800000u; }",
    ),
    each(
        "wl_isinf",
        "bool wl_isinf(f32 a) { return (__float_as_uint(a) & 0x7fffffffu) == 0x7f800000u; }",
        "bool wl_isinf(f32 a) { return (as_uint(a) & 0x7fffffffu) == 0x7f800000u; }",
    ),
    // The upper bound is the largest f32 that the integer type can hold; NaN gives the smallest
    // integer.
    both(
        "wl_i32_of_f32",
        "i32 wl_i32_of_f32(f32 a) { return (i32)fmin$(fmax$(a, -2147483648.0f), 2147483520.0f); }",
    ),
    both(
        "wl_u32_of_f32",
        "u32 wl_u32_of_f32(f32 a) { return (u32)fmin$(fmax$(a, 0.0f), 4294967040.0f); }",
    ),
    // f16.
    each(
        "wl_f32_of_f16",
        "f32 wl_f32_of_f16(f16 a) { f32 r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(a)); return r; }",
        "f32 wl_f32_of_f16(f16 a) { return vload_half(0, (const half*)&a); }",
    ),
    each(
        "wl_f16_of_f32",
        "f16 wl_f16_of_f32(f32 a) { f16 r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a)); return r; }",
        "f16 wl_f16_of_f32(f32 a) { f16 r; vstore_half_rte(a, 0, (half*)&r); return r; }",
    ),
    with(
        "wl_round_f16",
        &["wl_f16_of_f32", "wl_f32_of_f16"],
        "f32 wl_round_f16(f32 a) { return wl_f32_of_f16(wl_f16_of_f32(a)); }",
    ),
    // Packed byte products with an addend: one instruction if available, which compilers do not
    // find.
    each(
        "wl_dot4_i8",
        "i32 wl_dot4_i8(u32 a, u32 b, i32 c) { return __dp4a((i32)a, (i32)b, c); }",
        "i32 wl_dot4_i8(u32 a, u32 b, i32 c) {
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
    return (i32)((u32)c + (u32)dot_4x8packed_ss_int(a, b));
#else
    return (i32)((u32)c + (u32)(((i32)(a << 24) >> 24) * ((i32)(b << 24) >> 24)
        + ((i32)(a << 16) >> 24) * ((i32)(b << 16) >> 24)
        + ((i32)(a << 8) >> 24) * ((i32)(b << 8) >> 24)
        + ((i32)a >> 24) * ((i32)b >> 24)));
#endif
}",
    ),
    each(
        "wl_dot4_u8",
        "u32 wl_dot4_u8(u32 a, u32 b, u32 c) { return __dp4a(a, b, c); }",
        "u32 wl_dot4_u8(u32 a, u32 b, u32 c) {
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
    return c + dot_4x8packed_uu_uint(a, b);
#else
    return c + (a & 255u) * (b & 255u) + ((a >> 8) & 255u) * ((b >> 8) & 255u)
        + ((a >> 16) & 255u) * ((b >> 16) & 255u) + (a >> 24) * (b >> 24);
#endif
}",
    ),
];

impl Writer<'_> {
    /// Defines a helper and its dependencies.
    pub(super) fn helper(&mut self, name: &str) -> Result<()> {
        let Some(helper) = HELPERS.iter().find(|helper| helper.name == name) else {
            broken_invariant(format!("there is no helper {name}"));
        };
        let (text, suffix) = match self.dialect {
            Dialect::Cuda => (helper.cuda, "f"),
            Dialect::OpenCl => (helper.opencl, ""),
        };
        self.define(name, |w| {
            for need in helper.needs {
                w.helper(need)?;
            }
            Ok(format!("WL_FN {}", text.replace('$', suffix)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_helper_is_named_once_and_has_what_it_calls() {
        for (i, helper) in HELPERS.iter().enumerate() {
            assert!(HELPERS[..i].iter().all(|other| other.name != helper.name), "{}", helper.name);
            for text in [helper.cuda, helper.opencl] {
                assert!(text.contains(&format!(" {}(", helper.name)), "{}", helper.name);
                for called in text.split("wl_").skip(1) {
                    let called: String =
                        called.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let called = format!("wl_{called}");
                    let known = called == helper.name || helper.needs.contains(&called.as_str());
                    assert!(known, "{} calls {called}", helper.name);
                }
            }
        }
    }
}
