//! Providers that the caller adds to the built-in ones.

use std::process::Command;
use std::sync::Arc;

use warploom::provider::{Device, DeviceKind, DeviceProfile, OpenOptions, Provider};
use warploom::runtime::{RuntimeBuilder, SyncMode, TuneMode};
use warploom::{Error, Result, Runtime, Tensor};
use warploom_core::base::platform::{BoxFuture, ready};

use crate::interpret_device::Checked;

/// Two devices on the interpreter, with configurable faults.
#[derive(Clone, Default)]
struct Own {
    name: Option<&'static str>,
    /// The provider name of the first profile.
    says: Option<&'static str>,
    /// The provider name of the opened device.
    opens: Option<&'static str>,
    executes_nothing: bool,
    cannot_list: bool,
    /// The device that does not open.
    broken: Option<usize>,
}

impl Provider for Own {
    fn name(&self) -> &'static str {
        self.name.unwrap_or("mine")
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        if self.cannot_list {
            return ready(Err(Error::unsupported("the bus is cold")));
        }
        let mut profiles = [0, 1].map(|i| Checked::of(self.name(), i).profile().clone());
        if let Some(says) = self.says {
            profiles[0].provider = says.into();
        }
        if self.executes_nothing {
            profiles.iter_mut().for_each(|profile| profile.kind = DeviceKind::Null);
        }
        ready(Ok(profiles.into()))
    }

    fn open(&self, index: usize, _: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(match self.broken == Some(index) {
            true => Err(Error::unsupported("the fan stands still")),
            false => Ok(Checked::of(self.opens.unwrap_or(self.name()), index)),
        })
    }
}

fn with(provider: Own) -> RuntimeBuilder {
    Runtime::builder().device("auto").provider(provider)
}

fn selected(builder: RuntimeBuilder) -> String {
    let detection = builder.detect().unwrap();
    let built = builder.build().unwrap();
    assert_eq!(built.device().profile().id(), detection.selected().profile.id());
    built.device().profile().id()
}

/// The error text of a builder that must fail.
fn refused(builder: RuntimeBuilder) -> String {
    let error = builder.build().expect_err("an error");
    error.to_string()
}

#[test]
fn a_provider_of_the_caller_comes_first_and_runs() {
    let runtime = Arc::new(with(Own::default()).build().unwrap());
    let line = runtime.startup_line();
    assert!(line.starts_with("requested=auto detected=[mine:0 \"interpreter\", mine:1 "), "{line}");
    let why = "selected=mine:0 (from a provider of the application)";
    assert!(line.contains(why), "{line}");
    let ids = runtime.detection().devices.iter().map(|d| d.profile.id());
    assert!(ids.collect::<Vec<_>>().contains(&"cpu:0".to_string()), "the others are there still");
    let x = Tensor::from_vec(&runtime, vec![1.0f32, 2.0, 3.0], [3]);
    assert_eq!((x * 2 + 1).to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
    assert!(runtime.device().counters().dispatches > 0);
}

#[test]
fn the_first_of_several_providers_comes_first() {
    let other = Own { name: Some("theirs"), ..Own::default() };
    assert_eq!(selected(with(other.clone()).provider(Own::default())), "theirs:0");
    assert_eq!(selected(with(Own::default()).provider(other)), "mine:0");
}

#[test]
fn its_devices_and_others_are_asked_for_by_name() {
    for (name, id) in [("mine", "mine:0"), ("mine:0", "mine:0"), ("mine:1", "mine:1")] {
        assert_eq!(selected(with(Own::default()).device(name)), id);
    }
    assert_eq!(selected(with(Own::default()).device("cpu")), "cpu:0");
    // No other provider is woken for it.
    for (name, provider) in [("cpu", "cpu"), ("mine:1", "mine")] {
        let runtime = with(Own { cannot_list: name == "cpu", ..Own::default() });
        let runtime = runtime.device(name).build().unwrap();
        let devices = &runtime.detection().devices;
        assert!(devices.iter().all(|d| d.profile.provider == provider), "{devices:?}");
        assert_eq!(runtime.detection().failures, []);
    }
    let error = refused(with(Own::default()).device("mine:2"));
    assert!(error.contains("no device \"mine:2\"; there is mine:0, mine:1, "), "{error}");
    let error = refused(Runtime::builder().device("mine:0"));
    assert!(error.contains("no device \"mine:0\""), "{error}");
}

#[test]
fn what_executes_nothing_is_taken_by_name_only() {
    let null = Own { executes_nothing: true, ..Own::default() };
    assert_ne!(with(null.clone()).detect().unwrap().selected().profile.provider, "mine");
    assert_eq!(selected(with(null).device("mine")), "mine:0");
}

#[test]
fn a_failing_device_is_reported_and_skipped_unless_requested() {
    let first = Own { broken: Some(0), ..Own::default() };
    let runtime = with(first.clone()).build().unwrap();
    let line = runtime.startup_line();
    let reported = " failed=mine:0: opening mine:0: the fan stands still";
    assert!(line.contains("selected=mine:1 (") && line.contains(reported), "{line}");
    for name in ["mine", "mine:0"] {
        let error = refused(with(first.clone()).device(name));
        assert!(error.contains("opening mine:0: the fan stands still"), "{error}");
    }

    let cold = Own { cannot_list: true, ..Own::default() };
    let runtime = with(cold.clone()).build().unwrap();
    assert_ne!(runtime.device().profile().provider, "mine");
    let line = runtime.startup_line();
    assert!(line.contains(" failed=mine: the bus is cold"), "{line}");
    let error = refused(with(cold).device("mine"));
    assert!(error.contains("no device \"mine\"") && error.contains("the bus is cold"), "{error}");
}

#[test]
fn a_device_that_answers_to_another_name_is_a_failure() {
    let says = Own { says: Some("cpu"), ..Own::default() };
    let detection = with(says).detect().unwrap();
    assert_ne!(detection.selected().profile.provider, "mine");
    let message = ("mine".to_string(), "the profile of mine:0 has the id cpu:0".to_string());
    assert!(detection.failures.contains(&message), "{:?}", detection.failures);
    let opens = Own { opens: Some("cuda"), ..Own::default() };
    let error = refused(with(opens).device("mine:1"));
    assert!(error.contains("the device that mine:1 opened has the id cuda:1"), "{error}");
}

#[test]
fn a_name_that_is_taken_or_none_is_refused() {
    let named = |name| Own { name: Some(name), ..Own::default() };
    // The built-in providers, whether or not this build has them.
    for name in ["cuda", "webgpu", "opencl", "cpu", "null"] {
        let error = refused(with(named(name)).device("cpu"));
        assert!(error.contains(&format!("called {name:?}: that is one of warploom")), "{error}");
    }
    let error = refused(with(Own::default()).provider(Arc::new(Own::default())));
    assert!(error.contains("two providers called \"mine\""), "{error}");
    for name in ["", "auto", "mine:0", "../mine", "my own"] {
        let error = refused(with(named(name)));
        assert!(error.contains(&format!("cannot be called {name:?}")), "{error}");
    }
}

const CHILD: &str = "WARPLOOM_TEST_CHILD";

/// Runs a test of this file in a separate process with these variables.
fn in_child(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("pure::custom_providers::{test}"), "--exact", "--nocapture"]);
    let output = command.envs(variables.iter().copied()).env(CHILD, test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}\n{errors}");
}

fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|child| child == test)
}

#[test]
fn its_devices_are_asked_for_by_the_environment() {
    let test = "its_devices_are_asked_for_by_the_environment";
    if !is_child(test) {
        return in_child(test, &[("WARPLOOM_DEVICE", "mine:1")]);
    }
    let named = || Runtime::builder().provider(Own::default());
    assert_eq!(selected(named()), "mine:1");
    assert_eq!(selected(named().device("auto")), "mine:0", "the builder wins");
    let error = refused(Runtime::builder());
    assert!(error.contains("no device \"mine:1\""), "{error}");
}

/// The variables that a builder setting overrides, except for the device's.
const VARIABLES: [&str; 7] = [
    "WARPLOOM_MEMORY_BUDGET",
    "WARPLOOM_THREADS",
    "WARPLOOM_SYNC",
    "WARPLOOM_DETERMINISTIC",
    "WARPLOOM_F16_ACCUMULATE",
    "WARPLOOM_DOCTOR",
    "WARPLOOM_TUNE",
];

/// Other variables, with an invalid value.
const OTHERS: [(&str, &str); 3] = [
    ("WARPLOOM_DISPATCHES_PER_SUBMIT", "0"),
    ("WARPLOOM_ENGINE", "nonsense*"),
    ("WARPLOOM_PACKS", "no-such-folder"),
];

/// A builder with every setting except that of this variable.
fn all_but(name: &str) -> RuntimeBuilder {
    type Set = fn(RuntimeBuilder) -> RuntimeBuilder;
    let settings: [Set; 10] = [
        |b| b.memory_budget(None),
        |b| b.threads(None),
        |b| b.sync(SyncMode::Lazy),
        |b| b.deterministic(false),
        |b| b.f16_accumulate(false),
        |b| b.trusting(true),
        |b| b.tune(TuneMode::Off),
        |b| b.dispatches_per_submit(7),
        |b| b.preferences(Vec::new(), Vec::new()),
        |b| b.pack_folders(Vec::new()),
    ];
    let others = VARIABLES
        .into_iter()
        .chain(OTHERS.map(|(name, _)| name))
        .zip(settings)
        .filter(|(other, _)| *other != name);
    others.fold(Runtime::builder().device("cpu"), |builder, (_, set)| set(builder))
}

/// A setting overrides its variable, which is then not read, even if it is invalid.
#[test]
fn the_builder_wins_over_the_environment() {
    let test = "the_builder_wins_over_the_environment";
    if !is_child(test) {
        for value in ["nonsense", "1", "eager", "search"] {
            let variables = VARIABLES.into_iter().map(|name| (name, value)).chain(OTHERS);
            in_child(test, &variables.collect::<Vec<_>>());
        }
        return;
    }
    let runtime = all_but("").build().unwrap();
    assert_eq!((runtime.sync(), runtime.deterministic()), (SyncMode::Lazy, false));
    assert_eq!((runtime.pool().budget(), runtime.known_wrong().len()), (None, 0));
    let given = all_but("").memory_budget(Some(1 << 20)).deterministic(true).build().unwrap();
    assert_eq!((given.pool().budget(), given.deterministic()), (Some(1 << 20), true));
    if std::env::var(VARIABLES[0]).is_ok_and(|value| value == "nonsense") {
        for name in VARIABLES {
            let error = refused(all_but(name));
            assert!(error.contains(&format!("{name}=\"nonsense\" is not valid")), "{error}");
        }
        for (name, _) in OTHERS {
            let error = refused(all_but(name));
            assert!(error.contains(name), "{error}");
        }
        let device = runtime.device().clone();
        let error = all_but("WARPLOOM_ENGINE").build_on(device.clone()).err().unwrap().to_string();
        assert!(error.contains("WARPLOOM_ENGINE"), "{error}");
        assert!(all_but("").build_on(device).is_ok());
    }
}
