//! Picks identifiers that are free in both languages.

use std::collections::HashSet;

/// Keywords of C, C++, CUDA and OpenCL C, macros of their headers, and the printer's own names
/// inside functions. A user's identifier among them gets a numeric suffix.
const RESERVED: &str = "
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
    const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    kernel global local constant generic read_only write_only read_write half uchar ushort uint
    ulong quad complex imaginary image1d_t image2d_t image3d_t sampler_t event_t pipe size_t
    ptrdiff_t intptr_t uintptr_t vec_step f32 i32 u32 f16 main NULL
    threadIdx blockIdx blockDim gridDim warpSize atomicAdd atomicSub atomicAnd atomicOr atomicXor
    atomicMin atomicMax atomicExch atomicCAS printf assert clock min max
    barrier mem_fence read_mem_fence write_mem_fence atomic_add atomic_sub atomic_and atomic_or
    atomic_xor atomic_min atomic_max atomic_xchg atomic_cmpxchg get_local_id get_group_id
    get_num_groups get_global_id get_sub_group_id get_num_sub_groups get_sub_group_local_id
    get_max_sub_group_size sub_group_barrier sub_group_all sub_group_any sub_group_broadcast
    sub_group_shuffle clz popcount as_int as_uint as_float
    fabs fmin fmax floor ceil trunc rint fmod sqrt rsqrt fma exp exp2 log log2 pow sin cos tan sinh
    cosh tanh asin acos atan atan2 asinh acosh atanh ldexp frexp modf select
    fabsf fminf fmaxf floorf ceilf truncf rintf fmodf sqrtf rsqrtf fmaf expf exp2f logf log2f powf
    sinf cosf tanf sinhf coshf tanhf asinf acosf atanf atan2f asinhf acoshf atanhf ldexpf frexpf
    NAN INFINITY HUGE_VAL HUGE_VALF MAXFLOAT INT_MAX INT_MIN UINT_MAX CHAR_BIT FLT_MAX FLT_MIN
    FLT_EPSILON M_E M_LOG2E M_LOG10E M_LN2 M_LN10 M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI M_SQRT2 unix
    linux";

/// The identifiers of a scope: of the file, of a function or of a struct.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    /// Identifiers inside functions. Types and constants of the file are named as they are first
    /// used, which can be later than an identifier that would hide them.
    inside: HashSet<String>,
}

impl Names {
    /// Creates the scope of a file or of a struct.
    pub(super) fn new() -> Names {
        let taken = RESERVED.split_whitespace().map(str::to_string).collect();
        Names { taken, inside: HashSet::new() }
    }

    /// Reserves and returns a free identifier derived from `label`.
    pub(super) fn pick(&mut self, label: &str) -> String {
        let name = free(label, |name| self.taken.contains(name) || self.inside.contains(name));
        self.taken.insert(name.clone());
        name
    }

    /// Same as [`Names::pick`], for a function in a file whose scope is `file`.
    pub(super) fn pick_inside(&mut self, file: &mut Names, label: &str) -> String {
        let name = free(label, |name| self.taken.contains(name) || file.taken.contains(name));
        self.taken.insert(name.clone());
        file.inside.insert(name.clone());
        name
    }

    /// Reserves an outer identifier that this scope uses, so that none of its own hides it.
    pub(super) fn reserve(&mut self, name: &str) {
        self.taken.insert(name.to_string());
    }
}

/// Returns the first of `label`, `label_1`, `label_2`, .. that is not taken.
fn free(label: &str, taken: impl Fn(&str) -> bool) -> String {
    let base = sanitized(label);
    let mut name = base.clone();
    let mut number = 0;
    while taken(&name) {
        number += 1;
        name = format!("{base}_{number}");
    }
    name
}

/// Returns whether the printer may use the name for a vector or matrix type: `f32x4`, `boolx2`,
/// `f32m4x2`.
fn is_own_type(name: &str) -> bool {
    ["f32x", "f32m", "i32x", "u32x", "f16x", "boolx"].iter().any(|head| name.starts_with(head))
}

/// Reduces a label to ASCII letters, digits and single underscores, without the prefixes reserved
/// by the printer or the languages.
fn sanitized(label: &str) -> String {
    let mut name = String::new();
    for c in label.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c),
            '_' if !name.ends_with('_') => name.push('_'),
            c if c.is_ascii() => {}
            c => name.push_str(&format!("u{:x}_", u32::from(c))),
        }
    }
    let mut name = name.trim_matches('_').to_string();
    let own = ["wl_", "WL_"].iter().any(|head| name.starts_with(head)) || is_own_type(&name);
    if own || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "v_");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_free_and_plain() {
        let mut names = Names::new();
        assert_eq!(names.pick("x"), "x");
        assert_eq!(names.pick("x"), "x_1");
        assert_eq!(names.pick("kernel"), "kernel_1");
        assert_eq!(names.pick("wl_index"), "v_wl_index");
        assert_eq!(names.pick("__a__b"), "a_b");
        assert_eq!(names.pick("_0"), "v_0");
        assert_eq!(names.pick("größe"), "gruf6_udf_e");
        assert_eq!(names.pick("_"), "v_");
        assert_eq!(names.pick("f32x4"), "v_f32x4");
        names.reserve("y");
        assert_eq!(names.pick("y"), "y_1");
    }

    #[test]
    fn what_is_inside_a_function_hides_nothing_of_the_file() {
        let mut file = Names::new();
        assert_eq!(file.pick("x"), "x");
        let [mut first, mut second] = [Names::default(), Names::default()];
        assert_eq!(first.pick_inside(&mut file, "x"), "x_1");
        assert_eq!(first.pick_inside(&mut file, "a"), "a");
        assert_eq!(first.pick_inside(&mut file, "while"), "while_1");
        // Named later, and used by both.
        assert_eq!(file.pick("a"), "a_1");
        assert_eq!(second.pick_inside(&mut file, "a"), "a");
        assert_eq!(second.pick_inside(&mut file, "a_1"), "a_1_1");
    }
}
