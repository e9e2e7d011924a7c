//! Prints operations on cooperative matrices: on tensor cores in CUDA; OpenCL C refuses them.
//!
//! Matrices are 16 x 16, A and B of f16, C of f32 or f16. A thread of a warp holds the fragments of
//! `mma` (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4 g + t has rows g and g + 8 of A and
//! C, and column g of B, two neighbours each. A 16 x 16 product is two of 16 x 8. Fragments use
//! ordinary loads, so any layout and any memory works; two adjacent f16 are one load.

use naga::{
    CooperativeData, CooperativeRole, CooperativeSize, Expression, Handle, Scalar, TypeInner,
};

use super::Bounds;
use super::dialect::Dialect;
use super::function::Body;
use super::types::{Pointee, numeric, pointee};
use super::writer::Writer;
use warploom_core::error::Result;

/// Definitions that the functions below share: the types of fragments, and the index of a lane.
const FRAGMENTS: &str = "\
typedef struct { u32 r[4]; } wl_coop_a;
typedef struct { u32 r[4]; } wl_coop_b;
typedef struct { f32 r[8]; } wl_coop_c;
typedef struct { u32 r[4]; } wl_coop_h;
WL_FN u32 wl_coop_lane(void) {
    u32 lane;
    asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(lane));
    return lane;
}
// The f16 values `at` and `at + step`.
WL_FN u32 wl_coop_pair(const f16* p, u32 at, u32 step) {
    return (u32)p[at] | ((u32)p[at + step] << 16);
}
WL_FN u32 wl_coop_word(const f16* p, u32 at) {
    return *(const u32*)(p + at);
}";

/// Function that loads fragments of A: rows g and g + 8, two columns from 2 t and two from 2 t + 8.
const LOAD_A: &str = "\
WL_FN wl_coop_a wl_coop_load_a(const f16* p, u32 stride, bool rows, bool words) {
    const u32 g = wl_coop_lane() / 4u, t = wl_coop_lane() % 4u * 2u;
    wl_coop_a m;
    for (u32 i = 0u; i < 4u; i++) {
        const u32 row = g + i % 2u * 8u, column = t + i / 2u * 8u;
        const u32 at = rows ? row * stride + column : column * stride + row;
        m.r[i] = rows && words ? wl_coop_word(p, at) : wl_coop_pair(p, at, rows ? 1u : stride);
    }
    return m;
}";

/// Function that loads fragments of B: two rows from 2 t and two from 2 t + 8, columns g and g + 8.
const LOAD_B: &str = "\
WL_FN wl_coop_b wl_coop_load_b(const f16* p, u32 stride, bool rows, bool words) {
    const u32 g = wl_coop_lane() / 4u, t = wl_coop_lane() % 4u * 2u;
    wl_coop_b m;
    for (u32 i = 0u; i < 4u; i++) {
        const u32 row = t + i % 2u * 8u, column = g + i / 2u * 8u;
        const u32 at = rows ? row * stride + column : column * stride + row;
        m.r[i] = !rows && words ? wl_coop_word(p, at) : wl_coop_pair(p, at, rows ? stride : 1u);
    }
    return m;
}";

/// Function that returns the position in C of element i of a lane: rows g and g + 8, two columns
/// from 2 t and two from 2 t + 8.
const PLACE_C: &str = "\
WL_FN u32 wl_coop_place(u32 i, u32 stride, bool rows) {
    const u32 g = wl_coop_lane() / 4u, t = wl_coop_lane() % 4u * 2u;
    const u32 row = g + i / 2u % 2u * 8u, column = t + i % 2u + i / 4u * 8u;
    return rows ? row * stride + column : column * stride + row;
}";

const LOAD_C: &str = "\
WL_FN wl_coop_c wl_coop_load_c(const f32* p, u32 stride, bool rows) {
    wl_coop_c m;
    for (u32 i = 0u; i < 8u; i++) m.r[i] = p[wl_coop_place(i, stride, rows)];
    return m;
}";

const STORE_C: &str = "\
WL_FN void wl_coop_store_c(wl_coop_c m, f32* p, u32 stride, bool rows) {
    for (u32 i = 0u; i < 8u; i++) p[wl_coop_place(i, stride, rows)] = m.r[i];
}";

/// Function that loads C of f16: two neighbours of a row per register, at the positions of
/// [`PLACE_C`].
const LOAD_H: &str = "\
WL_FN wl_coop_h wl_coop_load_h(const f16* p, u32 stride, bool rows) {
    wl_coop_h m;
    for (u32 i = 0u; i < 4u; i++) {
        m.r[i] = wl_coop_pair(p, wl_coop_place(2u * i, stride, rows), rows ? 1u : stride);
    }
    return m;
}";

const STORE_H: &str = "\
WL_FN void wl_coop_store_h(wl_coop_h m, f16* p, u32 stride, bool rows) {
    for (u32 i = 0u; i < 4u; i++) {
        const u32 at = wl_coop_place(2u * i, stride, rows);
        p[at] = (f16)(m.r[i] & 0xffffu);
        p[at + (rows ? 1u : stride)] = (f16)(m.r[i] >> 16);
    }
}";

/// Same as [`MULTIPLY`], with f16 sums.
const MULTIPLY_H: &str = "\
WL_FN wl_coop_h wl_coop_multiply_h(wl_coop_a a, wl_coop_b b, wl_coop_h c) {
    for (u32 h = 0u; h < 2u; h++) {
        u32* d = c.r + 2u * h;
#if __CUDA_ARCH__ >= 800
        asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 \"
            \"{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\"
            : \"+r\"(d[0]), \"+r\"(d[1])
            : \"r\"(a.r[0]), \"r\"(a.r[1]), \"r\"(a.r[2]), \"r\"(a.r[3]),
              \"r\"(b.r[2u * h]), \"r\"(b.r[2u * h + 1u]));
#else
        for (u32 s = 0u; s < 2u; s++) {
            asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 \"
                \"{%0, %1}, {%2, %3}, {%4}, {%0, %1};\"
                : \"+r\"(d[0]), \"+r\"(d[1])
                : \"r\"(a.r[2u * s]), \"r\"(a.r[2u * s + 1u]), \"r\"(b.r[2u * h + s]));
        }
#endif
    }
    return c;
}";

/// Function that computes two products of 16 x 8 x 16; sm_75 computes each in two steps of the
/// inner dimension.
const MULTIPLY: &str = "\
WL_FN wl_coop_c wl_coop_multiply(wl_coop_a a, wl_coop_b b, wl_coop_c c) {
    for (u32 h = 0u; h < 2u; h++) {
        f32* d = c.r + 4u * h;
#if __CUDA_ARCH__ >= 800
        asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 \"
            \"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"
            : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])
            : \"r\"(a.r[0]), \"r\"(a.r[1]), \"r\"(a.r[2]), \"r\"(a.r[3]),
              \"r\"(b.r[2u * h]), \"r\"(b.r[2u * h + 1u]));
#else
        for (u32 s = 0u; s < 2u; s++) {
            asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 \"
                \"{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\"
                : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])
                : \"r\"(a.r[2u * s]), \"r\"(a.r[2u * s + 1u]), \"r\"(b.r[2u * h + s]));
        }
#endif
    }
    return c;
}";

/// Returns the start of the body of a function of `shaders/shared/mma_int8.wgsl`: an `#if` branch
/// that computes the result with one instruction. The `#else` branch with the translated body must
/// follow. Returns `None` for any other function.
pub(super) fn known_function(name: &str, arguments: &[String]) -> Option<String> {
    let [a, b, c] = arguments else { return None };
    let ((size, codes, places), rest) = match name {
        "mma_int8" => {
            let places = "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}";
            let rest = format!(
                "\"r\"({a}.x), \"r\"({a}.y), \"r\"({a}.z), \"r\"({a}.w), \"r\"({b}.x), \"r\"({b}.y)"
            );
            (("m16n8k32", "u8", places), rest)
        }
        "multiply_half" => {
            let places = "{%4, %5}, {%6}, {%7, %8, %9, %10}";
            (("m16n8k16", "s8", places), format!("\"r\"({a}.x), \"r\"({a}.y), \"r\"({b})"))
        }
        _ => return None,
    };
    Some(format!(
        "#if __CUDA_ARCH__ >= 800
    auto made = {c};
    asm(\"mma.sync.aligned.{size}.row.col.s32.{codes}.s8.s32 \"
        \"{{%0, %1, %2, %3}}, {places};\"
        : \"=r\"(made.x), \"=r\"(made.y), \"=r\"(made.z), \"=r\"(made.w)
        : {rest}, \"r\"({c}.x), \"r\"({c}.y), \"r\"({c}.z), \"r\"({c}.w));
    return made;
"
    ))
}

impl Writer<'_> {
    /// Returns whether [`known_function`] may replace functions, which it recognises by name.
    pub(super) fn multiplies_codes(&self) -> bool {
        self.dialect == Dialect::Cuda && self.options.multiplies_codes
    }

    /// Returns the C type of a cooperative matrix.
    pub(super) fn cooperative_type(&mut self, inner: &TypeInner) -> Result<String> {
        let TypeInner::CooperativeMatrix { columns, rows, scalar, role } = *inner else {
            return self.refuse("another type than a cooperative matrix");
        };
        if self.dialect == Dialect::OpenCl {
            return self.refuse("a cooperative matrix");
        }
        let sixteen = CooperativeSize::Sixteen;
        let name = match (role, scalar) {
            (CooperativeRole::A, Scalar::F16) => "wl_coop_a",
            (CooperativeRole::B, Scalar::F16) => "wl_coop_b",
            (CooperativeRole::C, Scalar::F32) => "wl_coop_c",
            (CooperativeRole::C, Scalar::F16) => "wl_coop_h",
            _ => return self.refuse(format!("a cooperative matrix {role:?} of {scalar:?}")),
        };
        if (columns, rows) != (sixteen, sixteen) {
            return self.refuse(format!("a cooperative matrix of {columns:?} x {rows:?}"));
        }
        self.define("wl_coop", |_| Ok(FRAGMENTS.to_string()))?;
        Ok(name.to_string())
    }

    fn cooperative_function(&mut self, name: &str, text: &str) -> Result<()> {
        if text.contains("wl_coop_place(") {
            self.define("wl_coop_place", |_| Ok(PLACE_C.to_string()))?;
        }
        self.define(name, |_| Ok(text.to_string()))
    }
}

/// The location of a matrix in memory, as arguments of the functions that load and store it.
struct Memory {
    address: String,
    stride: String,
    rows: bool,
    /// Whether pairs of adjacent elements are aligned to words.
    words: bool,
}

impl Body<'_, '_> {
    fn matrix_memory(&mut self, data: &CooperativeData, scalar: Scalar) -> Result<Memory> {
        // Element addresses are not clamped to the buffer, which untrusted kernels need.
        if self.w.options.bounds != Bounds::Unchecked {
            return self.w.refuse("a cooperative matrix of a kernel whose indices are checked");
        }
        let Some((to, _)) = pointee(self.inner(data.pointer)) else {
            return self.w.refuse("a cooperative matrix from other than a pointer");
        };
        let inner = match to {
            Pointee::Type(ty) => self.w.module.types[ty].inner.clone(),
            Pointee::Value(inner) => inner,
        };
        let (size, element) = match numeric(&inner) {
            Some((size, element)) if element == scalar => (size.map_or(1, |s| s as u32), element),
            _ => return self.w.refuse(format!("a cooperative matrix of {scalar:?} in {inner:?}")),
        };
        if size == 3 {
            return self.w.refuse("a cooperative matrix in vectors of three");
        }
        let memory = self.w.memory_type(&TypeInner::Scalar(element))?;
        let address = self.place(data.pointer)?.address();
        let stride = self.value(data.stride)?;
        Ok(Memory {
            address: format!("({memory}*){address}"),
            stride: format!("{stride} * {size}u"),
            rows: data.row_major,
            words: size > 1,
        })
    }

    /// Prints the load of a matrix.
    pub(super) fn cooperative_load(
        &mut self,
        h: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<String> {
        let inner = self.inner(h).clone();
        let ty = self.w.cooperative_type(&inner)?;
        let TypeInner::CooperativeMatrix { scalar, .. } = inner else {
            return self.w.refuse("another type than a cooperative matrix");
        };
        let Memory { address, stride, rows, words } = self.matrix_memory(data, scalar)?;
        let (name, text, more) = match ty.as_str() {
            "wl_coop_a" => ("wl_coop_load_a", LOAD_A, format!(", {words}")),
            "wl_coop_b" => ("wl_coop_load_b", LOAD_B, format!(", {words}")),
            "wl_coop_h" => ("wl_coop_load_h", LOAD_H, String::new()),
            _ => ("wl_coop_load_c", LOAD_C, String::new()),
        };
        self.w.cooperative_function(name, text)?;
        Ok(format!("{name}({address}, {stride}, {rows}{more})"))
    }

    /// Prints `a * b + c`.
    pub(super) fn cooperative_multiply(&mut self, abc: [Handle<Expression>; 3]) -> Result<String> {
        for h in abc {
            let inner = self.inner(h).clone();
            self.w.cooperative_type(&inner)?;
        }
        let inner = self.inner(abc[2]).clone();
        let (name, text) = match self.w.cooperative_type(&inner)?.as_str() {
            "wl_coop_h" => ("wl_coop_multiply_h", MULTIPLY_H),
            _ => ("wl_coop_multiply", MULTIPLY),
        };
        self.w.cooperative_function(name, text)?;
        let [a, b, c] = [self.value(abc[0])?, self.value(abc[1])?, self.value(abc[2])?];
        Ok(format!("{name}({a}, {b}, {c})"))
    }

    /// Prints the store of a matrix.
    pub(super) fn cooperative_store(
        &mut self,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<()> {
        let inner = self.inner(target).clone();
        let ty = self.w.cooperative_type(&inner)?;
        let (name, text, element) = match ty.as_str() {
            "wl_coop_c" => ("wl_coop_store_c", STORE_C, Scalar::F32),
            "wl_coop_h" => ("wl_coop_store_h", STORE_H, Scalar::F16),
            _ => return self.w.refuse("a store of an operand of a cooperative product"),
        };
        let value = self.value(target)?;
        let Memory { address, stride, rows, .. } = self.matrix_memory(data, element)?;
        self.w.cooperative_function(name, text)?;
        self.line(&format!("{name}({value}, {address}, {stride}, {rows});"));
        Ok(())
    }
}
