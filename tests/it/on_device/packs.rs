//! Kernel packs: the examples run on every device, with the results of plain loops.

use std::collections::BTreeMap;
use std::path::Path;

use warploom::engine::Registry;
use warploom::graph::{Graph, load, save};
use warploom::kernel::pack::Pack;
use warploom::plan::{Options, Plan};
use warploom::provider::DeviceProfile;
use warploom::runtime::Runtime;
use warploom::runtime::{RunOptions, run_graph};
use warploom::{Result, Tensor};
use warploom_core::base::{DType, Dim, Shape, ShapeClass, Symbol, SymbolValues};
use warploom_testkit::pack::{self, Outcome};

use crate::devices;

pub(crate) fn example(name: &str) -> Pack {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/packs").join(name);
    Pack::load(folder).unwrap()
}

fn on_every_device(run: impl Fn(&Runtime) -> Result<()>) {
    for (label, runtime) in devices::every(false) {
        run(&runtime).unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

fn near(have: &[f32], want: &[f32], limit: f32) {
    assert_eq!(have.len(), want.len());
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        let error = (have - want).abs();
        assert!(error <= limit * want.abs().max(1.0), "element {i}: {have}, not {want}");
    }
}

#[test]
fn a_histogram_counts() {
    let pack = example("histogram");
    on_every_device(|runtime| {
        for n in [1_usize, 63, 64, 1001] {
            let data: Vec<u32> =
                (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) % 300).collect();
            let mut want = vec![0_u32; 256];
            data.iter().for_each(|value| want[(*value).min(255) as usize] += 1);
            let data = Tensor::from_vec(runtime, data, [n]);
            let bins = &Tensor::custom(&pack, &[&data], &[])[0];
            assert_eq!(bins.to_vec::<u32>()?, want, "{n} numbers");
        }
        Ok(())
    });
}

#[test]
fn a_blur_takes_the_mean_of_neighbours() {
    let pack = example("blur");
    on_every_device(|runtime| {
        let (h, w) = (13_i32, 22_i32);
        let pixels: Vec<f32> = (0..h * w).map(|i| ((i * 37) % 101) as f32 / 10.0).collect();
        for radius in [0_i32, 2, 30] {
            let mut want = Vec::new();
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                let inside = |v: i32, most: i32| (v - radius).max(0)..=(v + radius).min(most - 1);
                let near: Vec<f32> = inside(y, h)
                    .flat_map(|v| inside(x, w).map(move |u| (v, u)))
                    .map(|(v, u)| pixels[(v * w + u) as usize])
                    .collect();
                want.push(near.iter().sum::<f32>() / near.len() as f32);
            }
            let image = Tensor::from_vec(runtime, pixels.clone(), [h as usize, w as usize]);
            // Results of other operations, with gaps, are read too.
            let values = [("radius", f64::from(radius))];
            let whole = &Tensor::custom(&pack, &[&image], &values)[0];
            near(&whole.to_vec::<f32>()?, &want, 1e-5);
            let turned = &Tensor::custom(&pack, &[&image.t().t()], &values)[0];
            near(
                &(turned + 1.0).sum(..).to_vec::<f32>()?,
                &[want.iter().map(|v| v + 1.0).sum()],
                1e-5,
            );
        }
        Ok(())
    });
}

#[test]
fn bodies_draw_each_other() {
    let pack = example("nbody");
    on_every_device(|runtime| {
        let n = 70_usize;
        let before: Vec<f32> =
            (0..n * 4).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
        let (dt, softening) = (0.25_f64, 0.05_f64);
        let mut want = Vec::new();
        for me in before.chunks(4) {
            let mut pull = [0.0; 2];
            for other in before.chunks(4) {
                let away = [0, 1].map(|i| f64::from(other[i]) - f64::from(me[i]));
                let square = away[0] * away[0] + away[1] * away[1] + softening * softening;
                (0..2).for_each(|i| pull[i] += away[i] / square.powf(1.5));
            }
            let speed = [0, 1].map(|i| f64::from(me[2 + i]) + pull[i] * dt / n as f64);
            want.extend([0, 1].map(|i| (f64::from(me[i]) + speed[i] * dt) as f32));
            want.extend(speed.map(|v| v as f32));
        }
        let bodies = Tensor::from_vec(runtime, before, [n, 4]);
        let after = &Tensor::custom(&pack, &[&bodies], &[("dt", dt)])[0];
        near(&after.to_vec::<f32>()?, &want, 1e-4);
        Ok(())
    });
}

#[test]
fn a_scan_changes_a_copy_in_place() {
    let pack = example("scan");
    on_every_device(|runtime| {
        let data: Vec<f32> = (0..200).map(|i| (i % 7) as f32).collect();
        let want: Vec<f32> = data
            .iter()
            .scan(0.0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect();
        let input = Tensor::from_vec(runtime, data.clone(), [200]);
        let sums = &Tensor::custom(&pack, &[&input], &[])[0];
        assert_eq!(sums.to_vec::<f32>()?, want);
        assert_eq!(input.to_vec::<f32>()?, data, "the operand stays");
        Ok(())
    });
}

/// Sums and products of neighbours, in two outputs of different sizes.
const PAIRS: &str = "\
struct Params { n: u32, k: i32, share: f32, extent: vec2<f32> }
@group(3) @binding(5) var<storage, read_write> products: array<vec2<f32>>;
@group(1) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(0) var<storage, read_write> sums: array<f32>;
@group(0) @binding(1) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> unused: array<u32>;
@compute @workgroup_size(32) fn other() { let a = unused[0]; }
@compute @workgroup_size(32)
fn pairs(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x + 1 >= p.n) { return; }
    sums[id.x] = (x[id.x] + x[id.x + 1] + f32(p.k)) * p.share + p.extent.x - p.extent.y;
    products[id.x] = vec2(x[id.x] * x[id.x + 1], f32(id.x));
}
";
const PAIRS_MANIFEST: &str = "\
name = \"pairs\"
entry = \"pairs\"
inputs = [\"x: [n]\"]
outputs = [\"sums: [n - 1]\", \"products: f32[n - 1, 2]\"]
params = { extent = [\"n\", \"2*n - n\"] }
defaults = { share = 0.5, k = -1 }
writes_all = true
";

fn pairs() -> Pack {
    Pack::from_sources(PAIRS_MANIFEST, &[("pairs.wgsl", PAIRS)]).unwrap()
}

fn pairs_of(x: &[f32], k: f32) -> (Vec<f32>, Vec<f32>) {
    let sums = x.windows(2).map(|w| (w[0] + w[1] + k) * 0.5).collect();
    let products = x.windows(2).enumerate().flat_map(|(i, w)| [w[0] * w[1], i as f32]).collect();
    (sums, products)
}

#[test]
fn a_kernel_of_two_results_in_the_middle_of_a_graph() {
    let pack = pairs();
    on_every_device(|runtime| {
        let all: Vec<f32> = (0..100).map(|i| i as f32 / 4.0).collect();
        let (sums, products) =
            pairs_of(&all[3..80].iter().map(|v| v * 2.0).collect::<Vec<_>>(), 5.0);
        // A part of another result, at an offset where no binding can start.
        let x = (Tensor::from_vec(runtime, all, [100]) * 2.0).slice(0, 3..80, 1);
        let made = Tensor::custom(&pack, &[&x], &[("k", 5.0)]);
        let (a, b) = (&made[0] + 1.0, &made[1]);
        Tensor::eval(&[&a, b])?;
        near(&b.to_vec::<f32>()?, &products, 0.0);
        near(&a.to_vec::<f32>()?, &sums.iter().map(|v| v + 1.0).collect::<Vec<_>>(), 0.0);
        assert_eq!((a.shape(), b.shape()), (&[76][..], &[76, 2][..]));
        Ok(())
    });
}

#[test]
fn tensors_of_nothing_launch_nothing() {
    let pack = example("histogram");
    on_every_device(|runtime| {
        let data = Tensor::from_vec(runtime, Vec::<u32>::new(), [0]);
        let bins = &Tensor::custom(&pack, &[&data], &[])[0];
        assert_eq!(bins.to_vec::<u32>()?, [0; 256]);
        let one = Tensor::from_vec(runtime, vec![1.0_f32], [1]);
        let made = Tensor::custom(&pairs(), &[&one], &[]);
        assert!(made[0].to_vec::<f32>()?.is_empty() && made[1].to_vec::<f32>()?.is_empty());
        Ok(())
    });
}

#[test]
fn a_graph_with_a_kernel_is_planned_once_for_many_sizes_and_is_a_file() {
    let (n, pack) = (Symbol::new("n"), pairs());
    let mut graph = Graph::new("g");
    let x = graph.input("x", Shape::new([Dim::symbol(n) * Dim::new(2)]), DType::F32);
    let made = pack.add_to(&mut graph, &[x], &[]);
    let error = made.unwrap_err().to_string();
    assert!(error.contains("extent.x is f32, and the size 2*n changes"), "{error}");
    let whole = PAIRS_MANIFEST.replace("params = { extent = [\"n\", \"2*n - n\"] }\n", "");
    let whole = whole.replace("share =", "\"extent.x\" = 0, \"extent.y\" = 0, share =");
    let pack = Pack::from_sources(&whole, &[("pairs.wgsl", PAIRS)]).unwrap();
    let made = pack.add_to(&mut graph, &[x], &[]).unwrap();
    graph.output("sums", made[0]).unwrap();
    graph.output("products", made[1]).unwrap();
    let graph = load(&save(&graph).unwrap()).unwrap();
    assert!(graph.to_string().contains("custom(%0) \"pairs\" output=1"), "{graph}");
    for (label, runtime) in devices::every(false) {
        for half in [1_u64, 20, 33] {
            let x: Vec<f32> = (0..2 * half).map(|i| (i * i) as f32).collect();
            let bytes = x.iter().flat_map(|v| v.to_le_bytes()).collect();
            let class = ShapeClass::new().with(n, 1, 33);
            let options = RunOptions { class: Some(class), guard: true, ..RunOptions::default() };
            let symbols = SymbolValues::new().with(n, half);
            let bindings = BTreeMap::from([("x".to_string(), bytes)]);
            let run = run_graph(&runtime, &graph, &symbols, &bindings, &options);
            let found = run.unwrap_or_else(|e| panic!("{label}: {e}"));
            let floats = |name: &str| -> Vec<f32> {
                found[name]
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                    .collect()
            };
            let (sums, products) = pairs_of(&x, -1.0);
            near(&floats("sums"), &sums, 0.0);
            near(&floats("products"), &products, 0.0);
        }
    }
    let profile = DeviceProfile::known("browser-floor").unwrap();
    let registry = Registry::builtin();
    let class = ShapeClass::new().with(n, 1, 33);
    let plan = Plan::new(&graph, &class, &profile, &Options::new(&registry)).unwrap();
    let launches: Vec<&str> = plan.steps.iter().map(|step| step.kernel.name()).collect();
    assert_eq!(launches, ["pairs"], "one launch makes both results");
    // `arrayLength` of such a tensor would return the maximum length.
    let mut graph = Graph::new("g");
    let x = graph.input("x", Shape::new([Dim::symbol(n)]), DType::F32);
    let made = example("scan").add_to(&mut graph, &[x], &[]).unwrap();
    graph.output("y", made[0]).unwrap();
    let error = Plan::new(&graph, &class, &profile, &Options::new(&registry)).unwrap_err();
    assert!(error.to_string().contains("reads the length of data"), "{error}");
}

/// In deterministic mode a kernel runs if its manifest permits it, else it is refused.
#[test]
fn a_kernel_says_itself_whether_it_is_deterministic() {
    let runtime = Runtime::builder().device("cpu").deterministic(true).build().unwrap();
    let x = Tensor::from_vec(&runtime, vec![1.0_f32, 2.0, 4.0], [3]);
    let error = Tensor::custom(&pairs(), &[&x], &[])[0].to_vec::<f32>().unwrap_err().to_string();
    for part in ["custom.wgsl", "deterministic mode", "\"pairs\"", "`deterministic = true`"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let declared = format!("deterministic = true\n{PAIRS_MANIFEST}");
    let declared = Pack::from_sources(&declared, &[("pairs.wgsl", PAIRS)]).unwrap();
    let sums = Tensor::custom(&declared, &[&x], &[])[0].to_vec::<f32>().unwrap();
    assert_eq!(sums, [1.0, 2.5]);
}

#[test]
fn wrong_calls_are_errors_at_the_read() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let pack = pairs();
    let x = Tensor::ones(&runtime, [4]);
    let message = |pack: &Pack, operands: &[&Tensor], values: &[(&str, f64)]| {
        Tensor::custom(pack, operands, values)[0].to_vec::<f32>().unwrap_err().to_string()
    };
    let rows = [
        (message(&pack, &[&x, &x], &[]), "2 operands, and it takes 1: x"),
        (
            message(&pack, &[&Tensor::ones(&runtime, [2, 2])], &[]),
            "x is f32[2, 2], must be f32 of 1",
        ),
        (message(&pack, &[&x.cast(DType::I32)], &[]), "x is i32[4]"),
        (message(&pack, &[&x], &[("kk", 1.0)]), "no value \"kk\"; it takes"),
        (message(&pack, &[&x], &[("k", 0.5)]), "k = 0.5 is not a value of i32"),
        (message(&pack, &[&x], &[("n", 5.0)]), "size n is 5 in the call and 4 in x"),
        (message(&pack, &[&x], &[("k", 1.0), ("k", 1.0)]), "is given twice"),
        (message(&example("nbody"), &[&Tensor::ones(&runtime, [4, 3])], &[]), "must be [4, 4]"),
        (message(&pack, &[&Tensor::ones(&runtime, [0])], &[]), "sums is [-1]"),
    ];
    for (message, want) in rows {
        assert!(
            message.contains(want) && message.contains("packs.rs:"),
            "{want:?} is not in: {message}"
        );
    }
    // More workgroups than a device has in one direction.
    let many = PAIRS_MANIFEST.replace("writes_all", "groups = 70000\nwrites_all");
    let many = Pack::from_sources(&many, &[("pairs.wgsl", PAIRS)]).unwrap();
    let mut graph = Graph::new("g");
    let x = graph.input("x", Shape::new([4]), DType::F32);
    let made = many.add_to(&mut graph, &[x], &[]).unwrap();
    graph.output("y", made[0]).unwrap();
    let profile = DeviceProfile::known("browser-floor").unwrap();
    let (registry, class) = (Registry::builtin(), ShapeClass::new());
    let error = Plan::new(&graph, &class, &profile, &Options::new(&registry)).unwrap_err();
    assert!(error.to_string().contains("70000 workgroups in x"), "{error}");
}

#[test]
fn files_are_those_of_the_folder() {
    let folder = std::env::temp_dir().join(format!("warploom-packs-{}", std::process::id()));
    let inside = folder.join("pack");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::write(folder.join("outside.wgsl"), PAIRS).unwrap();
    std::fs::write(inside.join("pairs.wgsl"), PAIRS).unwrap();
    let with = |key: &str| {
        std::fs::write(inside.join("pack.toml"), format!("{key}\n{PAIRS_MANIFEST}")).unwrap();
        Pack::load(&inside).map_err(|e| e.to_string())
    };
    assert_eq!(with("").unwrap().name(), "pairs");
    for name in
        ["../outside.wgsl", "a/../../outside.wgsl", "/etc/hostname", ".", "..", "", "a\\b", "C:x"]
    {
        let error = with(&format!("shader = '{name}'")).unwrap_err();
        assert!(error.contains("pack.toml:1") && error.contains("own folder"), "{name}: {error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../outside.wgsl", inside.join("link.wgsl")).unwrap();
        let error = with("shader = 'link.wgsl'").unwrap_err();
        assert!(error.contains("not a plain file"), "{error}");
        let error = with("").unwrap_err();
        assert!(error.contains("link.wgsl, pairs.wgsl"), "{error}");
    }
    std::fs::write(inside.join("large.wgsl"), vec![b' '; 2 << 20]).unwrap();
    assert!(with("shader = 'large.wgsl'").unwrap_err().contains("more than"));
    std::fs::write(inside.join("bytes.wgsl"), [0xff, 0xfe]).unwrap();
    assert!(with("shader = 'bytes.wgsl'").unwrap_err().contains("UTF-8"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_pack_is_read_again_where_it_changed_and_keeps_what_was_fastest() {
    let folder = std::env::temp_dir().join(format!("warploom-reload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let manifest =
        "outputs = ['y: [n]']\ninputs = ['x: [n]']\ntune = { WG = [32, 64] }\nname = 'p'";
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let shader = "override WG: u32 = 64;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&x)) { y[id.x] = x[id.x] + f32(WG); }
        }";
    write("pack.toml", manifest);
    write("p.wgsl", shader);
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let x = Tensor::from_vec(&runtime, vec![0.0_f32; 100], [100]);
    let last = |pack: &Pack| Tensor::custom(pack, &[&x], &[])[0].to_vec::<f32>().unwrap()[99];

    let mut pack = Pack::load(&folder).unwrap();
    assert_eq!((pack.reload().unwrap(), last(&pack)), (false, 64.0));
    let name = warploom::tensor::tuned_name(runtime.device().profile());
    pack.keep_tuned(&name, &BTreeMap::from([("WG".to_string(), 32.0)])).unwrap();
    assert!(pack.keep_tuned(&name, &BTreeMap::from([("GW".to_string(), 32.0)])).is_err());
    assert_eq!(last(&pack), 32.0);
    assert_eq!(last(&Pack::load(&folder).unwrap()), 32.0, "it is kept in the folder");

    // Another shader: the stored results are read again, and do not apply to it.
    write("p.wgsl", &shader.replace("x[id.x] +", "x[id.x] + 1.0 +"));
    assert_eq!((pack.reload().unwrap(), last(&pack)), (true, 65.0));
    // A broken file is reported, and the pack is unchanged.
    write("p.wgsl", "fn main(");
    assert!(pack.reload().unwrap_err().to_string().contains("p.wgsl:1"));
    assert_eq!(last(&pack), 65.0);
    for text in
        ["", "{", "[1]", "{\"shader\": 1}", "{\"shader\":\"\",\"devices\":{\"a\":{\"WG\":0}}}"]
    {
        write("p.wgsl", shader);
        write("tuned.json", text);
        assert_eq!(last(&Pack::load(&folder).unwrap()), 64.0, "{text}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_checks_of_every_example_are_right_everywhere() {
    let runtimes = devices::every(true);
    for name in ["histogram", "blur", "nbody", "scan"] {
        let pack = example(name);
        for case in pack::cases(&pack).unwrap() {
            let (row, job) = pack::in_interpreter(&pack, &case);
            assert!(matches!(row.outcome, Outcome::Right { .. }), "{name}: {row:?}");
            let job = job.unwrap();
            for (label, runtime) in &runtimes {
                let row = pack::on_device(&job, runtime);
                assert!(matches!(row.outcome, Outcome::Right { .. }), "{name} on {label}: {row:?}");
            }
        }
    }
}
