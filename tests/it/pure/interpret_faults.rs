//! The interpreter's checks: one planted fault of each kind in a shipped shader, small kernels with
//! and without faults, and refused programs.

use std::sync::atomic::AtomicU32;

use warploom::kernel::AssetSpec;
use warploom::kernel::source::asset_wgsl;
use warploom_wgsl::interpret::{Argument, Checks, Failure, Fault, FaultKind, Options, Program};

use crate::interpret::{cells, values};

const ROWS: u32 = 2;
const COLS: u32 = 300;

/// Softmax with a text replaced; returns the faults of a checked run.
fn planted(spec: &AssetSpec, from: &str, to: &str) -> (String, Box<Fault>) {
    let right = asset_wgsl(spec).unwrap();
    assert_eq!(run_softmax(&right).map_err(|fault| fault.to_string()), Ok(()));
    let wrong = right.replacen(from, to, 1);
    assert_ne!(wrong, right, "{from} is not in the shader");
    let fault = run_softmax(&wrong).expect_err("a fault");
    (wrong, fault)
}

fn run_softmax(wgsl: &str) -> Result<(), Box<Fault>> {
    let program = Program::from_wgsl(wgsl, "softmax.wgsl", None, &[]).unwrap();
    let n = ROWS * COLS;
    let params = cells(&[ROWS, COLS, 0, COLS, 0, 0, 0, 0]);
    let x: Vec<u32> = (0..n).map(|i| ((i % 17) as f32).to_bits()).collect();
    let (x, y) = (cells(&x), cells(&vec![0; n as usize]));
    let mut arguments =
        [Argument::new(0, 0, &params), Argument::new(0, 1, &x), Argument::new(0, 2, &y)];
    arguments[2].uninitialised = true;
    let options = Options { checks: Checks::ALL, max_steps: 100_000, ..Options::default() };
    match program.run([ROWS, 1, 1], &arguments, &options) {
        Ok(_) => Ok(()),
        Err(Failure::Fault(fault)) => Err(fault),
        Err(Failure::Error(error)) => panic!("{error}"),
    }
}

/// The fault names the line of the text's first occurrence.
fn stands(wgsl: &str, fault: &Fault, kind: FaultKind, line: &str) {
    assert_eq!(fault.kind, kind, "{fault}");
    let number = 1 + wgsl.lines().position(|l| l.trim() == line).expect("the line");
    assert_eq!(
        (fault.location.text.as_str(), fault.location.line),
        (line, number as u32),
        "{fault}"
    );
    assert!(fault.to_string().starts_with(&format!("softmax.wgsl:{number}:")), "{fault}");
}

#[test]
fn an_index_outside_is_found() {
    let from = "x[x_row + min(c3, params.cols - 1u)]";
    let (wgsl, fault) = planted(&AssetSpec::new("softmax"), from, "x[x_row + c3]");
    stands(&wgsl, &fault, FaultKind::OutOfBounds, "let x3 = x[x_row + c3];");
    assert_eq!(fault.variable.as_deref(), Some("x"));
    // Column 3 * 128 of row 1, by the first thread.
    assert_eq!(fault.detail, "index 684 of 600 elements");
    assert_eq!((fault.invocation.workgroup, fault.invocation.local), ([1, 0, 0], [0, 0, 0]));
}

#[test]
fn a_race_is_found() {
    let spec = AssetSpec::new("softmax");
    let from = "let largest = block_scratch[0];\n    workgroupBarrier();";
    let (wgsl, fault) = planted(&spec, from, "let largest = block_scratch[0];");
    // The next use of the memory writes what others still read. The first invocation gets there
    // before the second reads.
    stands(&wgsl, &fault, FaultKind::Race, "let largest = block_scratch[0];");
    assert_eq!(fault.variable.as_deref(), Some("block_scratch"));
    let (other, place) = fault.other.as_ref().unwrap();
    assert_ne!(other.local, fault.invocation.local);
    assert_eq!(place.text, "block_scratch[place.lid] = value;");
}

#[test]
fn a_read_of_unwritten_memory_is_found() {
    let head = "fn block_max(value: f32, place: Place) -> f32 {\n    ";
    let from = &format!("{head}block_scratch[place.lid] = value;");
    let to = &format!("{head}if (place.lid != 5u) {{ block_scratch[place.lid] = value; }}");
    let (_, fault) = planted(&AssetSpec::new("softmax"), from, to);
    assert_eq!(fault.kind, FaultKind::Uninitialised, "{fault}");
    assert!(fault.location.text.starts_with("block_scratch[place.lid] = max("), "{fault}");
    assert_eq!(
        (fault.invocation.local, fault.variable.as_deref()),
        ([5, 0, 0], Some("block_scratch"))
    );
    let from = "output(x0, operands0, a, b);";
    let to = "output(x0, operands0, a, b) + y[y_row + c0];";
    let (_, fault) = planted(&AssetSpec::new("softmax"), from, to);
    assert_eq!(fault.kind, FaultKind::Uninitialised, "{fault}");
    assert_eq!(fault.variable.as_deref(), Some("y"));
}

#[test]
fn a_barrier_that_not_all_reach_is_found() {
    let from = "    workgroupBarrier();";
    let to = "    if (place.lid < 64u) { workgroupBarrier(); }";
    let (wgsl, fault) = planted(&AssetSpec::new("softmax"), from, to);
    let line = "if (place.lid < 64u) { workgroupBarrier(); }";
    stands(&wgsl, &fault, FaultKind::NonUniformBarrier, line);
    let spec = AssetSpec::new("softmax").define("subgroup");
    let from = "let mine = subgroupAdd(value);";
    let to = "var mine = 0.0; if (place.lane != 3u) { mine = subgroupAdd(value); }";
    let (wgsl, fault) = planted(&spec, from, to);
    stands(&wgsl, &fault, FaultKind::NonUniformBarrier, to);
    assert_eq!(fault.detail, "31 of 32 invocations of a subgroup came to its operation");
}

#[test]
fn an_endless_loop_is_found() {
    let (_, fault) = planted(&AssetSpec::new("softmax"), "half /= 2u", "half /= 1u");
    assert_eq!(fault.kind, FaultKind::StepLimit, "{fault}");
    assert_eq!(fault.detail, "more than 100000 steps");
    assert!(fault.location.text.starts_with("for (var half = WG / 2u;"), "{fault}");
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> w: array<u32, 4>;
var<workgroup> a: atomic<u32>;
";

/// Runs a kernel of 4 invocations and `groups` workgroups on 16 words; returns faults and results.
fn small(body: &str, groups: u32, checks: Checks) -> (Option<Fault>, Vec<u32>) {
    let arguments = "@builtin(local_invocation_index) l: u32, @builtin(workgroup_id) g: vec3<u32>";
    let wgsl = format!("{HEAD}@compute @workgroup_size(4) fn main({arguments}) {{ {body} }}");
    let program = Program::from_wgsl(&wgsl, "small", None, &[]).unwrap();
    let y: Vec<AtomicU32> = cells(&[9; 16]);
    let options = Options { checks, max_steps: 10_000, ..Options::default() };
    match program.run([groups, 1, 1], &[Argument::new(0, 0, &y)], &options) {
        Ok(_) => (None, values(&y)),
        Err(Failure::Fault(fault)) => (Some(*fault), values(&y)),
        Err(Failure::Error(error)) => panic!("{error}"),
    }
}

#[test]
fn faults_are_distinguished_from_correct_code() {
    use FaultKind::{NonUniformBarrier, OutOfBounds, Race, Uninitialised};
    let rows: &[(&str, u32, Option<FaultKind>)] = &[
        // Races in storage.
        ("y[l] = l;", 1, None),
        ("y[l] = l;", 2, Some(Race)),
        ("y[g.x * 4u + l] = l;", 4, None),
        ("y[0] = 1u;", 1, Some(Race)),
        ("y[l] = y[(l + 1u) % 4u];", 1, Some(Race)),
        ("y[l] = y[l + 4u];", 1, None),
        ("y[l] = l; storageBarrier(); y[l + 4u] = y[3u - l];", 1, None),
        ("y[l] = l; workgroupBarrier(); y[l + 4u] = y[3u - l];", 1, Some(Race)),
        // A barrier orders one workgroup, not two.
        ("let v = y[0]; storageBarrier(); if (l == 0u && g.x == 1u) { y[0] = v; }", 1, None),
        ("let v = y[0]; storageBarrier(); if (l == 0u && g.x == 1u) { y[0] = v; }", 2, Some(Race)),
        // Races in workgroup memory.
        ("w[l] = l; workgroupBarrier(); y[g.x * 4u + l] = w[3u - l];", 4, None),
        ("w[l] = l; storageBarrier(); y[l] = w[3u - l];", 1, Some(Race)),
        ("w[l] = l; workgroupBarrier(); let v = w[3u - l]; w[l] = v;", 1, Some(Race)),
        ("w[0] = 5u;", 1, Some(Race)),
        (
            "if (l == 2u) { w[0] = 5u; } let v = workgroupUniformLoad(&w); y[l] = v[0];",
            1,
            Some(Uninitialised),
        ),
        // Atomic operations race with others only.
        ("atomicStore(&a, 1u); atomicAdd(&a, l); y[l] = atomicLoad(&a);", 1, None),
        ("y[l] = atomicLoad(&a);", 1, Some(Uninitialised)),
        // Indices.
        ("y[g.x * 4u + l + 13u] = 1u;", 1, Some(OutOfBounds)),
        ("var f = array<u32, 3>(1u, 2u, 3u); y[l] = f[l];", 1, Some(OutOfBounds)),
        ("var v = vec3<u32>(1u, 2u, 3u); v[l] = 1u; y[l] = v.x;", 1, Some(OutOfBounds)),
        ("y[l] = vec4<u32>(1u, 2u, 3u, 4u)[l];", 1, None),
        ("y[l] = w[l - 1u];", 1, Some(OutOfBounds)),
        // Barriers.
        ("if (l == 0u) { return; } workgroupBarrier();", 1, Some(NonUniformBarrier)),
        ("if (g.x == 0u) { return; } workgroupBarrier();", 2, None),
        (
            "if (l < 2u) { workgroupBarrier(); } else { workgroupBarrier(); }",
            1,
            Some(NonUniformBarrier),
        ),
    ];
    for (body, groups, want) in rows {
        let (found, _) = small(body, *groups, Checks::ALL);
        assert_eq!(found.as_ref().map(|fault| fault.kind), *want, "{body}: {found:?}");
    }
}

#[test]
fn without_checks_indices_stay_inside_and_ended_invocations_are_not_waited_for() {
    let (found, y) =
        small("if (l == 0u) { y[l + 99u] = 1u; y[0] = w[l - 1u]; }", 1, Checks::default());
    assert_eq!((found, y[0], y[15]), (None, 0, 1));
    let (found, y) =
        small("if (l == 0u) { return; } workgroupBarrier(); y[l] = l;", 1, Checks::default());
    assert_eq!((found, &y[..4]), (None, &[9, 1, 2, 3][..]));
    let endless = small("loop { if (y[l] == 0u) { break; } }", 1, Checks::default());
    assert_eq!(endless.0.map(|fault| fault.kind), Some(FaultKind::StepLimit));
}

#[test]
fn equal_writes_are_distinguished_from_others() {
    let same = small("y[0] = 7u;", 1, Checks::ALL).0.unwrap();
    assert!(same.detail.contains("with the same values"), "{same}");
    let others = small("y[0] = l;", 1, Checks::ALL).0.unwrap();
    assert!(others.detail.contains("with other values"), "{others}");
}

/// Runs a kernel on 4 words under all checks.
fn whole(wgsl: &str) -> Vec<u32> {
    let program = Program::from_wgsl(wgsl, "k", None, &[]).unwrap();
    let y = cells(&[0; 4]);
    let options = Options { checks: Checks::ALL, ..Options::default() };
    program.run([1, 1, 1], &[Argument::new(0, 0, &y)], &options).unwrap();
    values(&y)
}

#[test]
fn neighbours_in_one_word_do_not_race() {
    let halves = "enable f16;
@group(0) @binding(0) var<storage, read_write> y: array<f16>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) { y[l] = f16(l); }";
    assert_eq!(whole(halves), [0x3c00_0000, 0x4200_4000, 0x4500_4400, 0x4700_4600]);
    let bools = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> odd: array<bool, 4>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) l: u32) {
    odd[l] = (l & 1u) == 1u;
    workgroupBarrier();
    y[l] = select(10u, 20u, odd[3u - l]);
}";
    assert_eq!(whole(bools), [20, 10, 20, 10]);
}

#[test]
fn pointers_are_arguments() {
    let wgsl = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<private> p: array<u32, 2>;
fn bump(at: ptr<private, array<u32, 2>>, i: u32) { (*at)[i] += 5u; }
fn twice(at: ptr<function, vec2<u32>>) { (*at).y *= 2u; }
fn both(at: ptr<function, vec2<u32>>) { twice(at); bump(&p, 1u); twice(at); }
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) l: u32) {
    var v = array<vec2<u32>, 3>();
    v[1] = vec2(7u, l);
    var one = v[1];
    both(&one);
    v[2] = one;
    y[l] = v[2].y * 100u + v[1].y * 10u + p[1] + v[0].x;
}";
    assert_eq!(whole(wgsl), [5, 415, 825, 1235]);
}

#[test]
fn what_is_not_run_is_refused_by_name() {
    let refuse = |wgsl: &str| Program::from_wgsl(wgsl, "k.wgsl", None, &[]).unwrap_err();
    let error = refuse("@compute @workgroup_size(1)\nfn main() { let a = b; }");
    assert!(error.is_compile() && error.to_string().contains("k.wgsl:2:21"), "{error}");
    let error = refuse("fn f() {}");
    assert!(error.is_invalid() && error.to_string().contains("k.wgsl"), "{error}");
    let texture = "@group(0) @binding(0) var t: texture_2d<f32>;
@group(0) @binding(1) var<storage, read_write> y: f32;
@compute @workgroup_size(1) fn main() { y = textureLoad(t, vec2(0), 0).x; }";
    let error = refuse(texture);
    assert!(error.is_unsupported() && error.to_string().contains("variable t"), "{error}");
    let large = "var<private> v: array<u32, 9000000>;
@compute @workgroup_size(1) fn main() { v[1] = 1u; }";
    let error = refuse(large);
    assert!(error.is_unsupported() && error.to_string().contains("9000000"), "{error}");
    let error = refuse(&large.replace("private", "workgroup"));
    assert!(error.is_unsupported() && error.to_string().contains("36000000 bytes"), "{error}");
    let many = "@compute @workgroup_size(64, 64) fn main() {}";
    let error = refuse(many);
    assert!(error.is_unsupported() && error.to_string().contains("4096 invocations"), "{error}");
}

#[test]
fn buffers_are_checked_and_constants_set() {
    let wgsl = "override N: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32, 4>;
@compute @workgroup_size(N) fn main(@builtin(local_invocation_index) l: u32) { y[l] = N; }";
    let program = Program::from_wgsl(wgsl, "k", None, &[("N".to_string(), 3.0)]).unwrap();
    assert_eq!((program.workgroup_size(), program.entry()), ([3, 1, 1], "main"));
    assert_eq!(program.bindings().len(), 1);
    let (y, few) = (cells(&[0; 4]), cells(&[0; 3]));
    let options = Options::default();
    let report = program.run([1, 1, 1], &[Argument::new(0, 0, &y)], &options).unwrap();
    assert_eq!((values(&y), report.workgroups), (vec![3, 3, 3, 0], 1));
    let error = program.run([1, 1, 1], &[Argument::new(0, 0, &few)], &options).unwrap_err();
    assert!(error.to_string().contains("needs 16 bytes"), "{error}");
    let error = program.run([1, 1, 1], &[], &options).unwrap_err();
    assert!(error.to_string().contains("nothing is bound to y"), "{error}");
    assert!(Program::from_wgsl(wgsl, "k", None, &[]).unwrap_err().is_invalid());
    let mut bytes = [0u8; 6];
    assert!(warploom_wgsl::interpret::words(&mut bytes[1..]).unwrap_err().is_invalid());
}

#[test]
fn threads_share_the_workgroups() {
    let wgsl = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@group(0) @binding(1) var<storage, read_write> sum: atomic<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    y[id.x] = id.x * 3u;
    atomicAdd(&sum, 1u);
}";
    let program = Program::from_wgsl(wgsl, "k", None, &[]).unwrap();
    let (y, sum) = (cells(&[0; 6400]), cells(&[0]));
    let arguments = [Argument::new(0, 0, &y), Argument::new(0, 1, &sum)];
    let options = Options { threads: 3, ..Options::default() };
    program.run([100, 1, 1], &arguments, &options).unwrap();
    assert_eq!(values(&y), (0..6400).map(|i| i * 3).collect::<Vec<u32>>());
    assert_eq!(values(&sum), [6400]);
}
