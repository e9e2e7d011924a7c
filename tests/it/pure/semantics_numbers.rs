//! Numeric expressions: operators and built-in functions, also at the ends of their ranges.

use crate::semantics::{Case, Needs, f, i};

/// An expression of `a`, `b` and `c`, and its results.
struct Row {
    from: &'static str,
    to: &'static str,
    expression: &'static str,
    ulps: u32,
    values: Vec<(Vec<u32>, u32)>,
}

fn case(
    from: &'static str,
    to: &'static str,
    expression: &'static str,
    ulps: u32,
    values: &[(Vec<u32>, u32)],
) -> Row {
    Row { from, to, expression, ulps, values: values.to_vec() }
}

/// One kernel of many expressions: each is a function, and each invocation evaluates one with its
/// values.
fn kernel(name: &str, rows: Vec<Row>) -> Case {
    let (mut functions, mut calls) = (String::new(), String::new());
    let (mut x, mut expected, mut labels, mut ulps) = (vec![], vec![], vec![], vec![]);
    for (k, row) in rows.iter().enumerate() {
        let Row { from, to, expression, .. } = row;
        functions.push_str(&format!(
            "fn e{k}(at: u32) -> u32 {{
    let a = bitcast<{from}>(x[at]);
    let b = bitcast<{from}>(x[at + 1u]);
    let c = bitcast<{from}>(x[at + 2u]);
    let made: {to} = {expression};
    return bitcast<u32>(made);
}}
"
        ));
        for (inputs, output) in &row.values {
            x.extend((0..3).map(|at| inputs.get(at).copied().unwrap_or_default()));
            expected.push(*output);
            labels.push(format!("{expression} of {from}"));
            ulps.push(row.ulps);
        }
        calls.push_str(&format!(
            "    if (row < {}u) {{ y[row] = e{k}(at); return; }}\n",
            expected.len()
        ));
    }
    let wgsl = format!(
        "@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
{functions}@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let row = id.x;
    let at = 3u * row;
{calls}}}
"
    );
    Case {
        name: name.to_string(),
        wgsl,
        params: Vec::new(),
        x,
        groups: [expected.len().div_ceil(32) as u32, 1, 1],
        expected,
        labels,
        ulps,
        needs: Needs::Nothing,
    }
}

fn ints(expression: &'static str, rows: &[(&[i32], i32)]) -> Row {
    let row = |(a, y): &(&[i32], i32)| (a.iter().copied().map(i).collect(), i(*y));
    case("i32", "i32", expression, 0, &rows.iter().map(row).collect::<Vec<_>>())
}

fn words(expression: &'static str, rows: &[(&[u32], u32)]) -> Row {
    let row = |(a, y): &(&[u32], u32)| (a.to_vec(), *y);
    case("u32", "u32", expression, 0, &rows.iter().map(row).collect::<Vec<_>>())
}

fn floats(expression: &'static str, ulps: u32, rows: &[(&[f32], f32)]) -> Row {
    let row = |(a, y): &(&[f32], f32)| (a.iter().copied().map(f).collect(), f(*y));
    case("f32", "f32", expression, ulps, &rows.iter().map(row).collect::<Vec<_>>())
}

const MIN: i32 = i32::MIN;
const MAX: i32 = i32::MAX;
const ALL: u32 = u32::MAX;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        kernel("signed integers", signed()),
        kernel("unsigned integers", unsigned()),
        kernel("bits", bits()),
        kernel("conversions", conversions()),
        kernel("floats", arithmetic()),
        kernel("functions of floats", functions()),
        kernel("vectors and matrices", vectors()),
        kernel("packed words", packed()),
    ]
}

fn signed() -> Vec<Row> {
    vec![
        ints("a + b", &[(&[1, 2], 3), (&[MAX, 1], MIN), (&[MIN, -1], MAX)]),
        ints("a - b", &[(&[1, 2], -1), (&[MIN, 1], MAX)]),
        ints("a * b", &[(&[-3, 7], -21), (&[0x10001, 0x10001], 0x20001), (&[MIN, -1], MIN)]),
        ints("-a", &[(&[5], -5), (&[MIN], MIN)]),
        ints(
            "a / b",
            &[(&[7, 2], 3), (&[-7, 2], -3), (&[7, -2], -3), (&[5, 0], 5), (&[MIN, -1], MIN)],
        ),
        ints(
            "a % b",
            &[(&[7, 3], 1), (&[-7, 3], -1), (&[7, -3], 1), (&[5, 0], 0), (&[MIN, -1], 0)],
        ),
        ints("a << u32(b)", &[(&[3, 4], 48), (&[1, 31], MIN), (&[1, 33], 2), (&[-1, 4], -16)]),
        ints("a >> u32(b)", &[(&[48, 4], 3), (&[-16, 2], -4), (&[MIN, 31], -1), (&[8, 33], 4)]),
        ints("(~a & b) | (c ^ 1)", &[(&[5, 15, 16], (!5 & 15) | (16 ^ 1)), (&[-1, 7, 0], 1)]),
        ints("abs(a)", &[(&[-4], 4), (&[4], 4), (&[MIN], MIN)]),
        ints("sign(a)", &[(&[-4], -1), (&[0], 0), (&[9], 1)]),
        ints("min(a, b) + max(a, c)", &[(&[-3, 2, 5], 2), (&[4, 1, -9], 5)]),
        ints("clamp(a, b, c)", &[(&[5, 0, 3], 3), (&[-5, 0, 3], 0), (&[2, 0, 3], 2)]),
        ints("select(a, b, c > 0)", &[(&[1, 2, 3], 2), (&[1, 2, -3], 1)]),
        ints(
            "select(0, 1, a < b) + select(0, 2, a == b) + select(0, 4, a >= c)",
            &[(&[-1, 1, -2], 5), (&[3, 3, 4], 2)],
        ),
        ints("dot(vec3(a, b, c), vec3(2, 3, 4))", &[(&[1, 2, 3], 20), (&[MAX, 0, 0], -2)]),
        ints(
            "(vec4(a, b, c, a) / vec4(b, c, a, c - c)).w + (vec2(a, b) % vec2(c, c - c)).x",
            &[(&[9, 4, 5], 13)],
        ),
    ]
}

fn unsigned() -> Vec<Row> {
    vec![
        words("a + b * c", &[(&[1, 2, 3], 7), (&[ALL, 2, 1], 1)]),
        words("a - b", &[(&[1, 2], ALL)]),
        words("a / b", &[(&[7, 2], 3), (&[5, 0], 5), (&[ALL, 3], ALL / 3)]),
        words("a % b", &[(&[7, 4], 3), (&[5, 0], 0)]),
        words("a << b", &[(&[3, 4], 48), (&[1, 32], 1)]),
        words("a >> b", &[(&[ALL, 28], 15), (&[8, 35], 1)]),
        words("min(a, b) ^ max(b, c)", &[(&[1, 2, 3], 1 ^ 3)]),
        words("clamp(a, 2u, 9u) + abs(b)", &[(&[1, 5], 7), (&[100, 5], 14)]),
        words(
            "select(b, a, ((a & 1u) == 1u && b > c) || c == 9u)",
            &[(&[3, 5, 4], 3), (&[2, 5, 4], 5), (&[2, 5, 9], 2)],
        ),
        words("dot(vec2(a, b), vec2(b, c))", &[(&[3, 4, 5], 32)]),
        words(
            "select(0u, 1u, all(vec3(a, b, c) > vec3(1u))) + select(0u, 2u, any(vec2(a, b) == vec2(7u)))",
            &[(&[2, 3, 4], 1), (&[7, 1, 1], 2), (&[7, 7, 7], 3), (&[0, 0, 0], 0)],
        ),
        words(
            "select(vec2(a, b), vec2(c), vec2(a > b, a < b)).y",
            &[(&[1, 2, 3], 3), (&[2, 1, 3], 1)],
        ),
        words("u32(!(a > b)) + u32((a > b) != (b > c)) * 2u", &[(&[3, 2, 5], 2), (&[1, 2, 3], 1)]),
    ]
}

fn bits() -> Vec<Row> {
    vec![
        words("countLeadingZeros(a)", &[(&[0], 32), (&[1], 31), (&[ALL], 0)]),
        words("countTrailingZeros(a)", &[(&[0], 32), (&[8], 3), (&[ALL], 0)]),
        words("countOneBits(a)", &[(&[0], 0), (&[0x8000_0101], 3), (&[ALL], 32)]),
        words("reverseBits(a)", &[(&[1], 0x8000_0000), (&[0x1234_5678], 0x1e6a_2c48)]),
        words("firstLeadingBit(a)", &[(&[0], ALL), (&[1], 0), (&[0x8000_0000], 31)]),
        words("firstTrailingBit(a)", &[(&[0], ALL), (&[0x50], 4)]),
        words(
            "extractBits(a, b, c)",
            &[
                (&[0xabcd_1234, 8, 8], 0x12),
                (&[ALL, 0, 32], ALL),
                (&[ALL, 5, 0], 0),
                (&[0xf000_0000, 28, 9], 15),
                (&[ALL, 40, 3], 0),
            ],
        ),
        words(
            "insertBits(a, b, c, 8u)",
            &[
                (&[0, 0xfff, 4], 0xff0),
                (&[ALL, 0, 0], 0xffff_ff00),
                (&[5, ALL, 32], 5),
                (&[0, 3, 30], 0xc000_0000),
            ],
        ),
        ints("countLeadingZeros(a) + countOneBits(b)", &[(&[-1, -1], 32), (&[1, 3], 33)]),
        ints("firstLeadingBit(a)", &[(&[0], -1), (&[-1], -1), (&[5], 2), (&[-9], 3)]),
        ints(
            "extractBits(a, u32(b), u32(c))",
            &[(&[0xf0, 4, 4], -1), (&[0x70, 4, 4], 7), (&[-1, 0, 32], -1), (&[9, 3, 0], 0)],
        ),
        ints("insertBits(a, b, 4u, u32(c))", &[(&[-1, 0, 4], -241), (&[0, -1, 28], -16)]),
        words(
            "vec3(countOneBits(vec3(a, b, c))).y + firstLeadingBit(vec2(a, b)).x",
            &[(&[16, 3, 0], 6)],
        ),
    ]
}

fn conversions() -> Vec<Row> {
    let rows = |rows: &[(u32, u32)]| rows.iter().map(|(a, y)| (vec![*a], *y)).collect::<Vec<_>>();
    vec![
        case(
            "f32",
            "i32",
            "i32(a)",
            0,
            &rows(&[
                (f(3.7), 3),
                (f(-3.7), i(-3)),
                (f(1e10), i(2147483520)),
                (f(-1e10), i(MIN)),
                (f(-0.0), 0),
            ]),
        ),
        case(
            "f32",
            "u32",
            "u32(a)",
            0,
            &rows(&[(f(3.7), 3), (f(-5.0), 0), (f(4e9), 4_000_000_000), (f(1e20), 4_294_967_040)]),
        ),
        case(
            "i32",
            "f32",
            "f32(a)",
            0,
            &rows(&[(i(-7), f(-7.0)), (i(16_777_217), f(16_777_216.0))]),
        ),
        case("u32", "f32", "f32(a)", 0, &rows(&[(ALL, f(4_294_967_296.0)), (7, f(7.0))])),
        case("u32", "i32", "i32(a)", 0, &rows(&[(ALL, i(-1))])),
        case("f32", "u32", "u32(bool(a))", 0, &rows(&[(f(0.0), 0), (f(-0.5), 1)])),
        case("i32", "f32", "f32(a != 0)", 0, &rows(&[(0, f(0.0)), (9, f(1.0))])),
        case(
            "f32",
            "u32",
            "bitcast<u32>(a) ^ bitcast<u32>(bitcast<i32>(a) + 1)",
            0,
            &rows(&[(f(1.0), 1), (f(-2.0), 1)]),
        ),
        case("u32", "f32", "bitcast<vec2<f32>>(vec2(b, a)).y", 0, &rows(&[(f(2.5), f(2.5))])),
        case("f32", "i32", "vec3<i32>(vec3(b, a, c)).y", 0, &rows(&[(f(-8.9), i(-8))])),
        floats(
            "quantizeToF16(a)",
            0,
            &[(&[1.0003], 1.0), (&[0.1], 0.099_975_586), (&[-65504.0], -65504.0)],
        ),
    ]
}

fn arithmetic() -> Vec<Row> {
    vec![
        floats("a + b * c", 1, &[(&[1.0, 2.0, 3.0], 7.0), (&[0.5, 0.25, -2.0], 0.0)]),
        floats("a - b", 0, &[(&[1.5, 0.25], 1.25), (&[-1.0, 1.0], -2.0)]),
        floats("a / b", 3, &[(&[1.0, 3.0], 1.0 / 3.0), (&[-7.0, 2.0], -3.5)]),
        floats("-a", 0, &[(&[1.5], -1.5), (&[-2.0], 2.0)]),
        floats("a % b", 0, &[(&[5.5, 2.0], 1.5), (&[-5.5, 2.0], -1.5), (&[5.5, -2.0], 1.5)]),
        floats("fma(a, b, c)", 1, &[(&[2.0, 3.0, 4.0], 10.0)]),
        floats("min(a, b) + max(a, c)", 0, &[(&[1.0, -2.0, 3.0], 1.0)]),
        floats("clamp(a, b, c)", 0, &[(&[5.0, 0.0, 2.0], 2.0), (&[-5.0, 0.0, 2.0], 0.0)]),
        floats("saturate(a)", 0, &[(&[1.5], 1.0), (&[-1.5], 0.0), (&[0.25], 0.25)]),
        floats(
            "abs(a) * sign(b)",
            0,
            &[(&[-2.0, -3.0], -2.0), (&[2.0, 0.0], 0.0), (&[-1.5, 4.0], 1.5)],
        ),
        floats("mix(a, b, c)", 2, &[(&[1.0, 3.0, 0.25], 1.5)]),
        floats("step(a, b)", 0, &[(&[1.0, 1.0], 1.0), (&[1.0, 0.5], 0.0)]),
        floats(
            "smoothstep(a, b, c)",
            8,
            &[(&[0.0, 2.0, 1.0], 0.5), (&[0.0, 1.0, 2.0], 1.0), (&[0.0, 1.0, 0.25], 0.15625)],
        ),
        floats("select(a, b, a != a)", 0, &[(&[1.0, 2.0], 1.0), (&[-4.0, 2.0], -4.0)]),
    ]
}

fn functions() -> Vec<Row> {
    let e = std::f32::consts::E;
    let pi = std::f32::consts::PI;
    vec![
        floats("ceil(a)", 0, &[(&[1.2], 2.0), (&[-1.2], -1.0)]),
        floats("floor(a)", 0, &[(&[1.2], 1.0), (&[-1.2], -2.0)]),
        floats("trunc(a)", 0, &[(&[1.9], 1.0), (&[-1.9], -1.0)]),
        floats("round(a)", 0, &[(&[0.5], 0.0), (&[1.5], 2.0), (&[-2.5], -2.0), (&[2.6], 3.0)]),
        floats("fract(a)", 0, &[(&[1.25], 0.25), (&[-1.25], 0.75)]),
        floats("sqrt(a)", 4, &[(&[2.0], 2f32.sqrt()), (&[16.0], 4.0)]),
        floats("inverseSqrt(a)", 4, &[(&[4.0], 0.5), (&[3.0], 1.0 / 3f32.sqrt())]),
        floats("exp(a)", 32, &[(&[0.0], 1.0), (&[1.0], e), (&[-3.5], (-3.5f32).exp())]),
        floats("exp2(a)", 32, &[(&[3.0], 8.0), (&[-0.5], 0.5f32.sqrt())]),
        floats("log(a)", 64, &[(&[e * e], 2.0), (&[10.0], 10f32.ln())]),
        floats("log2(a)", 64, &[(&[8.0], 3.0), (&[10.0], 10f32.log2())]),
        floats("pow(a, b)", 256, &[(&[2.0, 10.0], 1024.0), (&[9.0, 0.5], 3.0)]),
        floats("sin(a) + 2.0", 2048, &[(&[1.0], 1f32.sin() + 2.0), (&[-2.0], (-2f32).sin() + 2.0)]),
        floats("cos(a) + 2.0", 2048, &[(&[1.0], 1f32.cos() + 2.0), (&[pi], 1.0)]),
        floats("tan(a)", 4096, &[(&[0.5], 0.5f32.tan())]),
        floats("asin(a) + acos(b)", 8192, &[(&[0.5, 0.25], 0.5f32.asin() + 0.25f32.acos())]),
        floats(
            "atan(a) + atan2(b, c)",
            8192,
            &[
                (&[0.5, 1.0, -1.0], 0.5f32.atan() + 1f32.atan2(-1.0)),
                (&[2.0, -1.0, 2.0], 2f32.atan() + (-1f32).atan2(2.0)),
            ],
        ),
        floats("sinh(a) + cosh(a)", 512, &[(&[1.0], e)]),
        floats("tanh(a)", 512, &[(&[0.5], 0.5f32.tanh()), (&[-3.0], (-3f32).tanh())]),
        floats("asinh(a) + acosh(b)", 4096, &[(&[0.5, 2.0], 0.5f32.asinh() + 2f32.acosh())]),
        floats("atanh(a)", 4096, &[(&[0.5], 0.5f32.atanh())]),
        floats("radians(a) + degrees(b)", 4, &[(&[180.0, 0.0], pi), (&[0.0, pi], 180.0)]),
        floats("ldexp(a, i32(b))", 0, &[(&[0.75, 4.0], 12.0), (&[3.0, -2.0], 0.75)]),
        floats("modf(a).fract + 10.0 * modf(a).whole", 2, &[(&[2.25], 20.25), (&[-2.25], -20.25)]),
        floats("frexp(a).fract + f32(frexp(a).exp)", 0, &[(&[6.0], 3.75), (&[-0.5], -0.5)]),
        floats(
            "frexp(vec2(a, b)).fract.y + f32(frexp(vec2(a, b)).exp.y)",
            0,
            &[(&[1.0, 6.0], 3.75)],
        ),
    ]
}

fn vectors() -> Vec<Row> {
    vec![
        floats("dot(vec3(a, b, c), vec3(c, b, a))", 1, &[(&[1.0, 2.0, 3.0], 10.0)]),
        floats(
            "length(vec2(a, b)) + distance(vec3(a, b, c), vec3(0.0))",
            4,
            &[(&[3.0, 4.0, 0.0], 10.0)],
        ),
        floats("length(a) + distance(b, c)", 0, &[(&[-3.0, 4.0, 6.0], 5.0)]),
        floats("normalize(vec4(a, b, c, 0.0)).y", 4, &[(&[3.0, 4.0, 0.0], 0.8)]),
        floats(
            "cross(vec3(a, b, c), vec3(b, c, a)).z",
            0,
            &[(&[1.0, 2.0, 3.0], 1.0 * 3.0 - 2.0 * 2.0)],
        ),
        floats("reflect(vec2(a, b), vec2(0.0, c)).y", 1, &[(&[1.0, -2.0, 1.0], 2.0)]),
        floats("refract(vec2(a, b), vec2(0.0, 1.0), c).y", 8, &[(&[0.0, -1.0, 0.5], -1.0)]),
        floats(
            "faceForward(vec3(a), vec3(b), vec3(c)).x",
            0,
            &[(&[1.0, 1.0, -1.0], 1.0), (&[1.0, 1.0, 1.0], -1.0)],
        ),
        floats("(vec3(a, b, c) * a + 1.0).zyx.x", 1, &[(&[2.0, 3.0, 4.0], 9.0)]),
        floats(
            "vec4(vec2(a, b), vec2(c, a)).wzyx[u32(b)]",
            0,
            &[(&[5.0, 1.0, 7.0], 7.0), (&[5.0, 3.0, 7.0], 5.0)],
        ),
        floats(
            "mix(vec2(a, b), vec2(b, c), 0.5).y + mix(vec2(a), vec2(c), vec2(0.0, 1.0)).y",
            2,
            &[(&[1.0, 2.0, 4.0], 7.0)],
        ),
        floats(
            "max(vec3(a, b, c), vec3(2.0)).x + abs(vec2(a, -b)).y",
            0,
            &[(&[1.0, 3.0, 0.0], 5.0)],
        ),
        floats("(mat2x2(a, b, c, 1.0) * vec2(2.0, 3.0)).y", 1, &[(&[1.0, 5.0, 7.0], 13.0)]),
        floats(
            "(vec3(a, b, c) * mat2x3(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)).y",
            1,
            &[(&[1.0, 1.0, 2.0], 21.0)],
        ),
        floats(
            "(mat3x3(a, b, c, b, c, a, c, a, b) * mat3x3(a, b, c, b, c, a, c, a, b))[2].y",
            1,
            &[(&[1.0, 2.0, 3.0], 11.0)],
        ),
        floats(
            "((mat2x2(a, b, c, a) + mat2x2(1.0, 1.0, 1.0, 1.0)) * 2.0)[1][0]",
            0,
            &[(&[1.0, 2.0, 3.0], 8.0)],
        ),
        floats("transpose(mat2x3(a, b, c, 4.0, 5.0, 6.0))[1].y", 0, &[(&[1.0, 2.0, 3.0], 5.0)]),
        floats(
            "determinant(mat3x3(a, 0.0, 0.0, 1.0, b, 0.0, 2.0, 3.0, c))",
            2,
            &[(&[2.0, 3.0, 4.0], 24.0)],
        ),
        floats(
            "determinant(mat4x4(a,0.,0.,0., 1.,b,0.,0., 2.,3.,c,0., 4.,5.,6.,1.))",
            2,
            &[(&[2.0, 3.0, 4.0], 24.0)],
        ),
    ]
}

fn packed() -> Vec<Row> {
    let bytes = 0x80ff_7f01; // 1, 127, -1, -128
    let one = |a: u32, y: u32| [(vec![a], y)];
    vec![
        words(
            "u32(dot4I8Packed(a, b))",
            &[(&[bytes, 0x0101_0101], i(-1)), (&[bytes, bytes], 32515)],
        ),
        words("dot4U8Packed(a, b)", &[(&[bytes, 0x0101_0101], 511), (&[ALL, ALL], 260_100)]),
        words("pack4xU8(vec4(a, b, c, 256u))", &[(&[1, 2, 515], 0x0003_0201)]),
        words("pack4xU8Clamp(vec4(a, b, c, 256u))", &[(&[1, 2, 515], 0xffff_0201)]),
        words("pack4xI8(vec4<i32>(vec4(a, b, c, 0u)))", &[(&[1, ALL, 200], 0x00c8_ff01)]),
        words("pack4xI8Clamp(vec4<i32>(vec4(a, b, c, 0u)))", &[(&[1, i(-200), 200], 0x007f_8001)]),
        words("unpack4xU8(a).z", &[(&[bytes], 255)]),
        words("u32(unpack4xI8(a).z) + u32(unpack4xI8(a).w)", &[(&[bytes], i(-129))]),
        case("f32", "u32", "pack4x8unorm(vec4(a, 1.0, 0.0, 2.0))", 0, &one(f(0.2), 0xff00_ff33)),
        case("f32", "u32", "pack4x8snorm(vec4(a, 1.0, 0.0, -2.0))", 0, &one(f(-1.0), 0x8100_7f81)),
        case("f32", "u32", "pack2x16unorm(vec2(a, 1.0))", 0, &one(f(0.2), 0xffff_3333)),
        case("f32", "u32", "pack2x16snorm(vec2(a, 1.0))", 0, &one(f(-1.0), 0x7fff_8001)),
        case("f32", "u32", "pack2x16float(vec2(a, 1.0))", 0, &one(f(-2.0), 0x3c00_c000)),
        case("u32", "f32", "unpack4x8unorm(a).y", 1, &one(0x0000_3300, f(0.2))),
        case("u32", "f32", "unpack4x8snorm(a).w", 1, &one(0x8000_0000, f(-1.0))),
        case("u32", "f32", "unpack2x16unorm(a).x", 1, &one(0x0000_3333, f(0.2))),
        case("u32", "f32", "unpack2x16snorm(a).y", 1, &one(0x8001_0000, f(-1.0))),
        case("u32", "f32", "unpack2x16float(a).x", 0, &one(0x4200_c000, f(-2.0))),
        case("u32", "f32", "unpack2x16float(a).y", 0, &one(0x4200_c000, f(3.0))),
        case(
            "u32",
            "f32",
            "unpack2x16float(a).x",
            0,
            &[
                (vec![0x0001], f(5.960_464_5e-8)),
                (vec![0x7bff], f(65504.0)),
                (vec![0x7c00], f(f32::INFINITY)),
            ],
        ),
    ]
}
