//! Flash decoding: counters of workgroups (`TensorRole::Counters`) are zero after each run.

use std::time::Duration;

use warploom::engine::{EngineId, Registry, TensorRole};
use warploom::graph::{Graph, Op};
use warploom::plan::{Options, Plan, SlotRole, tasks};
use warploom::provider::DeviceProfile;
use warploom::runtime::{
    DeviceTensors, Instance, Runtime, SyncMode, TuneCache, TuneMode, TuneOptions,
};
use warploom_core::base::{DType, Dim, Shape, ShapeClass, Symbol, SymbolValues};

use crate::interpret_device::Checked;
use crate::tune::quick;
use crate::tune_cache::Folder;
use crate::{devices, tell};

const PAST: Symbol = Symbol::new("past");
const KEYS: u64 = 300;
/// With many slices, then one, fewer than before, and many again.
const RUNS: [u64; 6] = [KEYS - 1, 0, 70, KEYS - 1, 10, KEYS - 1];

/// Two attentions in sequence, of one token with four heads of 64 over two key heads.
fn graph() -> Graph {
    let mut g = Graph::new("attention");
    let q = g.input("q", Shape::new([1, 4, 64]), DType::F32);
    let [k, v] = ["k", "v"].map(|name| g.input(name, Shape::new([KEYS, 2, 64]), DType::F32));
    let op = || Op::attention(0.125, true, None, Dim::symbol(PAST));
    let first = g.add(op(), &[q, k, v]).unwrap();
    let second = g.add(op(), &[first, k, v]).unwrap();
    g.output("y", second).unwrap();
    g
}

fn plan(profile: &DeviceProfile, engine: &'static str) -> Plan {
    let registry = Registry::builtin();
    let options = Options { preferred: vec![EngineId::new(engine)], ..Options::new(&registry) };
    let class = ShapeClass::new().with(PAST, 0, KEYS - 1);
    Plan::new(&graph(), &class, profile, &options).unwrap()
}

fn numbers(count: u64, seed: u64) -> Vec<u8> {
    let number = |i: u64| ((i * 7919 + seed * 104_729) % 4093) as f32 / 2046.5 - 1.0;
    (0..count).flat_map(|i| number(i).to_le_bytes()).collect()
}

/// Whether the device has the kernel; its runs are then compared with those of another.
fn check(label: &str, runtime: &Runtime) -> bool {
    let profile = runtime.device().profile();
    let instance = |engine| {
        let plan = plan(profile, engine);
        Instance::new(runtime, plan, &mut DeviceTensors::new()).unwrap()
    };
    let spread = instance("wgsl.attn_split_kv_fused");
    let steps = &spread.plan().steps;
    if steps.iter().any(|step| step.kernel.name() != "attn_split_kv_fused") {
        return false;
    }
    assert!(steps[0].grid[2].as_const().unwrap() > 4, "{}", spread.plan().outline());
    let counters = spread.plan().tensors.iter().filter(|t| t.role == TensorRole::Counters);
    assert_eq!(counters.count(), 2);
    assert!(spread.plan().slots.contains(&SlotRole::Counters));
    let one = instance("catalogue.attn_decode");
    for (run, past) in (0..).zip(RUNS) {
        let read = |instance: &Instance| {
            let [k, v] = [1, 2].map(|i| numbers(KEYS * 128, 10 * run + i));
            let symbols = SymbolValues::new().with(PAST, past);
            let inputs = vec![numbers(256, run), k, v];
            let bytes = instance.read(symbols, inputs).unwrap().remove(0);
            let floats = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
            floats.collect::<Vec<f32>>()
        };
        for (i, (got, want)) in read(&spread).iter().zip(read(&one)).enumerate() {
            assert!((got - want).abs() <= 1e-5, "{label}, run {run}, {i}: {got}, not {want}");
        }
    }
    true
}

#[test]
fn the_last_workgroup_is_determined_anew_in_each_run() {
    let checked = Runtime::on(Checked::with_library_and_matrices(), SyncMode::Lazy, None).unwrap();
    assert!(check("interpreter", &checked), "the kernel does not apply");
    for (label, runtime) in devices::every(false) {
        if check(&label, &runtime) {
            tell(&format!("counters: {label}"));
        }
    }
}

/// In benchmark memory they keep earlier contents unless zeros are written.
#[test]
fn trials_begin_with_words_at_zero() {
    let runtime = Runtime::on(Checked::with_library_and_matrices(), SyncMode::Lazy, None).unwrap();
    let folder = Folder::new("counters");
    runtime.set_tuning(TuneMode::Cached, TuneCache::at(&folder.0));
    let profile = runtime.device().profile();
    let options = runtime.plan_options();
    let class = ShapeClass::new().with(PAST, KEYS - 1, KEYS - 1);
    let tasks = tasks(&graph(), &class, profile, &options).unwrap();
    let patient = TuneOptions { run_limit: Duration::from_secs(60), seconds: 0.0, ..quick() };
    let report = runtime.tune(&tasks[..1], &patient, &mut |_| {}).unwrap();
    let [result] = &report.results[..] else { panic!("{report:?}") };
    assert!(result.measured > 1 && result.unmeasured.is_none(), "{result:?}");
    let tuned = result.tuned.as_ref().unwrap();
    let spread =
        [&tuned.engine, &tuned.against].iter().any(|id| id.as_str() == "wgsl.attn_split_kv_fused");
    assert!(spread, "{result:?}");
    let wrong = result.dropped.iter().filter(|dropped| dropped.why.starts_with("wrong"));
    assert_eq!(wrong.count(), 0, "{result:?}");
}
