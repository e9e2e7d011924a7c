//! WGSL that a pack may use: overrides in every allowed position, every built-in function of the
//! core language, uniform blocks of any shape; and the errors for the rest. Valid programs give the
//! right results on every device.

use warploom::kernel::pack::Pack;
use warploom_testkit::pack::{self, Outcome};

use crate::devices;

const HEAD: &str = "\
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
";

fn load(manifest: &str, shader: &str) -> Result<Pack, String> {
    let manifest = format!("name = \"p\"\n{manifest}");
    Pack::from_sources(&manifest, &[("k.wgsl", shader)]).map_err(|e| e.to_string())
}

/// Runs the cases of packs in the interpreter and on every device.
#[track_caller]
fn right(packs: &[(Pack, &str)]) {
    let runtimes = devices::every(false);
    for (pack, label) in packs {
        for case in pack::cases(pack).unwrap() {
            let (row, job) = pack::in_interpreter(pack, &case);
            let Some(job) = job else { panic!("{label}: {row:?}") };
            for (device, runtime) in &runtimes {
                let row = pack::on_device(&job, runtime);
                assert!(
                    matches!(row.outcome, Outcome::Right { .. }),
                    "{label} on {device}: {row:?}"
                );
            }
        }
    }
}

/// The error of a pack, or of its first case.
#[track_caller]
fn refused(manifest: &str, shader: &str, words: &[&str]) {
    let error = match load(manifest, shader) {
        Err(error) => error,
        Ok(pack) => {
            let case = &pack::cases(&pack).unwrap()[0];
            match pack::in_interpreter(&pack, case).0.outcome {
                Outcome::Wrong { what } => what,
                other => panic!("{other:?} of\n{shader}"),
            }
        }
    };
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    for word in ["naga", "Capabilit", "TypeInner", "Handle", " [0]", " [1]", " [2]", " [5]"] {
        assert!(!error.contains(word), "{word:?} is in: {error}");
    }
}

const OUT: &str = "outputs = [\"y: [4]\"]\ngroups = 1\n";
const Y: &str = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n";

#[test]
fn overrides_are_constants_wherever_they_stand() {
    let sized = format!(
        "{HEAD}override N: u32 = 8u;
        override M = 2 * N + 1u; // from another; a comment with override K;
        @id(7) override /* in between */ by_id: i32;
        override on: bool;
        override scale = 0.5;
        @id(9) override unused: f32;
        alias Row = array<u32, N>;
        var<workgroup> a: array<u32, N * 2 + u32(by_id)>;
        var<workgroup> b: Row;
        var<private> c = f32(M) * scale;
        const K = 3u;
        @compute @workgroup_size(N)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(global_invocation_id) id: vec3<u32>) {{
            a[i] = x[id.x];
            b[i] = x[id.x] + K;
            workgroupBarrier();
            var sum = a[N - 1u - i] + b[N - 1u - i] + u32(c);
            if on {{ sum += 1000u * u32(by_id); }}
            y[id.x] = sum;
        }}"
    );
    // x is 0 .. 15; with N threads each half is reversed twice, and 3 is added.
    let want = |n: usize, c: usize, more: usize| {
        let turned = (0..16).map(|i| i / n * n + n - 1 - i % n);
        let numbers: Vec<String> = turned.map(|x| (2 * x + 3 + c + more).to_string()).collect();
        numbers.join(", ")
    };
    let io = "inputs = [\"x: [n]\"]\noutputs = [\"y: [n]\"]\nthreads = \"n\"\n";
    let case = |want: String| {
        format!(
            "[[case]]\nvalues = {{ n = 16 }}\ninputs = {{ x = \"iota\" }}\noutputs = {{ y = [{want}] }}\n"
        )
    };
    let rows = [
        // M = 17, c = 8.5
        ("constants = { by_id = 4, on = true }\n", want(8, 8, 4000)),
        ("constants = { 7 = 4, on = 1 }\n", want(8, 8, 4000)),
        ("constants = { 7 = 1, on = false, N = 4, scale = 2.0 }\n", want(4, 18, 0)),
        ("constants = { by_id = 2, M = 5, on = false }\n", want(8, 2, 0)),
        // Tuned ones without a value begin with the first.
        ("constants = { on = true }\ntune = { by_id = [3, 4], N = [16] }\n", want(8, 8, 3000)),
    ];
    let packs: Vec<(Pack, &str)> = (rows.iter())
        .map(|(set, numbers)| {
            let manifest = format!("{io}{set}{}", case(numbers.clone()));
            (load(&manifest, &sized).unwrap_or_else(|e| panic!("{set}: {e}")), *set)
        })
        .collect();
    right(&packs);
    // From Rust by name and by number.
    let manifest = format!("{io}{}{}", rows[0].0, case(want(16, 16, 1000)));
    let pack = load(&manifest, &sized).unwrap();
    let pack = pack.with_constants(&[("N", 16.0), ("7", 1.0)]).unwrap();
    assert_eq!(pack.constants()["by_id"], 1.0);
    right(&[(pack.clone(), "with_constants")]);
    let error = pack.with_constants(&[("N", 0.0)]).unwrap_err().to_string();
    assert!(error.contains("k.wgsl:") && error.contains("override `N` is 0"), "{error}");
}

#[test]
fn constants_that_do_not_fit_are_errors_with_override_and_line() {
    let shader = |declared: &str| {
        format!("{Y}{declared}\n@compute @workgroup_size(1) fn main() {{ y[0] = u32(N); }}")
    };
    let with = |declared: &str, set: &str, words: &[&str]| {
        refused(&format!("{OUT}{set}\n"), &shader(declared), words);
    };
    with("override N: u32;", "", &["k.wgsl:2: override `N` has no value"]);
    with("@id(3) override N: u32;", "", &["k.wgsl:2", "`N` (@id(3)) has no value"]);
    with(
        "override N: u32;",
        "constants = { N = 1.5 }",
        &["pack.toml:4", "`N` is u32", "1.5", "k.wgsl:2"],
    );
    with("override N: u32;", "constants = { N = -1 }", &["pack.toml:4", "`N` is u32", "-1"]);
    with("override N: i32;", "constants = { N = 3e9 }", &["`N` is i32", "3000000000"]);
    with("override N: f32;", "constants = { N = 1e39 }", &["`N` is f32", "range"]);
    with("override N: bool;", "constants = { N = 2 }", &["`N` is bool", "true"]);
    with("override N: f32;", "constants = { N = nan }", &["`N` is f32", "NaN"]);
    with(
        "override N: u32;",
        "constants = { N = \"a\" }",
        &["pack.toml:4", "a number, true or false"],
    );
    with("override N: u32;", "tune = { N = [1, 2.5] }", &["pack.toml:4", "tune", "2.5"]);
    with("override N: u32;", "constants = { M = 1 }", &["pack.toml:4", "no override M", "\"N\""]);
    with(
        "@id(3) override N: u32;",
        "constants = { N = 1, 3 = 1 }",
        &["pack.toml:4", "N is given twice"],
    );
    with("override N: u32;", "constants = { 3 = 1 }", &["pack.toml:4", "no override 3"]);
    with("override A = 0u; override N = 8u / A;", "", &["k.wgsl:2", "zero", "`A` is 0"]);
}

#[test]
fn arrays_of_no_elements_and_of_too_many_are_named() {
    let body = "@compute @workgroup_size(1) fn main() { a[0] = 1u; y[0] = a[0]; }";
    let with =
        |declared: &str, words: &[&str]| refused(OUT, &format!("{Y}{declared}\n{body}"), words);
    let zero = "override N: u32 = 0u;\nvar<workgroup> a: array<u32, N>;";
    with(zero, &["k.wgsl:3:30: array `a` has 0 elements: override `N` is 0"]);
    let less = "override N = 2i;\nvar<workgroup> a: array<u32, N - 3>;";
    with(less, &["k.wgsl:3", "size of array `a`, N - 3, is not from 1 to", "`N` is 2"]);
    let more = "override N: u32 = 65536;\nvar<workgroup> a: array<u32, N * N>;";
    with(more, &["k.wgsl:3", "size of array `a`, N * N, is not from 1 to", "`N` is 65536"]);
    with("var<workgroup> a: array<u32, 0>;", &["k.wgsl:2", "array `a` has 0 elements"]);
    with("const M = 0;\nvar<private> a: array<u32, M>;", &["k.wgsl:3", "array `a`"]);
    with(
        "alias A = array<u32, 0u>;\nvar<private> a: A;",
        &["k.wgsl:2", "array `A` has 0 elements"],
    );
    let huge = |declared: &str, words: &[&str]| {
        let shader = format!("{Y}@compute @workgroup_size(1) fn main() {{\n{declared}\n}}");
        refused(OUT, &shader, words);
    };
    let bytes = "14400000000 bytes";
    huge(
        "let v = array<array<f32, 60000>, 60000>();\ny[0] = u32(v[0][y[0]]);",
        &["k.wgsl:3:9", bytes],
    );
    huge("var v: array<array<f32, 60000>, 60000>;\ny[0] = u32(v[0][y[0]]);", &["k.wgsl:3", bytes]);
    huge(
        "var v: array<u32, 3000000>;\nv[1] = 1u; y[0] = v[y[0]];",
        &["k.wgsl:3", "`v`", "12000000 bytes"],
    );
    let group = "override W = 0u;\n@compute @workgroup_size(W, 2) fn main() { y[0] = 1u; }";
    refused(OUT, &format!("{Y}{group}"), &["k.wgsl:3", "override `W` is 0"]);
    let group = "override W = 64u;\n@compute @workgroup_size(W, W) fn main() { y[0] = 1u; }";
    refused(OUT, &format!("{Y}{group}"), &["k.wgsl:3", "[64, 64, 1], 4096 threads: at most 1024"]);
}

#[test]
fn an_override_sizes_workgroup_arrays_only() {
    let with = |shader: &str, words: &[&str]| refused(OUT, shader, words);
    let only = "WGSL allows this only for a var<workgroup>";
    let main = "@compute @workgroup_size(1) fn main() {";
    for (declared, at) in [
        ("var<private> a: array<u32, N>;", "k.wgsl:3"),
        ("alias A = array<u32, N + 1>;\nvar<private> a: A;", "k.wgsl:4"),
        ("var<workgroup> a: array<array<u32, N>, 2>;", "k.wgsl:3"),
        ("struct S { b: array<u32, N> }\nvar<workgroup> a: S;", "k.wgsl:4"),
        ("@group(0) @binding(1) var<storage, read_write> a: array<u32, N>;", "k.wgsl:3"),
    ] {
        let shader = format!("{Y}override N = 4u;\n{declared}\n{main} y[0] = 1u; }}");
        with(&shader, &[at, "var `a`", only]);
    }
    let huge = "override N: u32 = 4294967295;\nvar<workgroup> a: array<f32, N>;";
    with(
        &format!("{Y}{huge}\n{main} a[0] = 1.0; y[0] = u32(a[0]); }}"),
        &["k.wgsl:3", "2147483647"],
    );
    for part in [
        "struct S { b: array<u32, N> }",
        "fn f(p: array<u32, N>) -> u32 { return 1u; }",
        "fn f(p: ptr<function, array<u32, N>>) -> u32 { return 1u; }",
    ] {
        let shader = format!("{Y}override N = 4u;\n{part}\n{main} y[0] = 1u; }}");
        with(&shader, &["k.wgsl:3", "an array whose size is an override"]);
    }
    let local = format!("{Y}override N = 4u;\n{main}\nvar a: array<u32, N>; y[0] = a[1]; }}");
    with(&local, &["k.wgsl:4", "var `a`", only]);
    let twice = "@id(1) override N = 4u;\n@id(1) override M = 4u;";
    with(
        &format!("{Y}{twice}\n{main} y[0] = N + M; }}"),
        &["k.wgsl:3: override `M` has @id(1), which `N` in line 2 has"],
    );
}

#[test]
fn what_constants_do_not_evaluate_runs_in_a_function() {
    let main = |constant: &str, body: &str| {
        format!("{Y}{constant}\n@compute @workgroup_size(1) fn main() {{ {body} }}")
    };
    let constant = main("const C = smoothstep(0.0, 1.0, 0.5);", "y[0] = u32(C * 4.0);");
    refused(OUT, &constant, &["k.wgsl:2", "`smoothstep` of constants is not evaluated"]);
    let local = main("", "var h = 0.5; let c = smoothstep(0.0, 1.0, h); y[0] = u32(c * 4.0);");
    assert!(load(OUT, &local).is_ok());
}

#[test]
fn what_a_pack_may_not_use_is_named_with_its_line() {
    let with = |shader: &str, words: &[&str]| refused(OUT, shader, words);
    let main = |body: &str| format!("{Y}@compute @workgroup_size(1) fn main() {{\n{body}\n}}");
    with(
        &format!("// f16\nenable f16;\n{}", main("let h: f16 = 1.5h; y[0] = u32(h);")),
        &["k.wgsl:2:8", "`f16`", "unpack2x16float"],
    );
    with(&main("let h = f16(1.0); y[0] = u32(h);"), &["k.wgsl:3:9", "`f16`", "use f32"]);
    with(&format!("enable subgroups;\n{}", main("y[0] = 1u;")), &["k.wgsl:1:8", "`subgroups`"]);
    with(&main("y[0] = subgroupAdd(1u);"), &["k.wgsl:3", "subgroups"]);
    with(&main("let v = y[0]; y[0] = u32(u64(v));"), &["k.wgsl:3", "u64"]);
    with(&main("y[0] = u32(1lu);"), &["k.wgsl:3:8", "converted to `u32`"]);
    let nested = format!("y[0] = {}1u{};", "(".repeat(5000), ")".repeat(5000));
    with(&main(&nested), &["k.wgsl:3", "nest"]);
    with(&main("let i = 5; y[0] = vec2(1u, 2u)[i];"), &["k.wgsl:3"]);
    let texture = "@group(0) @binding(1) var t: texture_2d<f32>;\n";
    let read = main("y[0] = u32(textureLoad(t, vec2(0), 0).x);");
    with(&format!("{texture}{read}"), &["k.wgsl:1", "var t", "textures"]);
    // Not used, not refused.
    let fine = format!("{texture}{}", main("y[0] = 1u;"));
    assert!(load(OUT, &fine).is_ok());
    // Not used, but no device without it takes the file.
    let elsewhere = "`main` does not use it";
    for (other, words) in [
        ("var<immediate> a: i32;\n", ["k.wgsl:1:1", "var<immediate>", elsewhere]),
        ("fn f(x: u32) -> u32 {\nreturn u32(u64(x)); }\n", ["k.wgsl:2", "u64", elsewhere]),
        ("fn f(x: u32) -> u32 {\nreturn subgroupAdd(x); }\n", ["k.wgsl:2", "subgroup", elsewhere]),
    ] {
        with(&format!("{other}{}", main("y[0] = 1u;")), &words);
    }
    with(
        "requires nothing_there;\n@compute @workgroup_size(1) fn main() {}",
        &["k.wgsl:1:10", "`nothing_there`"],
    );
    let part = "struct S { i: u32 }\nfn f(p: ptr<function, u32>) -> u32 { return *p; }\n";
    with(&format!("{part}{}", main("var s: S; y[0] = f(&s.i);")), &["k.wgsl:5", "whole variables"]);
    let shared = "var<workgroup> w: u32;\nfn f(p: ptr<workgroup, u32>) -> u32 { return *p; }\n";
    with(&format!("{shared}{}", main("y[0] = f(&w);")), &["k.wgsl:2", "`p` of `f`", "workgroup"]);
    // Deeper than compilers go.
    let many = |text: &str| text.repeat(20_000);
    with(&main(&format!("y[0] = 1u{};", many(" + y[1]"))), &["k.wgsl:3", "1024 operators"]);
    with(&main(&format!("y[0] = {}y[1];", many("~"))), &["k.wgsl:3", "operators in a row"]);
    let chain = format!("if y[0] == 1u {{}} {}", many("else if y[0] == 2u {} "));
    with(&main(&chain), &["k.wgsl:3", "else if"]);
}

#[test]
fn uniform_blocks_of_any_shape_are_given_by_name() {
    let shader = "\
struct Light { at: vec3<f32>, power: f32 }
struct Params { m: mat3x2<f32>, lights: array<Light, 2>, n: u32, k: array<vec4<u32>, 2> }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> p: Params;
@compute @workgroup_size(1) fn main() {
    y[0] = p.m[2].y; y[1] = p.lights[1].at.z; y[2] = p.lights[0].power; y[3] = f32(p.k[1].w + p.n);
}";
    let names = [
        "m[0].x",
        "m[0].y",
        "m[1].x",
        "m[1].y",
        "m[2].x",
        "m[2].y",
        "lights[0].at.x",
        "lights[0].at.y",
        "lights[0].at.z",
        "lights[0].power",
        "lights[1].at.x",
        "lights[1].at.y",
        "lights[1].at.z",
        "lights[1].power",
        "k[0].x",
        "k[0].y",
        "k[0].z",
        "k[0].w",
        "k[1].x",
        "k[1].y",
        "k[1].z",
        "k[1].w",
    ];
    // Each is its place in the list.
    let defaults: Vec<String> =
        names.iter().enumerate().map(|(i, name)| format!("{name:?} = {i}")).collect();
    let manifest = format!(
        "outputs = [\"y: [4]\"]\ngroups = 1\ndefaults = {{ {} }}\n[[case]]\nvalues = {{ n = 100 }}\noutputs = {{ y = [5, 12, 9, 121] }}\n",
        defaults.join(", ")
    );
    right(&[(load(&manifest, shader).unwrap(), "uniform")]);
}

#[test]
fn what_lies_between_the_numbers_of_a_struct_stays() {
    let shader = "\
struct Inner { a: f32, v: vec3<f32>, m: mat2x3<f32> }
struct S { inner: array<Inner, 2>, z: vec3<f32> }
@group(0) @binding(0) var<storage, read> x: S;
@group(0) @binding(1) var<storage, read_write> y: S;
@group(0) @binding(2) var<storage, read_write> rows: array<vec3<f32>>;
@compute @workgroup_size(1) fn main() {
    let whole = x;
    y = whole;
    y.inner[1] = x.inner[0];
    rows[1] = x.z;
    y.inner[0].m = mat2x3<f32>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0);
}";
    // x is 100 and up, y and the rows are 0 and up. An Inner is a, 3 of gap, v, 1 of gap, and two
    // columns with 1 of gap each.
    let x: Vec<i32> = (100..136).collect();
    let mut y: Vec<i32> = (0..36).collect();
    let numbers = [0, 4, 5, 6, 8, 9, 10, 12, 13, 14];
    for at in numbers {
        (y[at], y[16 + at]) = (x[at], x[at]);
    }
    for (i, at) in [8, 9, 10, 12, 13, 14].into_iter().enumerate() {
        y[at] = i as i32 + 1;
    }
    y[32..35].copy_from_slice(&x[32..35]);
    let rows = [0, 1, 2, 3, 132, 133, 134, 7];
    let manifest = format!(
        "inputs = [\"x: [36]\", \"y: [36]\", \"rows: [2, 4]\"]\noutputs = [\"y: [36]\", \"rows: [2, 4]\"]\ngroups = 1\n\
        [[case]]\ninputs = {{ x = {x:?}, y = \"iota\", rows = \"iota\" }}\noutputs = {{ y = {y:?}, rows = {rows:?} }}\n"
    );
    right(&[(load(&manifest, shader).unwrap(), "gaps")]);
}

/// Functions of f16 pairs in words: the words and the results.
#[test]
fn f16_pairs_in_words_need_no_extension() {
    let words: [u32; 6] =
        [0x3c00_c000, 0x0000_8000, 0x7bff_0400, 0x3555_2e66, 0xfbff_7bff, 0x0400_8400];
    let parts = |word: u32| {
        [word as u16, (word >> 16) as u16]
            .map(|half| f64::from(half::f16::from_bits(half).to_f32()))
    };
    let io = "inputs = [\"x: [n]\"]\noutputs = [\"y: [n]\"]\nthreads = \"n\"\n[[case]]\nvalues = { n = 6 }\n";
    let given =
        |values: &[f64]| values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
    let head = "@group(0) @binding(0) var<storage, read> x: array<u32>;\n@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n";
    let main = |body: &str| {
        format!(
            "{head}@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ let w = x[id.x]; y[id.x] = {body}; }}"
        )
    };
    let x: Vec<f64> = words.iter().map(|word| f64::from(*word)).collect();
    let manifest = |y: &[f64]| {
        format!("{io}inputs = {{ x = [{}] }}\noutputs = {{ y = [{}] }}\n", given(&x), given(y))
    };
    // A round trip gives the same word; finite f16 values do not change when rounded again.
    let back = load(&manifest(&x), &main("pack2x16float(unpack2x16float(w))")).unwrap();
    let kept = main("pack2x16float(quantizeToF16(unpack2x16float(w)))");
    let kept_pack = load(&manifest(&x), &kept).unwrap();
    let low: Vec<f64> = words.iter().map(|w| f64::from((parts(*w)[0] as f32).to_bits())).collect();
    let low_pack = load(&manifest(&low), &main("bitcast<u32>(unpack2x16float(w).x)")).unwrap();
    let one = vec![f64::from(0x3c00_u32); 6];
    let constant = load(&manifest(&one), &main("pack2x16float(vec2(1.0, 0.0)) + w * 0u")).unwrap();
    let tenth = vec![f64::from(0.099_975_586_f32.to_bits()); 6];
    let tenth =
        load(&manifest(&tenth), &main("bitcast<u32>(quantizeToF16(0.1)) + w * 0u")).unwrap();
    right(&[
        (back, "back"),
        (kept_pack, "kept"),
        (low_pack, "low"),
        (constant, "constant"),
        (tenth, "tenth"),
    ]);
}
