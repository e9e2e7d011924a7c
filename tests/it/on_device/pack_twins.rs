//! Twins of a pack's shader: compiled if their language is available, checked for the same results,
//! never skipped silently.

use warploom::kernel::pack::Pack;
use warploom::runtime::Runtime;
use warploom_testkit::pack::{self, Outcome, Row};

use crate::{Need, devices, skip};

const MANIFEST: &str = "\
name = \"double\"
inputs = [\"x: f32[n]\"]
outputs = [\"y: f32[n]\"]
constants = { TIMES = 3 }
twins = { opencl = \"double.cl\" }

[[case]]
values = { n = 70, factor = 2 }
";
const SHADER: &str = "\
struct Params { n: u32, factor: f32 }
override TIMES: u32 = 1;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.n) { return; }
    y[id.x] = x[id.x] * params.factor * f32(TIMES);
}
";
/// The parameters, then buffers by their binding: x at 1, y at 4.
const TWIN: &str = "\
struct Params { uint n; float factor; };
__kernel __attribute__((reqd_work_group_size(WORKGROUP_X, WORKGROUP_Y, WORKGROUP_Z)))
void kernel_main(__global const struct Params* p, ulong p_at, __global const float* x, ulong x_at, __global float* y, ulong y_at) {
    p = (__global const struct Params*)((__global const char*)p + p_at);
    x += x_at / 4;
    y += y_at / 4;
    const uint i = get_global_id(0);
    if (i >= p->n) return;
    y[i] = x[i] * p->factor * TIMES;
}
";

fn read(manifest: &str, twin: &str) -> Result<Pack, String> {
    let files = [("double.wgsl", SHADER), ("double.cl", twin)];
    Pack::from_sources(manifest, &files).map_err(|e| e.to_string())
}

/// The outcome of the pack's one case on a device.
fn on(runtime: &Runtime, pack: &Pack) -> Row {
    let (row, job) = pack::in_interpreter(pack, &pack.cases()[0]);
    assert!(matches!(row.outcome, Outcome::Right { .. }), "{row:?}");
    pack::on_device(&job.unwrap(), runtime)
}

#[test]
fn a_twin_runs_where_its_language_is_spoken_and_nowhere_else() {
    let cases = [
        (TWIN.to_string(), None),
        // A wrong number is reported with both values.
        (TWIN.replace("* TIMES", "+ TIMES"), Some(["y: element 0", "expected"])),
        // What does not compile, with the compiler's line and the file's name.
        (TWIN.replace("* TIMES", "* TIME"), Some(["line 9 of double.cl: y[i] =", "double.cl:9:"])),
        (TWIN.replace("kernel_main", "main_kernel"), Some(["kernel double", "double.cl"])),
        (
            TWIN.replace(", ulong y_at", "").replace("y_at", "x_at"),
            Some([
                "kernel_main takes 5, not 6: 3 pointers, each with a ulong behind it: one to the \
                 uniform block",
                "double.cl",
            ]),
        ),
    ];
    let mut covered = false;
    for (label, runtime) in devices::every(false) {
        let spoken = runtime.device().profile().provider == "opencl";
        covered |= spoken;
        for (twin, wrong) in &cases {
            let row = on(&runtime, &read(MANIFEST, twin).unwrap());
            assert_eq!(row.place.ends_with(" double.cl"), spoken, "{label}: {row:?}");
            match wrong.filter(|_| spoken) {
                None => assert!(matches!(row.outcome, Outcome::Right { .. }), "{label}: {row:?}"),
                Some(words) => {
                    let Outcome::Wrong { what } = &row.outcome else { panic!("{label}: {row:?}") };
                    assert!(words.iter().all(|word| what.contains(word)), "{words:?}: {what}");
                }
            }
        }
    }
    if !covered {
        skip(Need::OpenCl, "there is no OpenCL device");
    }
}

#[test]
fn missing_twins_are_reported() {
    for (from, to, words) in [
        ("double.cl", "other.cl", "pack.toml:5: pack.toml: \"other.cl\" is not given"),
        ("opencl =", "metal =", "pack.toml:5: unknown field `metal`"),
    ] {
        let error = read(&MANIFEST.replacen(from, to, 1), TWIN).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let folder = std::env::temp_dir().join(format!("warploom-twins-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("pack.toml", MANIFEST), ("double.wgsl", SHADER)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let error = Pack::load(&folder).unwrap_err().to_string();
    assert!(error.contains("pack.toml:5: ") && error.contains("double.cl"), "{error}");
    // A twin that changes is read again.
    std::fs::write(folder.join("double.cl"), TWIN).unwrap();
    let mut pack = Pack::load(&folder).unwrap();
    assert!(!pack.reload().unwrap());
    std::fs::write(folder.join("double.cl"), TWIN.replace("TIMES", "3")).unwrap();
    assert!(pack.reload().unwrap() && !pack.twins()[0].text.contains("TIMES"));
    std::fs::remove_dir_all(folder).unwrap();
}
