//! The conformance suite finds planted faults, one at a time, and reports case, element and both
//! values.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use warploom::engine::{Cost, Engine, EngineId, Lowering, Query};
use warploom::provider::{Device, DeviceProfile, OpenOptions, Provider};
use warploom::runtime::Runtime;
use warploom::{Error, Result};
use warploom_core::base::platform::BoxFuture;
use warploom_testkit::conformance::{ConformanceProgress, Problem, Verdict};
use warploom_testkit::faults::{DeviceFault, EngineFault, FaultyEngine, FaultyProvider};
use warploom_testkit::{self, Case, Conformance, KnownFailure, Tolerance};

/// The suite on a part of the table, which is slow to build.
fn small() -> Conformance {
    static TABLE: OnceLock<Vec<Case>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let few = |case: &Case| {
            let name = &case.name;
            name.starts_with("softmax/n") || name.starts_with("rms_norm/") && !name.contains("many")
        };
        warploom_testkit::cases().into_iter().filter(few).collect()
    });
    Conformance::new().cases(table.clone())
}

fn softmax() -> Conformance {
    small().only("softmax/")
}

#[test]
fn every_fault_of_a_device_is_found() {
    softmax().run_provider(&warploom_cpu::Provider).unwrap().assert_passed();
    for fault in DeviceFault::ALL {
        let broken = FaultyProvider::new(Arc::new(warploom_cpu::Provider), fault);
        let report = softmax().run_provider(&broken).unwrap();
        let [device] = &report.devices[..] else { panic!("{report}") };
        let (row, failure) = device.failures().next().unwrap_or_else(|| panic!("{fault:?} passed"));
        let said = failure.to_string();
        match fault {
            DeviceFault::PastTheEnd => assert!(said.contains("wrote outside buffer"), "{said}"),
            DeviceFault::NotANumber | DeviceFault::KernelLeftOut => {
                assert!(failure.got.is_some_and(f64::is_nan) && failure.index.is_some(), "{said}");
            }
            _ => assert!(failure.index.is_some() && failure.got != failure.expected, "{said}"),
        }
        assert!(said.starts_with(&row.case), "{said}");
        assert!(report.to_string().contains(&said), "{report}");
    }
}

#[test]
fn every_fault_of_an_engine_is_found() {
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let inner = || runtime.registry().get(&EngineId::new("catalogue.norm_rms")).unwrap().clone();
    let right = inner().id().clone();
    let report = small().registered(right).only("rms_norm/").run(&runtime).unwrap();
    report.assert_passed();
    for fault in EngineFault::ALL {
        let broken = Arc::new(FaultyEngine::new(inner(), fault));
        let mut suite = small().engine(broken).only("rms_norm/");
        let report = suite.run(&runtime).unwrap();
        let [device] = &report.devices[..] else { panic!("{report}") };
        assert!(device.engines[0].cases > 2, "{report}");
        let (row, _) = device.failures().next().unwrap_or_else(|| panic!("{fault:?} passed"));
        assert_eq!(row.engine.as_ref().unwrap().as_str(), "faulty.catalogue.norm_rms");
        assert!(report.wrong()[0].contains("faulty.catalogue.norm_rms forced"), "{report}");
    }
}

/// A wrapper reports version and order of its engine; without them deterministic mode excludes it.
#[test]
fn a_faulty_engine_is_found_in_deterministic_mode_in_the_version_of_the_other() {
    let builder = Runtime::builder().device("cpu").trusting(true).deterministic(true);
    let runtime = builder.build().unwrap();
    let norm = EngineId::new("catalogue.norm_rms");
    let inner = runtime.registry().get(&norm).unwrap().clone();
    let broken = FaultyEngine::new(inner.clone(), EngineFault::WrongElement);
    let report = small().engine(Arc::new(broken)).only("rms_norm/2x").run(&runtime).unwrap();
    assert_eq!(report.devices[0].engines[0].cases, 2, "{report}");
    assert!(report.devices[0].failures().count() > 1, "{report}");
    let later = FaultyEngine::new(Arc::new(Later(inner)), EngineFault::WrongElement);
    assert_eq!((later.version(), later.id().as_str()), (7, "faulty.catalogue.norm_rms"));
}

/// Version 7 of an engine.
struct Later(Arc<dyn Engine>);

impl Engine for Later {
    fn id(&self) -> &EngineId {
        self.0.id()
    }

    fn version(&self) -> u32 {
        7
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        self.0.applies(query)
    }

    fn cost(&self, query: &Query) -> Cost {
        self.0.cost(query)
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        self.0.lower(query, out)
    }
}

/// An engine that no case reaches, or that refuses all, has not passed.
#[test]
fn an_engine_that_is_used_nowhere_fails_with_its_reasons() {
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let plain = EngineId::new("catalogue.softmax.subgroup");
    let report = softmax().registered(plain).run(&runtime).unwrap();
    let wrong = report.wrong();
    let [wrong] = &wrong[..] else { panic!("{wrong:?}") };
    assert!(wrong.contains("catalogue.softmax.subgroup was used in no case; "), "{wrong}");
    assert!(!report.devices[0].engines[0].refused.is_empty() && !report.passed());
    let norm = EngineId::new("catalogue.norm_rms");
    let report = softmax().registered(norm).run(&runtime).unwrap();
    assert!(report.wrong()[0].ends_with("catalogue.norm_rms was used in no case"), "{report}");
}

/// Nor does one that is wrong everywhere, even if the failure is declared.
#[test]
fn an_engine_that_is_known_to_fail_is_used_nowhere() {
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let norm = EngineId::new("catalogue.norm_rms");
    let inner = runtime.registry().get(&norm).unwrap().clone();
    let used = |case: &'static str| {
        let known = KnownFailure { device: "", driver: "", case, reason: "on purpose" };
        let broken = Arc::new(FaultyEngine::new(inner.clone(), EngineFault::NotANumber));
        let mut suite = small().engine(broken).only("rms_norm/2x").known_failures(&[known]);
        suite.run(&runtime).unwrap()
    };
    let report = used("rms_norm/2x");
    assert_eq!(report.devices[0].engines[0].cases, 0, "{report}");
    let wrong = report.wrong();
    let [wrong] = &wrong[..] else { panic!("{wrong:?}") };
    let reported = "faulty.catalogue.norm_rms was used in no case";
    assert!(wrong.contains(reported) && wrong.contains("known to fail: on purpose"), "{wrong}");

    let report = used("rms_norm/2x31");
    assert_eq!((report.devices[0].cases, report.devices[0].engines[0].cases), (2, 1), "{report}");
}

#[test]
fn a_progress_callback_also_runs_after_an_error() {
    let norm = EngineId::new("catalogue.norm_rms");
    let plain = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let inner = plain.registry().get(&norm).unwrap().clone();
    let mine = || Arc::new(FaultyEngine::new(inner.clone(), EngineFault::NotANumber));
    let builder = Runtime::builder().device("cpu").trusting(true).engine(mine());
    let taken = builder.build().unwrap();
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let reported = seen.clone();
    let count = move |_: ConformanceProgress<'_>| {
        reported.fetch_add(1, Ordering::Relaxed);
    };
    let mut suite = small().only("rms_norm/").engine(mine()).progress(count);
    let error = suite.run(&taken).unwrap_err();
    assert!(error.to_string().contains("is already registered"), "{error}");
    let report = suite.run(&plain).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), report.devices[0].cases);
}

#[test]
fn wishes_are_held_to() {
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let all = softmax().run(&runtime).unwrap().devices.remove(0).cases;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let reported = seen.clone();
    let mut suite = softmax().sample(2).progress(move |next| {
        reported.lock().unwrap().push((next.case.to_string(), next.done, next.total));
    });
    let some = suite.run(&runtime).unwrap().devices.remove(0);
    assert_eq!(some.cases, all.div_ceil(2));
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen[0].1, seen[0].2), (some.cases, 0, some.cases));
    assert!(seen.iter().all(|(case, ..)| case.starts_with("softmax/")));

    let error = small().only("no such/").run(&runtime).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("\"no such/\""), "{error}");
    let error = softmax().registered(EngineId::new("no.such")).run(&runtime).unwrap_err();
    assert!(error.to_string().contains("no engine no.such is"), "{error}");
    let there = runtime.registry().engines()[0].clone();
    let error = softmax().engine(there).run(&runtime).unwrap_err();
    assert!(error.to_string().contains("is already registered"), "{error}");
}

#[test]
fn declarations_and_tolerances_are_reported() {
    let broken =
        || FaultyProvider::new(Arc::new(warploom_cpu::Provider), DeviceFault::WrongElement);
    let known = KnownFailure { device: "", driver: "", case: "softmax/", reason: "on purpose" };
    let report = softmax().known_failures(&[known]).run_provider(&broken()).unwrap();
    let rows = &report.devices[0].rows;
    let declared = rows.iter().filter(|row| matches!(row.verdict, Verdict::KnownToFail { .. }));
    assert!(declared.count() > 3, "{report}");
    // Nothing passed, which is not a success even if it is declared.
    assert!(report.wrong()[0].contains("with numbers in it passed"), "{report}");
    let report = softmax().known_failures(&[known]).run_provider(&warploom_cpu::Provider).unwrap();
    assert!(report.wrong()[0].contains("is declared to fail: on purpose"), "{report}");

    let anything = Tolerance { atol: 1e39, rtol: 0.0, eps_count: 0.0, nmse: 1e90 };
    let mut suite = softmax().tolerance("softmax/", anything, "a test");
    let report = suite.run_provider(&broken()).unwrap();
    let rows = &report.devices[0].rows;
    assert!(rows.iter().all(|row| row.note == "a test") && report.devices[0].passed() > 3);
    let json = report.to_json();
    assert_eq!(json["devices"][0]["rows"][0]["note"], "a test");
    assert_eq!(json["devices"][0]["rows"][0]["sizes"], "exact");
}

/// A provider without devices, or with one that does not open.
struct Hollow(Vec<DeviceProfile>);

impl Provider for Hollow {
    fn name(&self) -> &'static str {
        "hollow"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        warploom_core::base::platform::ready(Ok(self.0.clone()))
    }

    fn absence(&self) -> Option<String> {
        Some("there is no libhollow.so".into())
    }

    fn open(&self, _index: usize, _: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        warploom_core::base::platform::ready(Err(Error::device("it is asleep")))
    }
}

#[test]
fn a_provider_without_devices_has_not_passed() {
    let report = softmax().run_provider(&Hollow(Vec::new())).unwrap();
    assert_eq!(report.wrong(), ["the provider lists no device: there is no libhollow.so"]);
    let report = softmax().run_provider(&Hollow(vec![DeviceProfile::webgpu_floor("x")])).unwrap();
    let [Problem::NotOpened { device, why }] = &report.problems[..] else { panic!("{report}") };
    assert!(device == "webgpu:0" && why.contains("asleep") && !report.passed(), "{report}");
    // The device that executes nothing is not an exception.
    let report = softmax().run_provider(&warploom::provider::NullProvider).unwrap();
    assert!(
        report.devices[0].passed() == 0 && report.devices[0].failures().count() > 3,
        "{report}"
    );
}
