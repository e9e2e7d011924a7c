//! Programs for `tests/sanitize.sh`, which runs NVIDIA's compute-sanitizer in one process for each
//! tool: small cases, and kernels with one planted fault each. Without its variables nothing runs
//! on a device.
//!
//! Every kernel in plans of the small cases, with each engine forced, runs once, in the smallest
//! case: the tools check threads, not results, and slow each launch by 10 to 100 times. A sample of
//! the cases runs all plans instead.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::time::Instant;

use cudarc::driver::{DriverError, result, sys};
use warploom::engine::{EngineId, Registry};
use warploom::kernel::{AssetSpec, KernelSpec, Schedule, catalogue};
use warploom::plan::{Options, Plan, Selector, candidates};
use warploom::provider::{DeviceProfile, OpenOptions, Provider};
use warploom::runtime::{Runtime, SyncMode, TuneMode, run_plan};
use warploom_core::base::ShapeClass;
use warploom_core::base::platform::block_on;
use warploom_native::cuda::{self, Nvrtc};
use warploom_testkit::{Case, Conformance, ConformanceProgress, Outcome, cases, run_case};

use crate::translate::compiler;
use crate::{Need, skip, tell, vendor_gemm};

/// Names the device, such as `cuda:0`, on which the small cases run.
const DEVICE: &str = "WARPLOOM_TEST_SANITIZE";
/// All plans of one in this many cases, instead of each kernel once.
const SAMPLE: &str = "WARPLOOM_TEST_SANITIZE_SAMPLE";
/// Seconds after which no further run starts; 0 is no limit.
const SECONDS: &str = "WARPLOOM_TEST_SANITIZE_SECONDS";
/// Which fault is planted: `memcheck`, `racecheck`, `initcheck` or `synccheck`.
const PLANTED: &str = "WARPLOOM_PLANTED";

/// Kernels of the catalogue that occur in no small case on a GPU.
const LEFT_OUT: [&str; 0] = [];
/// Numbers in the largest tensor of a small case.
const NUMBERS: u64 = 1 << 14;
/// A line is printed after this many runs.
const TOLD: usize = 10;

/// Numbers in the largest tensor of a case.
fn size(case: &Case) -> u64 {
    let size = |node: &warploom::graph::Node| node.shape.elements().eval_size(&case.symbols);
    case.graph.nodes().iter().map(|node| size(node).unwrap_or(u64::MAX)).max().unwrap_or(0)
}

/// The small cases, the smallest first.
fn small() -> Vec<Case> {
    let mut small: Vec<Case> = cases().into_iter().filter(|case| size(case) <= NUMBERS).collect();
    small.sort_by_key(size);
    small
}

/// Distinguishes kernels for the tools: the text without its numbers. For generated work, its
/// split, the types it reads, and what it writes and how; the tools do not see which function it
/// applies.
fn identity(spec: &KernelSpec) -> String {
    match spec {
        KernelSpec::Asset(asset) => {
            let plain = AssetSpec { constants: BTreeMap::new(), fusion: None, ..asset.clone() };
            let fusion = if asset.fusion.is_some() { " with fused work" } else { "" };
            format!("{}{fusion}", KernelSpec::Asset(plain))
        }
        KernelSpec::Fused(expr) => {
            let read: BTreeSet<&str> = expr.inputs.iter().map(|x| x.dtype.name()).collect();
            let written = expr.outputs.iter().map(|y| (y.operand.dtype, y.operand.addressing));
            let written: BTreeSet<String> = written.map(|y| format!("{y:?}")).collect();
            let cut = match expr.schedule {
                Schedule::Elements { width } => format!("elements by {width}"),
                Schedule::Rows { width, subgroup, .. } => {
                    format!("rows by {width}{}", if subgroup { " with subgroups" } else { "" })
                }
            };
            format!("fused {cut} of {read:?} to {written:?}")
        }
        other => other.to_string(),
    }
}

/// A plan with kernels that no earlier plan has.
struct Run {
    case: usize,
    /// The forced engine, for display.
    by: String,
    plan: Plan,
    /// Kernels of this case and those before.
    met: usize,
}

/// Plans that contain every kernel of all plans of these cases: with each engine forced where
/// possible, with and without fusion.
fn cover<'a>(
    cases: &[Case],
    profile: &DeviceProfile,
    options: &dyn Fn() -> Options<'a>,
) -> Vec<Run> {
    let (mut met, mut runs) = (BTreeSet::new(), Vec::new());
    for (at, case) in cases.iter().enumerate() {
        let class = ShapeClass::exact(&case.symbols);
        let plan = |options: &Options| Plan::new(&case.graph, &class, profile, options);
        for fused in [true, false] {
            let options = || {
                let mut options = options();
                options.without.extend((!fused).then(|| "fuse".into()));
                options
            };
            let pieces = candidates(&case.graph, &class, profile, &options()).unwrap_or_default();
            let engines: BTreeSet<EngineId> =
                pieces.iter().flat_map(|p| &p.can).map(|offer| offer.engine.clone()).collect();
            let forced = engines.into_iter().map(|engine| {
                let can = pieces.iter().filter(|p| p.can.iter().any(|o| o.engine == engine));
                let force = can.map(|p| (Selector::Node(p.node), engine.clone())).collect();
                (engine.to_string(), Options { force, ..options() })
            });
            let chosen = ("the estimate's choice".to_string(), options());
            for (by, options) in std::iter::once(chosen).chain(forced) {
                // The conformance suite reports operations without an engine.
                let Ok(plan) = plan(&options) else { continue };
                let before = met.len();
                met.extend(plan.steps.iter().map(|step| identity(&step.kernel)));
                if met.len() > before {
                    runs.push(Run { case: at, by, plan, met: met.len() });
                }
            }
        }
    }
    runs
}

/// The value of a variable, or `otherwise`.
fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// On one device: each kernel of the small cases once, or all plans of a sample of them.
#[test]
fn small_cases() {
    let Ok(device) = std::env::var(DEVICE) else {
        return skip(Need::Tool, &format!("{DEVICE} names no device"));
    };
    // CUDA only: listing all devices would start other drivers under the tool as well.
    let runtime = match device.strip_prefix("cuda:") {
        Some(index) => {
            let (provider, index) = (cuda::Provider::new(), index.parse().unwrap());
            let device = block_on(provider.open(index, OpenOptions::default())).unwrap();
            Runtime::on(device, SyncMode::Lazy, None)
        }
        None => Runtime::builder().device(device).trusting(true).tune(TuneMode::Off).build(),
    };
    let runtime = runtime.unwrap();
    match number(SAMPLE, 0) {
        0 => each_kernel(&runtime, number(SECONDS, 0) as f64),
        sample => sampled(&runtime, sample),
    }
}

fn each_kernel(runtime: &Runtime, seconds: f64) {
    let (begin, cases, profile) = (Instant::now(), small(), runtime.device().profile());
    let runs = cover(&cases, profile, &|| runtime.plan_options());
    let all = runs.last().map_or(0, |run| run.met);
    let time = || begin.elapsed().as_secs_f64();
    tell(&format!(
        "sanitize: {all} kernels in {} small cases, {} runs, found in {:.1} s",
        cases.len(),
        runs.len(),
        time()
    ));
    let begin = Instant::now();
    let time = || begin.elapsed().as_secs_f64();
    let (mut done, mut met, mut wrong) = (0usize, 0, Vec::new());
    for run in &runs {
        if seconds > 0.0 && time() >= seconds {
            break;
        }
        let case = cases[run.case].on(profile);
        let outcome = run_case(&case, &|graph, symbols, bytes| {
            run_plan(runtime, graph, run.plan.clone(), symbols, bytes, true)
        });
        // A plan was made, so that it is not supported is wrong as well.
        if !matches!(outcome, Outcome::Pass(_)) {
            wrong.push(format!("{} by {}: {outcome:?}", case.name, run.by));
        }
        (done, met) = (done + 1, run.met);
        if done.is_multiple_of(TOLD) {
            let (name, by, count) = (&case.name, &run.by, runs.len());
            tell(&format!(
                "sanitize: {met} of {all} kernels, {done} of {count} runs, {:.1} s: {name} by {by}",
                time()
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {done}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(met > 0, "no kernel ran in {seconds} s");
    let end = if met < all { "the time was up" } else { "all" };
    tell(&format!("sanitize: {met} of {all} kernels in {:.1} s: {end}", time()));
}

/// Every engine of the device, forced in each case of a sample, and the default plans.
fn sampled(runtime: &Runtime, sample: usize) {
    let small: Vec<Case> = small().into_iter().step_by(sample).collect();
    let count = small.len();
    let reported = |progress: ConformanceProgress<'_>| {
        if progress.done.is_multiple_of(TOLD) {
            let ConformanceProgress { done, total, case, .. } = progress;
            tell(&format!("sanitize: {done} of {total} cases: {case}"));
        }
    };
    let suite = || Conformance::new().cases(small.clone()).progress(reported);
    let all = suite().run(runtime).unwrap();
    let engines = runtime.registry().engines().iter().map(|engine| engine.id().clone());
    let forced = engines.fold(suite(), Conformance::registered).run(runtime).unwrap();
    let found = [&all.devices[0], &forced.devices[0]];
    let rows: usize = found.iter().map(|device| device.rows.len()).sum();
    let wrong: Vec<String> = found
        .iter()
        .flat_map(|device| device.failures())
        .map(|(row, failure)| format!("{} by {:?}: {failure:?}", row.case, row.engine))
        .collect();
    let used = forced.devices[0].engines.iter().filter(|engine| engine.cases > 0).count();
    let problems: Vec<_> = found.iter().flat_map(|device| &device.problems).collect();
    assert!(problems.is_empty(), "{problems:?}");
    assert!(wrong.is_empty(), "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 0 && used > 0);
    tell(&format!("sanitize: {count} of {count} cases, {rows} runs, {used} engines"));
}

/// Without a GPU: no more runs than kernels, for a GPU like that of the tools, and few kernels of
/// the catalogue are missing.
#[test]
fn few_runs_have_every_kernel_of_the_small_cases() {
    let profile = vendor_gemm::gpu()
        .with(|p| {
            p.has_subgroups = true;
            p.subgroup_min = 32;
            p.subgroup_max = 32;
            p.has_f16 = true;
            p.has_matrix_hw = true;
            p.max_threads_per_workgroup = 1024;
            p.workgroup_memory_bytes = 49152;
        })
        .with_cuda_features();
    let registry = Registry::builtin();
    let runs = cover(&small(), &profile, &|| Options::new(&registry));
    let all = runs.last().unwrap().met;
    let steps = runs.iter().flat_map(|run| &run.plan.steps);
    let mut met = BTreeSet::new();
    let mut entries = BTreeSet::new();
    for step in steps {
        met.insert(identity(&step.kernel));
        if let KernelSpec::Asset(asset) = &step.kernel {
            entries.extend(catalogue::find(&asset.name).map(|(entry, _)| entry.name));
        }
    }
    assert_eq!(met.len(), all);
    assert!(runs.len() <= all, "{} runs for {all} kernels", runs.len());
    let names = catalogue::CATALOGUE.iter().map(|entry| entry.name);
    let left: Vec<&str> = names.filter(|name| !entries.contains(name)).collect();
    tell(&format!("sanitize: {} runs for {all} kernels, but for {left:?}", runs.len()));
    assert_eq!(left, LEFT_OUT);
}

/// Kernels of 64 threads on 64 unwritten words, each with one fault.
const FAULTS: [(&str, &str); 4] = [
    ("memcheck", "y[threadIdx.x + 1] = 1;"),
    // The other warp's words, without waiting for them.
    (
        "racecheck",
        "__shared__ unsigned s[64]; s[threadIdx.x] = threadIdx.x; y[threadIdx.x] = s[63 - threadIdx.x];",
    ),
    ("initcheck", "y[threadIdx.x] = y[63 - threadIdx.x] + 1;"),
    // Threads of one warp, and of one block, go apart before they wait for each other.
    (
        "synccheck",
        "unsigned z = 0; if (threadIdx.x < 48) { __syncthreads(); z = 1; } y[threadIdx.x] = z;",
    ),
];

/// The right tool finds it; without it the test shows nothing, not even an error.
#[test]
fn planted_fault() {
    let Ok(wanted) = std::env::var(PLANTED) else {
        return skip(Need::Tool, &format!("{PLANTED} names no tool"));
    };
    let (tool, line) = FAULTS.iter().find(|(tool, _)| *tool == wanted).expect("a tool's name");
    let text = format!("extern \"C\" __global__ void planted(unsigned* y) {{ {line} }}\n");
    result::init().unwrap();
    let device = result::device::get(0).unwrap();
    let number = |which| {
        // SAFETY: a device that the driver gave.
        unsafe { result::device::get_attribute(device, which) }.unwrap()
    };
    use sys::CUdevice_attribute::*;
    let major = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    let nvrtc = Nvrtc::open().unwrap();
    let mut image = nvrtc.compile(&text, &format!("sm_{major}{minor}")).unwrap();
    image.push(0);
    // SAFETY: a device that the driver gave, and the image of a kernel of one pointer.
    let end = unsafe { launch(device, &image) };
    // With memcheck the tool ends the launch, which is reported as a failure.
    tell(&format!("planted for {tool}: ran, {end:?}"));
}

/// # Safety
/// The image is of a kernel `planted` that takes a pointer.
unsafe fn launch(device: sys::CUdevice, image: &[u8]) -> Result<(), DriverError> {
    let name = CString::new("planted").unwrap();
    // SAFETY: handles as the driver gave them; memory of 64 words, as the kernel is given.
    unsafe {
        let context = result::primary_ctx::retain(device)?;
        result::ctx::set_current(context)?;
        let module = result::module::load_data(image.as_ptr().cast())?;
        let kernel = result::module::get_function(module, name)?;
        let mut y = result::malloc_sync(256)?;
        let none = std::ptr::null_mut();
        result::launch_kernel(kernel, (1, 1, 1), (64, 1, 1), 0, none, &mut [(&raw mut y).cast()])?;
        result::ctx::synchronize()
    }
}

/// Without a GPU: the planted kernels compile.
#[test]
fn planted_kernels_compile() {
    let Some(nvrtc) = compiler() else { return };
    for (tool, line) in FAULTS {
        let text = format!("extern \"C\" __global__ void planted(unsigned* y) {{ {line} }}\n");
        nvrtc.compile(&text, "sm_90").unwrap_or_else(|e| panic!("{tool}: {e}"));
    }
}
