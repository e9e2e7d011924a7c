//! WGSL semantics as small kernels with inputs and expected outputs: one table for every device and
//! every translation.
//!
//! Each kernel reads `x` at binding 1 and writes `y` at binding 2, both words; some have a uniform
//! block at binding 0.

use crate::{semantics_kernels, semantics_numbers};

/// A kernel and its expected results.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) wgsl: String,
    /// Words of the uniform block; if empty, there is none.
    pub(crate) params: Vec<u32>,
    pub(crate) x: Vec<u32>,
    /// The words of y.
    pub(crate) expected: Vec<u32>,
    pub(crate) groups: [u32; 3],
    /// The meaning of each word of y; none if the case's name states it.
    pub(crate) labels: Vec<String>,
    /// Tolerance of each word, read as `f32`, in units of its last place; if empty, all are exact.
    pub(crate) ulps: Vec<u32>,
    pub(crate) needs: Needs,
}

/// Required features beyond the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// `enable f16`.
    Halves,
    Subgroups,
}

/// The contents of y before the kernel runs.
pub(crate) const POISON: u32 = 0x7fc0_dead;

/// The whole table.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = semantics_numbers::cases();
    all.extend(semantics_kernels::cases());
    all.push(names());
    all
}

/// Variables, members and parameters with the names of types, or what a translation would call them.
fn names() -> Case {
    Case {
        name: "names of types are names of variables too".into(),
        wgsl: "
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
var<workgroup> i: array<u32, 3>;
struct a { a: u32, n: vec2<u32> }
struct c { f32x4: vec4<f32>, w: vec4<f32> }
struct pair { a: a, b: a, pair: u32, c: c, d: c }
fn twice(a: u32) -> u32 { let u32x2 = a * 2u; return u32x2; }
@compute @workgroup_size(1) fn main() {
    var a_2 = array<a, 2>();
    a_2[1].a = twice(x[0]);
    let u32x2 = vec2<u32>(x[1], 7u);
    var a: a = a(3u, u32x2);
    var b = a;
    b.n += u32x2;
    let f32m2x2 = c(vec4<f32>(2.0), vec4<f32>(3.0));
    let copy = pair(a, b, 5u, f32m2x2, c());
    y[0] = a_2[1].a;
    y[1] = b.n.x;
    y[2] = copy.b.n.y + copy.a.a;
    y[3] = copy.pair + a_2[0].a + u32(copy.c.w.y + copy.d.f32x4.x) + i[x[1] - 2u];
}"
        .into(),
        params: Vec::new(),
        x: vec![10, 4],
        expected: vec![20, 8, 17, 8],
        groups: [1; 3],
        labels: Vec::new(),
        ulps: Vec::new(),
        needs: Needs::Nothing,
    }
}

pub(crate) fn f(value: f32) -> u32 {
    value.to_bits()
}

pub(crate) fn i(value: i32) -> u32 {
    value as u32
}

impl Case {
    /// The difference, if any.
    pub(crate) fn difference(&self, is: &[u32]) -> Option<String> {
        if is.len() != self.expected.len() {
            return Some(format!("{}: {} words of {}", self.name, is.len(), self.expected.len()));
        }
        let ulps = |at: usize| self.ulps.get(at).copied().unwrap_or_default();
        let wrong = (0..is.len()).find(|&at| !agree(is[at], self.expected[at], ulps(at)))?;
        let (is, want) = (is[wrong], self.expected[wrong]);
        Some(format!(
            "{}: y[{wrong}] is {is:#x} ({}), not {want:#x} ({}): {}",
            self.name,
            f32::from_bits(is),
            f32::from_bits(want),
            self.labels.get(wrong).unwrap_or(&self.wgsl)
        ))
    }
}

fn agree(is: u32, want: u32, ulps: u32) -> bool {
    let (a, b) = (f32::from_bits(is), f32::from_bits(want));
    is == want || (ulps > 0 && ordered(a).abs_diff(ordered(b)) <= u64::from(ulps))
}

/// Maps floats to integers in order; both zeros are one.
fn ordered(value: f32) -> i64 {
    let bits = i64::from(value.to_bits() & 0x7fff_ffff);
    if value.is_sign_negative() { -bits } else { bits }
}

#[test]
fn the_comparison_can_fail() {
    let near = f(1.0) + 2;
    assert!(agree(f(1.0), f(1.0), 0) && !agree(near, f(1.0), 0));
    assert!(agree(near, f(1.0), 2) && !agree(near, f(1.0), 1));
    assert!(agree(f(0.0), f(-0.0), 1) && !agree(f(0.0), f(-0.0), 0));
    assert!(!agree(f(f32::NAN), f(1.0), 4096) && !agree(POISON, 0, 4096));
    for case in cases() {
        assert!(case.difference(&case.expected).is_none(), "{}", case.name);
        let mut wrong = case.expected.clone();
        wrong[0] ^= 0x0100_0000;
        assert!(case.difference(&wrong).is_some(), "{}", case.name);
        assert!(case.difference(&wrong[1..]).is_some(), "{}", case.name);
    }
}
