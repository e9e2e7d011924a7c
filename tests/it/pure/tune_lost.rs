//! The tuner on devices that panic, hang or are lost during a search: it ends or continues, keeps
//! its results, and does not repeat the cause. Also tasks that cannot be measured.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warploom::engine::EngineId;
use warploom::graph::{Graph, Op, UnaryOp};
use warploom::kernel::KernelSpec;
use warploom::plan::Task;
use warploom::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Provider, Recording, Resource, Ticket, Usage,
};
use warploom::runtime::{Runtime, SyncMode, TuneCache, TuneMode, TuneOptions, TuneReport};
use warploom::{Error, Result};
use warploom_core::base::platform::{BoxFuture, block_on};
use warploom_core::base::{DType, Shape};

use crate::tune::{Fault, Neg, found, negation, quick, tuned};
use crate::tune_cache::Folder;

/// How a device misbehaves on a kernel of `acme.bad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Its compiler panics.
    PanicsCompiling,
    /// Running it panics.
    PanicsRunning,
    /// The device is lost in the n-th run of it.
    LostRunning(usize),
    /// Its compilation never ends.
    StuckCompiling,
    /// The same, and it causes the loss of the device.
    LostCompiling,
}

/// The CPU with a fault.
struct Moody {
    inner: Arc<dyn Device>,
    mood: Mood,
    /// Whether the fault is active.
    awake: Arc<AtomicBool>,
    lost: AtomicBool,
    runs: AtomicUsize,
    bad: Mutex<HashSet<PreparedId>>,
}

fn is_bad(spec: &KernelSpec) -> bool {
    matches!(spec, KernelSpec::Source(source) if source.wgsl.contains("acme.bad"))
}

impl Moody {
    fn ask(&self) -> Result<()> {
        match self.lost.load(Ordering::Relaxed) {
            true => Err(Error::device_lost("the driver was reset")),
            false => Ok(()),
        }
    }

    fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
    }
}

impl Device for Moody {
    fn profile(&self) -> &DeviceProfile {
        self.inner.profile()
    }

    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        if self.is_awake() && is_bad(spec) {
            match self.mood {
                Mood::PanicsCompiling => panic!("the compiler has {} bugs", 2),
                Mood::StuckCompiling | Mood::LostCompiling => {
                    self.lost.store(self.mood == Mood::LostCompiling, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_secs(2));
                }
                _ => {}
            }
        }
        self.inner.compile(spec)
    }

    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.ask()?;
        self.inner.alloc(bytes, usage)
    }

    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.ask()?;
        self.inner.write(to, bytes)
    }

    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        self.ask()?;
        let prepared = self.inner.prepare(work, slots)?;
        if work.kernels.iter().any(is_bad) {
            self.bad.lock().unwrap().insert(prepared);
        }
        Ok(prepared)
    }

    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        let is_bad = work.iter().any(|(id, _)| self.bad.lock().unwrap().contains(id));
        if is_bad && self.is_awake() {
            let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(self.mood != Mood::PanicsRunning, "the queue is no more");
            if self.mood == Mood::LostRunning(run) {
                self.lost.store(true, Ordering::Relaxed);
            }
        }
        self.ask()?;
        self.inner.submit(work)
    }

    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        self.inner.wait(ticket)
    }

    fn free(&self, what: Resource) {
        if let Resource::Prepared(prepared) = &what {
            self.bad.lock().unwrap().remove(prepared);
        }
        self.inner.free(what);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// A runtime on the CPU with a fault, and the switch that activates it. `acme.slow` has the best
/// estimate.
fn moody(mood: Mood, folder: &Folder) -> (Runtime, Arc<AtomicBool>) {
    let open = warploom_cpu::Provider.open(0, OpenOptions::default());
    let (inner, awake) = (block_on(open).unwrap(), Arc::new(AtomicBool::new(false)));
    let (lost, runs, bad) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::default());
    let device = Moody { inner, mood, awake: awake.clone(), lost, runs, bad };
    let mut runtime = Runtime::on(Arc::new(device), SyncMode::Lazy, None).unwrap();
    runtime.set_tuning(TuneMode::Cached, TuneCache::at(&folder.0));
    for (name, fault) in [("acme.slow", Fault::Slow), ("acme.bad", Fault::None)] {
        runtime.registry_mut().unwrap().add(Neg::new(name, fault)).unwrap();
    }
    (runtime, awake)
}

/// Two tasks, and the key of the second.
fn two(runtime: &Runtime) -> Vec<Task> {
    let mut graph = Graph::new("another");
    let x = graph.input("x", Shape::new([8i64, 8]), DType::F32);
    let y = graph.add(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
    graph.output("y", y).unwrap();
    let tasks = [found(runtime, &negation()), found(runtime, &graph)].concat();
    assert_eq!(tasks.len(), 2);
    assert_ne!(tasks[0].key, tasks[1].key);
    tasks
}

/// A search of two tasks, with the fault in the second.
fn search(mood: Mood, folder: &Folder, options: &TuneOptions) -> (Runtime, TuneReport) {
    let (runtime, awake) = moody(mood, folder);
    let tasks = two(&runtime);
    let mut wake = |at: &warploom::runtime::TuneProgress| {
        awake.fetch_or(at.done == 1, Ordering::Relaxed);
    };
    let report = runtime.tune(&tasks, options, &mut wake).unwrap();
    (runtime, report)
}

/// Why `acme.bad` was eliminated from the last task.
fn why(report: &TuneReport) -> Option<&str> {
    let dropped = report.results.last()?.dropped.iter();
    let mut dropped = dropped.filter(|dropped| dropped.engine.as_str() == "acme.bad");
    dropped.next().map(|dropped| dropped.why.as_str())
}

#[test]
fn a_panic_puts_the_candidate_out_and_the_search_goes_on() {
    for (mood, reported) in [
        (
            Mood::PanicsCompiling,
            "while it was compiled, there was a panic: the compiler has 2 bugs",
        ),
        (Mood::PanicsRunning, "while it ran, there was a panic: the queue is no more"),
    ] {
        let folder = Folder::new("panics");
        let (runtime, report) = search(mood, &folder, &quick());
        assert_eq!((report.stopped.as_deref(), why(&report)), (None, Some(reported)), "{report:?}");
        let best = report.results[1].tuned.as_ref().unwrap();
        assert_eq!(best.engine.as_str(), "fused.elementwise", "{mood:?}");
        assert_eq!(runtime.tuned().choices.len(), 2);
    }
}

/// In its first run, and in the third, which is one of the comparison.
#[test]
fn a_device_that_is_lost_ends_the_search_and_what_was_found_stays() {
    for run in [1, 3] {
        let folder = Folder::new("lost");
        let (runtime, report) = search(Mood::LostRunning(run), &folder, &quick());
        let stopped = report.stopped.as_deref().unwrap_or_default();
        assert!(stopped.contains("the driver was reset"), "run {run}: {report:?}");
        assert_eq!((report.results.len(), &report.not_kept), (1, &None), "run {run}");
        assert_eq!(runtime.tuned().choices.len(), 1);
        let device = runtime.tuned().device.clone();
        let record = TuneCache::at(&folder.0).read(&device).unwrap().unwrap();
        assert_eq!(record.tasks.len(), 1);
        let [suspect] = &record.avoid[..] else { panic!("run {run}: {record:?}") };
        assert_eq!(suspect.engine, EngineId::new("acme.bad"), "run {run}");
        assert!(suspect.why.contains("the driver was reset"), "{}", suspect.why);

        // A device that is open again takes the first, and ends the second without it.
        let (_, report) = search(Mood::LostRunning(1), &folder, &quick());
        assert_eq!((report.stopped.as_deref(), report.known), (None, 1), "{report:?}");
        assert!(why(&report).is_some_and(|why| why.contains("never came back")), "{report:?}");
        assert!(report.results[0].tuned.is_some());
    }
}

#[test]
fn what_hangs_is_left_behind_and_blamed_for_a_device_that_is_lost() {
    let limit = Duration::from_millis(200);
    let options = TuneOptions { compile_limit: limit, ..quick() };
    let folder = Folder::new("stuck");
    let (_, report) = search(Mood::StuckCompiling, &folder, &options);
    assert_eq!(report.stopped, None, "the device goes on");
    assert!(why(&report).unwrap().contains("still compiles after 200ms"), "{report:?}");
    assert!(report.results[1].tuned.is_some());

    let folder = Folder::new("stuck-lost");
    let (runtime, report) = search(Mood::LostCompiling, &folder, &options);
    assert!(report.stopped.unwrap().contains("the driver was reset"));
    assert_eq!(report.results.len(), 1);
    let device = runtime.tuned().device.clone();
    let record = TuneCache::at(&folder.0).read(&device).unwrap().unwrap();
    let avoid: Vec<&str> = record.avoid.iter().map(|suspect| suspect.engine.as_str()).collect();
    assert_eq!((record.tasks.len(), avoid), (1, vec!["acme.bad"]), "not what came after it");
}

#[test]
fn a_task_that_cannot_be_measured_is_not_tried_at_each_start() {
    let folder = Folder::new("unmeasured");
    let start = |extra: Option<&'static str>| {
        let mut runtime = Runtime::builder().device("cpu").build().unwrap();
        runtime.set_tuning(TuneMode::Search, TuneCache::at(&folder.0));
        let broken = ["acme.broken", "acme.worse"].into_iter().chain(extra);
        broken.for_each(|name| {
            runtime.registry_mut().unwrap().add(Neg::new(name, Fault::Broken)).unwrap();
        });
        runtime
    };
    // Of the engines that execute it, only those that do not compile.
    let only_broken = |runtime: &Runtime| {
        let mut tasks = found(runtime, &negation());
        tasks.iter_mut().for_each(|t| t.engines.retain(|id| id.as_str().starts_with("acme")));
        tasks
    };
    let search = |runtime: &Runtime, again| {
        let options = TuneOptions { again, ..quick() };
        runtime.tune(&only_broken(runtime), &options, &mut |_| {}).unwrap()
    };
    let first = start(None);
    let report = search(&first, false);
    let [result] = &report.results[..] else { panic!("{report:?}") };
    let reason = result.unmeasured.clone().unwrap();
    assert!(reason.contains("no engine executes it: acme."), "{reason}");
    assert!(reason.contains("no_such_function") && result.tuned.is_none(), "{reason}");
    assert_eq!(result.dropped.len(), 2);
    let record = TuneCache::at(&folder.0).read(&first.tuned().device).unwrap().unwrap();
    let kept = record.unmeasured.values().next().unwrap();
    assert_eq!((&kept.why, kept.engines.len()), (&reason, 2));

    // In this process and the next one nothing is asked of the device.
    for runtime in [first, start(None)] {
        let before = runtime.device().counters().submits;
        let report = search(&runtime, false);
        assert_eq!((report.unmeasured, report.known, report.results.len()), (1, 0, 0));
        assert_eq!(runtime.device().counters().submits, before);
        assert_eq!(search(&runtime, true).results.len(), 1, "it tries again if requested");
    }
    // With another engine it may be another matter.
    assert_eq!(search(&start(Some("acme.more")), false).results.len(), 1);
    // Tasks that were measured later are removed from these.
    let runtime = start(None);
    assert!(tuned(&runtime, &negation(), &quick()).results[0].tuned.is_some());
    let record = TuneCache::at(&folder.0).read(&runtime.tuned().device).unwrap().unwrap();
    assert_eq!((record.tasks.len(), record.unmeasured.len()), (1, 0), "{record:?}");
}
