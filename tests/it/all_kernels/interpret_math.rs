//! Built-in functions and operators on edge cases: the interpreter against a GPU API.
//!
//! Infinities, NaN and denormals are excluded, since WGSL leaves them to the device.

use warploom::provider::OpenOptions;
use warploom_wgsl::interpret::Options;

use crate::interpret::run;
use crate::semantics::{Case, Needs, f};
use crate::semantics_devices;
use crate::tell;
use crate::webgpu_host::open;

const FLOATS: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    -3.7,
    1e-3,
    -1e-20,
    1e10,
    -1e10,
    65504.0,
    0.999_999_9,
    -0.000_061,
    255.5,
    7.0,
    16_777_217.0,
    std::f32::consts::PI,
];

const INTEGERS: [u32; 14] = [
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    255,
    0x1234_5678,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// Expressions of floats a and b, with their tolerance: in units of the last place, and absolute.
const OF_FLOATS: &[(&str, u32, f32)] = &[
    ("abs(a)", 0, 0.0),
    ("min(a, b)", 0, 0.0),
    ("max(a, b)", 0, 0.0),
    ("clamp(a, min(b, 1.0), max(b, 1.0))", 0, 0.0),
    ("saturate(a)", 0, 0.0),
    ("ceil(a)", 0, 0.0),
    ("floor(a)", 0, 0.0),
    ("round(a)", 0, 0.0),
    ("trunc(a)", 0, 0.0),
    ("fract(a)", 0, 1e-6),
    ("sign(a)", 0, 0.0),
    ("step(a, b)", 0, 0.0),
    ("select(a, b, a < b)", 0, 0.0),
    ("a + b", 0, 0.0),
    ("a - b", 0, 0.0),
    ("a * b", 0, 1e-37),
    ("a / select(b, 1.0, b == 0.0)", 3, 1e-37),
    ("fma(a, b, 1.0)", 1, 1e-6),
    ("mix(a, b, 0.25)", 2, 1e-6),
    ("smoothstep(0.0, 2.0, a)", 8, 1e-6),
    ("sqrt(abs(a))", 4, 1e-30),
    ("inverseSqrt(abs(a) + 1e-3)", 4, 0.0),
    ("exp(clamp(a, -50.0, 50.0))", 128, 0.0),
    ("exp2(clamp(a, -50.0, 50.0))", 128, 0.0),
    ("log(abs(a) + 1e-3)", 64, 1e-5),
    ("log2(abs(a) + 1e-3)", 64, 1e-5),
    ("pow(abs(a) + 0.1, clamp(b, -3.0, 3.0))", 512, 0.0),
    ("sin(clamp(a, -3.0, 3.0))", 0, 1e-3),
    ("cos(clamp(a, -3.0, 3.0))", 0, 1e-3),
    ("tan(clamp(a, -1.0, 1.0))", 64, 1e-3),
    ("asin(clamp(a, -1.0, 1.0))", 0, 1e-3),
    ("acos(clamp(a, -1.0, 1.0))", 0, 1e-3),
    ("atan(a)", 0, 1e-3),
    ("atan2(a, b + 2.0)", 0, 1e-3),
    ("sinh(clamp(a, -9.0, 9.0))", 512, 1e-5),
    ("cosh(clamp(a, -9.0, 9.0))", 512, 0.0),
    ("tanh(clamp(a, -9.0, 9.0))", 0, 1e-4),
    ("radians(a)", 4, 0.0),
    ("degrees(clamp(a, -1e5, 1e5))", 4, 0.0),
    ("ldexp(a, 3)", 0, 0.0),
    ("f32(frexp(a).exp) + frexp(a).fract", 0, 0.0),
    ("modf(a).fract + modf(a).whole", 0, 0.0),
    ("f32(i32(a))", 0, 0.0),
    ("f32(u32(a))", 0, 0.0),
    ("f32(pack2x16float(vec2(a, b) * 0.001) & 0xff00ff00u)", 0, 0.0),
    ("f32(pack4x8snorm(vec4(a, b, 0.0, 1.0)) & 0x00ffffffu)", 0, 65793.0),
    ("f32(pack2x16unorm(vec2(a, 0.25)) & 0xffffu)", 0, 1.0),
    ("length(vec3(clamp(a, -1e5, 1e5), clamp(b, -1e5, 1e5), 1.0))", 8, 0.0),
    ("normalize(vec2(clamp(a, -1e5, 1e5), 2.0)).y", 8, 0.0),
    ("cross(vec3(a, 2.0, 1.0), vec3(1.0, 0.5, 2.0)).z", 2, 1e-3),
    ("dot(vec2(a, 0.5), vec2(2.0, b))", 2, 1e-3),
];

/// Expressions of integers a and b, with `$` for their type.
const OF_INTEGERS: &[&str] = &[
    "a + b",
    "a - b",
    "a * b",
    "a / b",
    "a % b",
    "a & b",
    "a | b",
    "a ^ b",
    "~a",
    "a << (u32(b) & 31u)",
    "a >> (u32(b) & 31u)",
    "min(a, b)",
    "max(a, b)",
    "abs(a)",
    "clamp(a, min(b, $(7)), max(b, $(7)))",
    "countLeadingZeros(a)",
    "countTrailingZeros(a)",
    "countOneBits(a)",
    "reverseBits(a)",
    "firstLeadingBit(a)",
    "firstTrailingBit(a)",
    "extractBits(a, u32(b) & 31u, 5u)",
    "insertBits(a, b, 5u, u32(b) & 15u)",
    "select($(1), $(2), a < b) + select($(4), $(8), a >= b)",
    "$(f32(a) * 0.5)",
    "$(dot4I8Packed(u32(a), u32(b)))",
    "$(dot4U8Packed(u32(a), u32(b)))",
    "$(unpack4xI8(u32(a)).y)",
    "$(unpack4xU8(u32(a)).w)",
    "$(pack4xI8Clamp(vec4(i32(a), i32(b), 1, -1)))",
    "$(pack4xU8Clamp(vec4(u32(a), u32(b), 1u, 2u)))",
    "dot(vec2(a, b), vec2(b, $(3)))",
];

/// A kernel that puts every pair of `values` through every expression.
fn case(ty: &str, values: &[u32], expressions: &[&str]) -> Case {
    let n = values.len();
    let (mut steps, mut labels) = (String::new(), Vec::new());
    for (k, expression) in expressions.iter().enumerate() {
        let expression = expression.replace('$', ty);
        steps.push_str(&format!("    y[{}u + i] = bitcast<u32>({expression});\n", k * n * n));
        let pairs = (0..n * n).map(|i| (values[i / n], values[i % n]));
        labels.extend(pairs.map(|(a, b)| format!("{expression} of {a:#x} and {b:#x}")));
    }
    let wgsl = format!(
        "@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
    if (i >= {count}u) {{ return; }}
    let a = bitcast<{ty}>(x[i / {n}u]);
    let b = bitcast<{ty}>(x[i % {n}u]);
{steps}}}
",
        count = n * n,
    );
    Case {
        name: format!("builtins of {ty}"),
        wgsl,
        params: Vec::new(),
        x: values.to_vec(),
        expected: vec![0; labels.len()],
        groups: [(n * n).div_ceil(64) as u32, 1, 1],
        labels,
        ulps: Vec::new(),
        needs: Needs::Nothing,
    }
}

/// Whether a float is within its row's tolerance of a device's; anything is, if the device's result
/// is not a normal number.
fn near(a: u32, b: u32, ulps: u32, gap: f32) -> bool {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    let scale = f32::EPSILON * b.abs() * ulps as f32;
    !b.is_normal() && b != 0.0 || a.is_subnormal() || (a - b).abs() <= gap.max(scale)
}

#[test]
fn builtins_make_what_a_gpu_interface_makes() {
    assert!(near(f(1.0), f(1.0), 0, 0.0) && !near(f(1.0), f(1.1), 4, 1e-3));
    assert!(!near(f(f32::NAN), f(1.0), 9, 1.0) && !near(f(f32::INFINITY), f(1.0), 9, 1.0));
    let Some(device) = open(OpenOptions::default()) else { return };
    let expressions: Vec<&str> = OF_FLOATS.iter().map(|(expression, ..)| *expression).collect();
    let of_floats = case("f32", &FLOATS.map(f32::to_bits), &expressions);
    let cases =
        [of_floats, case("i32", &INTEGERS, OF_INTEGERS), case("u32", &INTEGERS, OF_INTEGERS)];
    let mut wrong = Vec::new();
    for case in &cases {
        let is = run(case, &Options::default()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let want = semantics_devices::run(&*device, case).unwrap();
        let pairs = case.x.len() * case.x.len();
        for (i, (is, want)) in is.iter().zip(&want).enumerate() {
            let fine = match case.name.ends_with("f32") {
                true => near(*is, *want, OF_FLOATS[i / pairs].1, OF_FLOATS[i / pairs].2),
                false => is == want,
            };
            if !fine {
                let (a, b) = (f32::from_bits(*is), f32::from_bits(*want));
                let label = &case.labels[i];
                wrong.push(format!("{label}: {is:#x} ({a:e}), not {want:#x} ({b:e})"));
            }
        }
        tell(&format!("interpret: {} of {} values beside a device", case.name, want.len()));
    }
    wrong.dedup_by_key(|text| text.split(" of ").next().map(str::to_owned));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
