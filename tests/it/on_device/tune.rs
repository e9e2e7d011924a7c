//! The tuner: slow, wrong, broken and hanging candidates lose to a correct and fast one; the next
//! plan uses the results, and a second start searches nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warploom::engine::{
    Cost, Engine, EngineId, Knob, KnobValues, Lowering, OTHER_OPERATION, Query, StepBinding, Tuned,
    TunedChoices,
};
use warploom::graph::{Graph, Op, UnaryOp};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::plan::{Plan, Task, tasks};
use warploom::provider::{DeviceKind, NullProvider, OpenOptions, Provider, Word};
use warploom::runtime::{
    RunOptions, Runtime, TuneCache, TuneMode, TuneOptions, TuneReport, run_graph,
};
use warploom::{Error, Result, cpu};
use warploom_core::base::platform::block_on;
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, SymbolValues};
use warploom_llm::{Output, Session, StepRequest};
use warploom_testkit::faults::{DeviceFault, FaultyProvider};
use warploom_testkit::{self, Outcome, run_case};

use crate::tune_cache::Folder;
use crate::{devices, tell};

/// The fault of an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Does much more work than necessary.
    Slow,
    /// Adds one too many to each element.
    Wrong,
    /// Its kernel does not compile.
    Broken,
    /// One run exceeds the time limit.
    Long,
    /// The process ends when it is tried.
    Fatal,
}

/// `-x` of 64 numbers, by a separate kernel.
pub(crate) struct Neg {
    id: EngineId,
    fault: Fault,
    version: u32,
}

const WGSL: &str = "
struct Params { n: u32, x_offset: u32, y_offset: u32, rounds: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn neg(@builtin(global_invocation_id) id: vec3<u32>) {
    // Groups beyond the first do the same again.
    let at = id.x % 64u;
    if (at < params.n) {
        let v = x[params.x_offset + at];
        var work = v;
        for (var i = 0u; i < params.rounds; i++) {
            work = fract(work * 0.7 + v);
        }
        // Never: but no compiler knows that the work is for nothing.
        y[params.y_offset + at] = select(MORE - v, work, params.rounds > 0u && work > 2.0);
    }
}
";

impl Neg {
    pub(crate) fn new(name: &'static str, fault: Fault) -> Arc<Neg> {
        Arc::new(Neg { id: EngineId::new(name), fault, version: 1 })
    }

    /// Steps of each thread, and workgroups: a long run takes about a second, more than the 0.4 s
    /// of [`quick`]. Lavapipe ends a thread's loops after 65,536 steps.
    fn work(&self, query: &Query) -> (u32, u32) {
        let units = query.profile.compute_units.max(2);
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2) as u32);
        let (steps, groups) = match query.profile.kind {
            DeviceKind::Cpu => (200, 2500 * units),
            DeviceKind::Software if query.profile.provider == "opencl" => (2000, 800 * units),
            DeviceKind::Software => (60_000, 500 * threads),
            _ if self.fault != Fault::Long => (1_000_000, 1),
            _ if query.profile.compute_units > 0 => (4_000_000, 200 * units),
            _ => (4_000_000, 24_000),
        };
        match self.fault {
            Fault::Slow => (steps, 1),
            Fault::Long => (steps, groups),
            _ => (0, 1),
        }
    }
}

impl Engine for Neg {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match (query.op, query.operands) {
            (Op::Unary(UnaryOp::Neg), [x])
                if x.format == Format::F32 && x.shape.elements().is(64) =>
            {
                Ok(())
            }
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn knobs(&self, _query: &Query) -> Vec<Knob> {
        vec![Knob::new("unused", "nothing", [1, 2, 4], 1)]
    }

    /// The slow one has the best estimate, then those with faults.
    fn cost(&self, query: &Query) -> Cost {
        let dispatches = match self.fault {
            Fault::Slow => 1e-6,
            Fault::None => 1e-2,
            _ => 1e-4,
        };
        Cost { bytes: query.total_bytes(), flops: 1.0, dispatches, efficiency: 1.0 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        // In the child process of a test; see `tune_cache`.
        if self.fault == Fault::Fatal && std::env::var(crate::tune_cache::CHILD).is_ok() {
            std::process::abort();
        }
        let (x, y) = (&query.operands[0], query.output);
        let more = match self.fault {
            Fault::Wrong => "1.0",
            Fault::Broken => "no_such_function()",
            _ => "0.0",
        };
        let kernel = KernelSpec::Source(SourceSpec {
            name: "acme_neg".into(),
            wgsl: format!("// {}\n{}", self.id, WGSL.replace("MORE", more)),
            entry: "neg".into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        let elements = y.shape.elements();
        let params = vec![
            Word::dim(&elements)?,
            Word::dim(&x.layout.offset)?,
            Word::dim(&y.layout.offset)?,
            Word::Bits(self.work(query).0),
        ];
        let bindings = [(x.tensor, Access::Read), (y.tensor, Access::ReadWrite)];
        let bindings =
            bindings.map(|(tensor, access)| StepBinding { tensor, offset: 0, bytes: None, access });
        let grid = [Dim::from(self.work(query).1), Dim::new(1), Dim::new(1)];
        out.step(kernel, params, bindings.into_iter().collect(), grid)
    }
}

/// `y = -x` of 64 numbers.
pub(crate) fn negation() -> Graph {
    let mut graph = Graph::new("negation");
    let x = graph.input("x", Shape::new([64i64]), DType::F32);
    let y = graph.add(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
    graph.output("y", y).unwrap();
    graph
}

pub(crate) fn quick() -> TuneOptions {
    TuneOptions {
        seconds: 10.0,
        rounds: 5,
        warm_up: Duration::ZERO,
        rotate_bytes: 0,
        // Less would be taken for slow by the machine's other work.
        run_limit: Duration::from_millis(400),
        ..TuneOptions::default()
    }
}

pub(crate) fn found(runtime: &Runtime, graph: &Graph) -> Vec<Task> {
    let profile = runtime.device().profile();
    tasks(graph, &ShapeClass::new(), profile, &runtime.plan_options()).unwrap()
}

pub(crate) fn tuned(runtime: &Runtime, graph: &Graph, options: &TuneOptions) -> TuneReport {
    runtime.tune(&found(runtime, graph), options, &mut |_| {}).unwrap()
}

fn plan(runtime: &Runtime, graph: &Graph) -> Plan {
    let profile = runtime.device().profile();
    Plan::new(graph, &ShapeClass::new(), profile, &runtime.plan_options()).unwrap()
}

fn crowd(runtime: &mut Runtime) {
    for (name, fault) in [
        ("acme.slow", Fault::Slow),
        ("acme.wrong", Fault::Wrong),
        ("acme.broken", Fault::Broken),
        ("acme.long", Fault::Long),
        ("acme.right", Fault::None),
    ] {
        runtime.registry_mut().unwrap().add(Neg::new(name, fault)).unwrap();
    }
}

/// Held by tests that keep a device busy for seconds: concurrent tests would be slow too.
static LONG: Mutex<()> = Mutex::new(());

#[test]
fn the_fastest_that_is_right_wins_and_a_second_start_searches_nothing() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let graph = negation();
    for (label, mut runtime) in devices::every(false) {
        let folder = Folder::new("wins");
        runtime.set_tuning(TuneMode::Cached, TuneCache::at(&folder.0));
        crowd(&mut runtime);
        let before = plan(&runtime, &graph);
        assert_eq!(before.choices[0].engine, Some(EngineId::new("acme.slow")), "{label}");

        let report = tuned(&runtime, &graph, &quick());
        let [result] = &report.results[..] else { panic!("{label}: {report:?}") };
        let Some(best) = &result.tuned else { panic!("{label}: {result:?}") };
        assert!(
            ["acme.right", "fused.elementwise"].contains(&best.engine.as_str()),
            "{label}: {result:?}"
        );
        assert_eq!(best.against, EngineId::new("acme.slow"), "{label}");
        assert!(result.ratio < 0.5 && best.seconds < best.against_seconds, "{label}: {result:?}");
        let why = |name: &str| {
            let dropped = result.dropped.iter().find(|d| d.engine.as_str() == name);
            dropped.map(|d| d.why.clone()).unwrap_or_else(|| panic!("{label}: {result:?}"))
        };
        assert!(why("acme.wrong").starts_with("wrong: "), "{label}: {result:?}");
        assert!(why("acme.broken").contains("no_such_function"), "{label}: {}", why("acme.broken"));
        assert!(why("acme.long").contains("one run takes"), "{label}: {}", why("acme.long"));
        tell(&format!("tune: {label}: {}", best.why()));

        // The plan uses it, reports it, and its results are right.
        let after = plan(&runtime, &graph);
        assert_eq!(after.choices[0].tuned.as_ref(), Some(best), "{label}");
        assert!(after.explain().contains("tuned: "), "{label}: {}", after.explain());
        let numbers: Vec<f32> = (0..64).map(|i| i as f32 - 7.5).collect();
        let bytes = |sign: f32| numbers.iter().flat_map(|x| (sign * x).to_le_bytes()).collect();
        let inputs = [("x".to_string(), bytes(1.0))].into();
        let options = RunOptions { guard: true, ..RunOptions::default() };
        let outputs = run_graph(&runtime, &graph, &SymbolValues::new(), &inputs, &options);
        let expected: Vec<u8> = bytes(-1.0);
        assert_eq!(outputs.unwrap()["y"], expected, "{label}");

        // A second start knows it all; one that forgot does not.
        let id = runtime.device().profile().id();
        let start = |mode| {
            let builder = Runtime::builder().device(&id).tune(mode);
            let mut runtime = builder.tune_cache(TuneCache::at(&folder.0)).build().unwrap();
            crowd(&mut runtime);
            runtime
        };
        let second = start(TuneMode::Cached);
        let report = tuned(&second, &graph, &quick());
        assert_eq!((report.known, report.measured, report.results.len()), (1, 0, 0), "{label}");
        assert_eq!(plan(&second, &graph).choices[0].tuned.as_ref(), Some(best), "{label}");
        assert!(second.startup_line().contains(" tuned=1"), "{}", second.startup_line());
        let off = start(TuneMode::Off);
        assert_eq!(plan(&off, &graph).choices[0].tuned, None, "{label}");
        let device = second.tuned().device.clone();
        assert!(TuneCache::at(&folder.0).forget(&device).unwrap());
        assert_eq!(plan(&start(TuneMode::Cached), &graph).choices[0].tuned, None, "{label}");
    }
}

#[test]
fn a_device_that_does_not_answer_ends_the_search_and_is_asked_no_more() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let graph = negation();
    for (label, mut runtime) in devices::every(false) {
        let folder = Folder::new("hangs");
        runtime.set_tuning(TuneMode::Cached, TuneCache::at(&folder.0));
        for (name, fault) in [("acme.right", Fault::None), ("acme.long", Fault::Long)] {
            runtime.registry_mut().unwrap().add(Neg::new(name, fault)).unwrap();
        }
        let options = TuneOptions { hang_limit: Duration::from_millis(50), ..quick() };
        let report = tuned(&runtime, &graph, &options);
        let stopped = report.stopped.unwrap_or_else(|| panic!("{label}: nothing stopped it"));
        assert!(stopped.contains("has not answered for 50ms"), "{label}: {stopped}");
        // The next search leaves it out, and ends.
        let report = tuned(&runtime, &graph, &quick());
        let [result] = &report.results[..] else { panic!("{label}: {report:?}") };
        let dropped = result.dropped.iter().find(|d| d.engine.as_str() == "acme.long").unwrap();
        assert!(dropped.why.contains("never came back"), "{label}: {}", dropped.why);
        assert!(result.tuned.is_some(), "{label}");
    }
}

/// Results are right for any tuned choice: engines of other operations, foreign knobs, values out
/// of range, older versions.
#[test]
fn no_choice_makes_a_plan_wrong() {
    let cases = warploom_testkit::cases();
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    for (label, runtime) in devices::every(false) {
        let registry = runtime.registry().clone();
        let profile = runtime.device().profile();
        let step = devices::sample(profile, 24).max(devices::sample_software(profile, 7)).max(3);
        let (mut taken, mut refused) = (0, 0);
        for case in cases.iter().step_by(step) {
            let (class, profile) = (ShapeClass::exact(&case.symbols), runtime.device().profile());
            let Ok(tasks) = tasks(&case.graph, &class, profile, &runtime.plan_options()) else {
                continue;
            };
            let mut choices = TunedChoices::new(runtime.tuned().device.clone());
            for task in &tasks {
                let any = registry.engines()[random(registry.engines().len())].id().clone();
                let engine = match random(4) {
                    0 => any,
                    _ => task.engines[random(task.engines.len())].clone(),
                };
                let mut knobs = KnobValues::default();
                for knob in task.knobs(&registry, &engine, KnobValues::NONE) {
                    let value = match random(8) {
                        0 => random(300) as u32,
                        _ => knob.values[random(knob.values.len())],
                    };
                    knobs = knobs.with(knob.name, value);
                }
                let version = u32::from(random(10) > 0);
                choices.choices.insert(task.key.clone(), entry(engine, version, knobs));
            }
            runtime.set_tuned(choices);
            if let Ok(plan) = Plan::new(&case.graph, &class, profile, &runtime.plan_options()) {
                let own = plan.choices.iter().filter(|c| c.tuned.is_some()).count();
                (taken, refused) = (taken + own, refused + tasks.len().saturating_sub(own));
            }
            let case = case.on(runtime.device().profile());
            let outcome = run_case(&case, &|graph, symbols, bytes| {
                let options = RunOptions { guard: true, ..RunOptions::default() };
                run_graph(&runtime, graph, symbols, bytes, &options)
            });
            if let Outcome::Fail(why) = outcome {
                panic!("{label}: {why}\n{:?}", runtime.tuned());
            }
        }
        tell(&format!("tune: {label}: {taken} choices taken, {refused} refused, all right"));
        assert!(taken > 10 && refused > 0, "{label}: {taken} taken, {refused} refused");
    }
}

pub(crate) fn entry(engine: EngineId, engine_version: u32, knobs: KnobValues) -> Tuned {
    let against = engine.clone();
    Tuned { engine, engine_version, knobs, seconds: 1e-6, against, against_seconds: 2e-6 }
}

/// A search over cases of the table: no built-in engine is wrong, and plans with its results are
/// right.
#[test]
fn what_a_search_finds_is_right() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let options = TuneOptions { seconds: 0.0, rounds: 5, engines: 4, candidates: 6, ..quick() };
    let families = [
        "linear/",
        "attention/",
        "rms_norm/",
        "softmax/",
        "reduce/",
        "gather/",
        "matmul/",
        "int8/",
    ];
    let cases = warploom_testkit::cases();
    for (label, runtime) in devices::every(false) {
        let (mut measured, mut faster) = (0, 0);
        let each = 4 * devices::sample(runtime.device().profile(), 16);
        for family in families {
            let of = cases.iter().filter(|case| case.name.starts_with(family));
            for case in of.step_by(each * 4).take(4) {
                let (class, profile) =
                    (ShapeClass::exact(&case.symbols), runtime.device().profile());
                let Ok(tasks) = tasks(&case.graph, &class, profile, &runtime.plan_options()) else {
                    continue;
                };
                let report = runtime.tune(&tasks, &options, &mut |_| {}).unwrap();
                assert_eq!(report.stopped, None, "{label}: {}", case.name);
                for result in &report.results {
                    let wrong = result.dropped.iter().find(|d| d.why.starts_with("wrong"));
                    assert!(wrong.is_none(), "{label}: {}: {wrong:?}", case.name);
                    measured += result.measured;
                    faster += usize::from(result.ratio < 1.0);
                }
                let outcome = run_case(case, &|graph, symbols, bytes| {
                    let options = RunOptions::default();
                    run_graph(&runtime, graph, symbols, bytes, &options)
                });
                assert!(!matches!(outcome, Outcome::Fail(_)), "{label}: {outcome:?}");
            }
        }
        tell(&format!("tune: {label}: {measured} candidates measured, {faster} tasks got faster"));
        assert!(measured > 10, "{label}: {measured}");
    }
}

#[test]
fn a_device_that_executes_nothing_cannot_be_tuned() {
    let runtime = Runtime::builder().device("null").build().unwrap();
    let error: Error = runtime.tune(&[], &quick(), &mut |_| {}).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("null:0"), "{error}");
}

/// A searching session measures missing tasks before its first run, and writes the same text.
#[test]
fn a_session_that_searches_does_so_once() {
    let model = crate::plans::embedded();
    let folder = Folder::new("session");
    let start = |mode| {
        let builder = Runtime::builder().device("cpu").tune(mode);
        Arc::new(builder.tune_cache(TuneCache::at(&folder.0)).build().unwrap())
    };
    let logits = |runtime: &Runtime| {
        let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(32);
        let mut session = builder.build().unwrap();
        session.step(StepRequest::tokens(0, &[1], Output::Logits)).unwrap().into_logits()
    };
    let off = logits(&start(TuneMode::Off));
    let first = start(TuneMode::Search);
    assert!(first.tuned().choices.is_empty());
    let searched = logits(&first);
    let found = first.tuned().choices.len();
    assert!(found > 2, "{found} tasks");
    let second = start(TuneMode::Search);
    assert_eq!(second.tuned().choices, first.tuned().choices);
    let compiles = second.device().counters().submits;
    let again = logits(&second);
    assert!(second.device().counters().submits - compiles < 5, "it searches again");
    assert_eq!(searched, again);
    for (a, b) in off.iter().zip(&searched) {
        assert!((a - b).abs() <= 1e-2 * a.abs().max(1.0), "{a} {b}");
    }
}

/// One candidate on two devices: timed alternately, and the second must give the results of the
/// first.
#[test]
fn a_way_is_compared_on_two_devices() {
    let open = |provider: &dyn Provider| {
        let device = block_on(provider.open(0, OpenOptions::default())).unwrap();
        Runtime::on(device, warploom::runtime::SyncMode::Lazy, None).unwrap()
    };
    let graph = negation();
    let mut first = open(&cpu::Provider);
    // With one engine and no knobs there is no task.
    first.registry_mut().unwrap().add(Neg::new("acme.right", Fault::None)).unwrap();
    let task = &found(&first, &graph)[0];
    let way = (task.engines[0].clone(), KnobValues::default());
    let compare = |other: &Runtime| first.compare_on(other, task, &way, 3, &quick());
    let same = compare(&open(&cpu::Provider)).unwrap();
    for timing in &same {
        assert!(timing.wrong.is_none(), "{timing:?}");
        assert!(timing.rounds.len() == 3 && timing.rounds.iter().flatten().all(|s| *s > 0.0));
    }
    let faulty = FaultyProvider::new(Arc::new(cpu::Provider), DeviceFault::KernelLeftOut);
    let wrong = compare(&open(&faulty)).unwrap();
    assert!(wrong[0].wrong.is_none(), "{wrong:?}");
    let why = wrong[1].wrong.as_ref().unwrap();
    assert!(why.contains("element 0 is NaN"), "{why}");
    let error = compare(&open(&NullProvider)).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("null:0"), "{error}");
}
