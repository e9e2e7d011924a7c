//! Random graphs: every plan runs on every device with the reference's results, with and without
//! optional passes; every kernel is valid and lowers to every target; intermediates are within
//! their memory. A failure is reported with its seed and the smallest graph that reproduces it.
//!
//! `WARPLOOM_RANDOM_GRAPHS` is the number of seeds, from 0; `WARPLOOM_RANDOM_SEED` is one to
//! repeat, on every device.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use naga::valid::Capabilities;
use warploom::engine::Registry;
use warploom::kernel::{KernelSpec, Schedule};
use warploom::plan::{Options, PASSES, Plan};
use warploom::provider::{DeviceProfile, NullProvider};
use warploom::runtime::{Detection, RunOptions, Runtime, run_graph};
use warploom_core::base::{ShapeClass, SymbolValues};
use warploom_kernels::codegen::{fused_wgsl, kernel_wgsl};
use warploom_testkit::{
    Case, Outcome, RandomLimits, memory_use, random_case, random_class, run_case, shrink,
};

use crate::devices;
use crate::tell;
use crate::wgsl::{FLOOR, lowered};

/// Number of seeds of a usual run.
const GRAPHS: u64 = 2000;
/// One in this many seeds also runs at WebGPU's floor.
const FLOOR_EACH: usize = 4;
/// The same on lavapipe and similar devices, whose time is dominated by compilation.
const SOFTWARE_EACH: usize = 8;
/// As many, on an OpenCL device that is the CPU.
const OPENCL_EACH: usize = 64;
/// Maximum failures that are reduced and reported; more add little.
const TOLD: usize = 3;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// Names of every pass that can be left out.
fn optional() -> Vec<String> {
    PASSES.iter().filter(|pass| pass.optional).map(|pass| pass.name.to_string()).collect()
}

/// A device to run on, or a profile to plan for.
struct Target {
    label: String,
    profile: DeviceProfile,
    runtime: Option<Runtime>,
    /// One in this many seeds runs on it.
    each: u64,
}

impl Target {
    fn on(label: String, runtime: Runtime, each: u64) -> Target {
        let profile = runtime.device().profile().clone();
        Target { label, profile, runtime: Some(runtime), each }
    }
}

fn targets() -> Vec<Target> {
    let null = NullProvider::profile();
    let mut targets = vec![Target { label: null.id(), profile: null, runtime: None, each: 1 }];
    let detection = Detection::detect("auto").unwrap();
    let profiles = detection.devices.iter().filter(|d| d.rank.is_some()).map(|d| &d.profile);
    for profile in profiles.filter(|profile| devices::wanted(profile)) {
        // Threads of this test share the machine already.
        let builder = || Runtime::builder().device(profile.id()).threads(Some(1));
        let each = devices::sample(profile, OPENCL_EACH)
            .max(devices::sample_software(profile, SOFTWARE_EACH));
        targets.push(Target::on(profile.id(), builder().build().unwrap(), each as u64));
        if profile.provider == "webgpu" {
            let label = format!("{} at the floor", profile.id());
            let runtime = builder().floor(true).build().unwrap();
            targets.push(Target::on(label, runtime, (each * FLOOR_EACH) as u64));
        }
    }
    targets
}

/// State shared by all threads.
#[derive(Default)]
struct Shared {
    /// Kernels already checked, of all plans.
    kernels: Mutex<HashSet<KernelSpec>>,
    /// Plans by the share of their arena over the least, in steps of a hundredth.
    shares: Mutex<BTreeMap<u64, usize>>,
    runs: Mutex<BTreeMap<String, usize>>,
    failures: Mutex<Vec<Failure>>,
    /// Seconds and seed of the graph that took longest.
    slowest: Mutex<(f64, u64)>,
}

#[derive(Debug)]
struct Failure {
    target: usize,
    seed: u64,
    run: u32,
    without: Vec<String>,
    text: String,
}

/// The class to plan for: all runs, if there are symbols.
fn class(case: &Case) -> ShapeClass {
    match case.symbols.iter().next() {
        Some(_) => random_class(),
        None => ShapeClass::exact(&SymbolValues::new()),
    }
}

/// The error of a kernel not seen before.
fn check_kernel(shared: &Shared, spec: &KernelSpec) -> Result<(), String> {
    if shared.kernels.lock().unwrap().contains(spec) {
        return Ok(());
    }
    let (text, capabilities) = match spec {
        KernelSpec::Fused(expr) => {
            let subgroup = matches!(expr.schedule, Schedule::Rows { subgroup: true, .. });
            let more = if subgroup { Capabilities::SUBGROUP } else { Capabilities::empty() };
            (fused_wgsl(expr), FLOOR | more)
        }
        KernelSpec::Asset(asset) => {
            let subgroup = asset.defines.iter().any(|d| d == "subgroup");
            let more = if subgroup { Capabilities::SUBGROUP } else { Capabilities::empty() };
            (kernel_wgsl(asset), FLOOR | more)
        }
        KernelSpec::Source(source) => (Ok(source.wgsl.clone()), FLOOR),
        // A call of a library has no text.
        KernelSpec::Routine(_) => return Ok(()),
    };
    lowered(&spec.to_string(), &text.map_err(|e| e.to_string())?, capabilities)?;
    shared.kernels.lock().unwrap().insert(spec.clone());
    Ok(())
}

/// Plans a case for a target and looks at its kernels and its memory.
fn check_plan(
    shared: &Shared,
    registry: &Registry,
    target: &Target,
    case: &Case,
    without: &[String],
) -> Result<(), String> {
    let mut options = Options::new(registry);
    options.without = without.to_vec();
    let plan = Plan::new(&case.graph, &class(case), &target.profile, &options);
    let plan = plan.map_err(|e| format!("planning: {e}"))?;
    if target.profile.provider != "cpu" {
        plan.recording.kernels.iter().try_for_each(|spec| check_kernel(shared, spec))?;
    }
    let memory = memory_use(&plan).map_err(|e| format!("memory: {e}\n{}", plan.explain()))?;
    let share = memory.arena * 100 / memory.live.max(1);
    *shared.shares.lock().unwrap().entry(share).or_default() += 1;
    Ok(())
}

/// The error of a case on a target, if any.
fn wrong(target: &Target, case: &Case, without: &[String]) -> Option<String> {
    let Some(runtime) = &target.runtime else { return None };
    let options =
        RunOptions { class: Some(class(case)), without: without.to_vec(), ..RunOptions::default() };
    let outcome = run_case(case, &|graph, symbols, bindings| {
        run_graph(runtime, graph, symbols, bindings, &options)
    });
    match outcome {
        Outcome::Pass(_) => None,
        Outcome::Fail(failure) => Some(failure.what),
        Outcome::KnownToFail(text) => Some(text),
        Outcome::Unsupported(text) => Some(format!("unsupported: {text}")),
    }
}

/// One seed on every target: its plans, and its runs on those whose turn it is.
fn one_seed(shared: &Shared, registry: &Registry, targets: &[Target], seed: u64, all: bool) {
    let limits = RandomLimits::default();
    let first = random_case(seed, 0, &limits);
    let runs = if first.symbols.iter().next().is_some() { 2 } else { 1 };
    let cases: Vec<Case> = (0..runs).map(|run| random_case(seed, run, &limits)).collect();
    for (place, target) in targets.iter().enumerate() {
        for without in [Vec::new(), optional()] {
            let fail = |run: usize, text: String| {
                let without = without.clone();
                let failure = Failure { target: place, seed, run: run as u32, without, text };
                shared.failures.lock().unwrap().push(failure);
            };
            if let Err(text) = check_plan(shared, registry, target, &first, &without) {
                fail(0, text);
                continue;
            }
            if target.runtime.is_none() || (!all && !seed.is_multiple_of(target.each)) {
                continue;
            }
            for (run, case) in cases.iter().enumerate() {
                *shared.runs.lock().unwrap().entry(target.label.clone()).or_default() += 1;
                if let Some(text) = wrong(target, case, &without) {
                    fail(run, text);
                }
            }
        }
    }
}

/// Seed, device and passes of a failure, with the smallest graph that shows it.
fn described(registry: &Registry, targets: &[Target], failure: &Failure) -> String {
    let Failure { target, seed, run, without, text } = failure;
    let target = &targets[*target];
    let look = |case: &Case| {
        check_plan(&Shared::default(), registry, target, case, without)
            .err()
            .or_else(|| wrong(target, case, without))
    };
    let mut fails = |case: &Case| look(case).is_some();
    let mut case = random_case(*seed, *run, &RandomLimits::default());
    // Smaller limits make another graph of the same seed, which may well fail too.
    for (nodes, size) in [(4, 3), (6, 5), (8, 9), (12, 33), (18, 33), (30, 33)] {
        let smaller = random_case(*seed, *run, &RandomLimits { nodes, size });
        if fails(&smaller) {
            case = smaller;
            break;
        }
    }
    let small = shrink(&case, &mut fails);
    let left = if without.is_empty() { "" } else { " without optional passes" };
    format!(
        "seed {seed} run {run} on {}{left}: {text}\nsmallest, with {:?}: {}\n{}",
        target.label,
        small.symbols,
        look(&small).unwrap_or_default(),
        small.graph
    )
}

#[test]
fn random_graphs_are_right_on_every_device() {
    let one = number("WARPLOOM_RANDOM_SEED");
    let count = one.map_or_else(|| number("WARPLOOM_RANDOM_GRAPHS").unwrap_or(GRAPHS), |_| 1);
    let begin = Instant::now();
    let (shared, next) = (Shared::default(), AtomicU64::new(0));
    let work = || {
        let (targets, registry) = (targets(), Registry::builtin());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let (seed, begin) = (one.unwrap_or(index), Instant::now());
            one_seed(&shared, &registry, &targets, seed, one.is_some());
            let seconds = begin.elapsed().as_secs_f64();
            let mut slowest = shared.slowest.lock().unwrap();
            if seconds > slowest.0 {
                *slowest = (seconds, seed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        (0..threads.min(count as usize)).for_each(|_| drop(scope.spawn(work)));
    });
    tell(&format!(
        "random: {count} graphs, {} kernels, runs {:?}, in {:.1} s",
        shared.kernels.lock().unwrap().len(),
        shared.runs.lock().unwrap(),
        begin.elapsed().as_secs_f64()
    ));
    let (seconds, seed) = shared.slowest.into_inner().unwrap();
    tell(&format!("random: seed {seed} took longest, {seconds:.1} s"));
    let shares = shared.shares.into_inner().unwrap();
    tell(&format!("random: shares {shares:?}"));
    let mut failures = shared.failures.into_inner().unwrap();
    failures.sort_by_key(|failure| (failure.seed, failure.target));
    if !failures.is_empty() {
        let (targets, registry) = (targets(), Registry::builtin());
        let texts =
            failures.iter().take(TOLD).map(|failure| described(&registry, &targets, failure));
        let texts: Vec<String> = texts.collect();
        let seeds: BTreeSet<u64> = failures.iter().map(|failure| failure.seed).collect();
        panic!("{} failures, seeds {seeds:?}:\n{}", failures.len(), texts.join("\n"));
    }
}
