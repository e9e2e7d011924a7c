//! Packs with one error each: the error names the file and line, or the number.

use warploom::kernel::pack::Pack;
use warploom_testkit::pack::{self, Outcome};

/// A pack that doubles its numbers.
const MANIFEST: &str = "\
name = \"double\"
inputs = [\"x: f32[n]\"]
outputs = [\"y: f32[n]\"]
params = { count = \"n\" }

[[case]]
values = { n = 70, factor = 2 }
";
const SHADER: &str = "\
struct Params { count: u32, factor: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
override WG: u32 = 64;
var<workgroup> shared_x: array<f32, 64>;
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (id.x >= params.count) { return; }
    y[id.x] = x[id.x] * params.factor;
}
";

/// The error of a pack, from its reader or from its first case.
fn load(manifest: &str, shader: &str) -> Result<(), String> {
    let pack =
        Pack::from_sources(manifest, &[("double.wgsl", shader)]).map_err(|e| e.to_string())?;
    for case in pack::cases(&pack).map_err(|e| e.to_string())? {
        if let Outcome::Wrong { what } = pack::in_interpreter(&pack, &case).0.outcome {
            return Err(what);
        }
    }
    Ok(())
}

#[track_caller]
fn broken(file: &str, from: &str, to: &str, words: &[&str]) {
    let (mut manifest, mut shader) = (MANIFEST.to_string(), SHADER.to_string());
    let text = if file == "pack.toml" { &mut manifest } else { &mut shader };
    assert!(text.contains(from), "{from:?} is not in {file}");
    *text = text.replacen(from, to, 1);
    let error = load(&manifest, &shader).expect_err("a broken pack passed");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// Another line before the constants, and something that uses it.
#[track_caller]
fn broken_both((line, from, to): (&str, &str, &str), words: &[&str]) {
    let shader = SHADER.replacen("override WG", line, 1).replacen(from, to, 1);
    let error = load(MANIFEST, &shader).expect_err("a broken pack passed");
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

#[test]
fn what_is_not_broken_passes() {
    load(MANIFEST, SHADER).unwrap();
}

#[test]
fn shaders_that_are_no_wgsl() {
    let wgsl = |from: &str, to: &str, words: &[&str]| broken("double.wgsl", from, to, words);
    // A semicolon, a name, a type, a constant index.
    wgsl("params.factor;", "params.factor", &["double.wgsl:11:1", "expected"]);
    wgsl("* params.factor", "* factor", &["double.wgsl:10:25", "factor"]);
    wgsl("= x[id.x] *", "= x[id.x] * id *", &["double.wgsl:10"]);
    wgsl("y[id.x] = ", "shared_x[64] = 1.0; y[id.x] = ", &["double.wgsl:10", "64"]);
    wgsl("struct Params {", "enable f16; struct Params { h: f16,", &["double.wgsl:1:8", "f16"]);
    wgsl("@compute @workgroup_size(WG)\n", "", &["double.wgsl:7:1", "not entry points"]);
}

#[test]
fn shaders_against_their_manifest() {
    let wgsl = |from: &str, to: &str, words: &[&str]| broken("double.wgsl", from, to, words);
    wgsl("storage, read> x", "storage, read_write> x", &["double.wgsl:2", "var x is read_write"]);
    wgsl("storage, read_write> y", "storage, read> y", &["double.wgsl:10"]);
    wgsl("@binding(1) var", "@binding(0) var", &["double.wgsl", "binding"]);
    wgsl("> x: array<f32>", "> z: array<f32>", &["double.wgsl:10", "x"]);
    let two = "@group(0) @binding(7) var<uniform> more: u32; override WG";
    broken_both((two, "count)", "count + more)"), &["double.wgsl:5", "second uniform block"]);
}

#[test]
fn manifests() {
    let toml = |from: &str, to: &str, words: &[&str]| broken("pack.toml", from, to, words);
    toml("[\"x: f32[n]\"]", "[\"x: f32[n]\"", &["pack.toml:"]);
    toml("inputs =", "input =", &["pack.toml:2", "input", "inputs"]);
    toml(
        "x: f32[n]",
        "in: f32[n]",
        &["pack.toml:2", "double.wgsl has no storage buffer in", "\"x\""],
    );
    toml("x: f32[n]", "x: u32[n]", &["pack.toml:2", "x is u32 here and f32", "double.wgsl:2"]);
    toml("x: f32[n]", "x: f32[n", &["pack.toml:2", "brackets"]);
    toml("x: f32[n]", "x: f64[n]", &["pack.toml:2", "f32, i32 and u32"]);
    toml("y: f32[n]", "y: f32[n +]", &["pack.toml:3", "at character 4"]);
    toml("outputs = [\"y: f32[n]\"]", "outputs = []", &["pack.toml", "outputs"]);
    toml("count = \"n\"", "cuont = \"n\"", &["pack.toml:4", "no field cuont"]);
    toml("params =", "constants = { GW = 64 }\nparams =", &["pack.toml:4", "no override GW", "WG"]);
    toml("params =", "constants = { WG = 0 }\nparams =", &["double.wgsl"]);
    toml("params =", "shader = \"../double.wgsl\"\nparams =", &["pack.toml:4", "../double.wgsl"]);
    toml("params =", "threads = \"n\"\ngroups = 1\nparams =", &["pack.toml:4", "not both"]);
    toml("factor = 2", "speed = 2", &["pack.toml:6", "no value speed"]);
    toml(", factor = 2", "", &["factor", "double.wgsl:4", "defaults"]);
    toml("n = 70", "n = 7.5", &["n = 7.5"]);
    toml("y: f32[n]", "y: f32[n / m]", &["m"]);
}

#[test]
fn kernels_that_run_into_something() {
    let wgsl = |from: &str, to: &str, words: &[&str]| broken("double.wgsl", from, to, words);
    // No check at the end of the last workgroup; the neighbour of the last one.
    wgsl("if (id.x >= params.count) { return; }", "", &["double.wgsl:10", "out of bounds"]);
    wgsl("= x[id.x] *", "= x[id.x + 1] *", &["double.wgsl:10", "out of bounds of x", "70"]);
    // All invocations write to one place; a neighbour is read without a barrier.
    wgsl("y[id.x] =", "y[0] =", &["double.wgsl:10", "race of y"]);
    let neighbour = "shared_x[i] = x[id.x]; y[id.x] = shared_x[(i + 1) % 6] + ";
    wgsl("y[id.x] = ", neighbour, &["double.wgsl:10", "race of shared_x"]);
    // A barrier after a return, which naga detects; one that depends on data.
    wgsl("y[id.x] = ", "workgroupBarrier(); y[id.x] = ", &["double.wgsl:10", "barrier"]);
    wgsl(
        "y[id.x] = ",
        "loop { if (x[0] > 9.0) { break; } } y[id.x] = ",
        &["double.wgsl:10", "step limit"],
    );
}

#[test]
fn numbers_that_are_not_those_expected() {
    let toml = |to: &str, words: &[&str]| broken("pack.toml", "n = 70, factor = 2 }", to, words);
    let four = "n = 4, factor = 2 }\ninputs = { x = [1, 2, 3, 4] }\n";
    let with = |rest: &str| format!("{four}{rest}");
    toml(&with("outputs = { y = [2, 4, 7, 8] }"), &["y: element 2", "expected 7.0, got 6.0"]);
    toml(&with("outputs = { y = [2, 4, 6] }"), &["y", "3 numbers are given for 4"]);
    toml(&with("outputs = { z = [2, 4, 6] }"), &["pack.toml:6", "z is not one of the outputs"]);
    toml("n = 4, factor = 2 }\ninputs = { x = \"randm\" }", &["pack.toml:6", "randm", "iota"]);
    toml("n = 4, factor = 2 }\ninputs = { x = \"a.bin\" }", &["from no folder"]);
    // A reference that adds instead.
    let reference = SHADER.replace("* params.factor", "+ params.factor");
    let reference = reference.replace("if (id.x", "if (i > 0) { return; } if (id.x");
    let manifest = MANIFEST.replace("params =", "reference = \"plain.wgsl\"\nparams =");
    let files = [("double.wgsl", SHADER), ("plain.wgsl", reference.as_str())];
    let pack = Pack::from_sources(&manifest, &files).unwrap();
    let (row, job) = pack::in_interpreter(&pack, &pack.cases()[0]);
    assert!(job.is_none());
    let Outcome::Wrong { what } = row.outcome else { panic!("{row:?}") };
    assert!(what.contains("double.wgsl: y: element 0"), "{what}");
}

#[test]
fn a_promise_to_write_everything_is_checked() {
    let manifest = MANIFEST.replace("params =", "writes_all = true\nparams =");
    load(&manifest, SHADER).unwrap();
    let odd = SHADER.replace("if (id.x", "if (id.x % 2 == 1) { return; } if (id.x");
    let error = load(&manifest, &odd).unwrap_err();
    assert!(error.contains("y is not written at element 1"), "{error}");
    load(MANIFEST, &odd).unwrap();
}

/// A manifest is untrusted: its requests are limited, and nothing in it may cause a panic.
#[test]
fn hostile_manifests_are_refused() {
    let huge = "9".repeat(18);
    let rows = [
        (MANIFEST.replace("n = 70", &format!("n = {huge}")), "not a size"),
        (MANIFEST.replace("n = 70", "n = -1"), "n = -1"),
        (MANIFEST.replace("n = 70", "n = nan"), "n = NaN"),
        (MANIFEST.replace("n = 70", "n = 100000000"), "at most"),
        (MANIFEST.replace("y: f32[n]", &format!("y: f32[{}n]", "n*".repeat(45))), "at most"),
        (
            MANIFEST
                .replace("y: f32[n]", &format!("y: f32[{}n{}]", "(".repeat(45), ")".repeat(45))),
            "deep",
        ),
        (MANIFEST.replace("y: f32[n]", "y: f32[n - 71]"), "-1"),
        (MANIFEST.replace("y: f32[n]", "y: f32[n / 0]"), "zero"),
        (
            MANIFEST
                .replace("y: f32[n]", "y: f32[n*n*n*n*n*n]")
                .replace("params =", "groups = 1\nparams ="),
            "at most 67108864",
        ),
        (MANIFEST.replace("params =", "groups = [1000000, 1000000]\nparams ="), "workgroups"),
        (MANIFEST.replace("double\"", "a/../b\""), "pack.toml:1"),
        (MANIFEST.replace("params =", "tolerance = { atol = nan }\nparams ="), "tolerance"),
        (format!("{MANIFEST}{}", "[[case]]\n".repeat(100)), "at most 64"),
        (format!("{MANIFEST}x = {}{}", "[".repeat(5000), "]".repeat(5000)), "pack.toml"),
        (String::new(), "pack.toml"),
    ];
    for (manifest, word) in rows {
        let error = load(&manifest, SHADER).expect_err(&manifest);
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    for cut in (0..MANIFEST.len()).filter(|at| MANIFEST.is_char_boundary(*at)) {
        let _ = load(&MANIFEST[..cut], SHADER);
    }
    for cut in (0..SHADER.len() - 2).step_by(3) {
        assert!(load(MANIFEST, &SHADER[..cut]).is_err(), "{}", &SHADER[..cut]);
    }
}
