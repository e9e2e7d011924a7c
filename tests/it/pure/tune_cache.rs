//! The tuner's files: truncated, bit-flipped, of another device or version, written by two
//! processes at once or by a killed one; and candidates that end the process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warploom::engine::{DriverKey, EngineId, KnobValues};
use warploom::provider::DeviceProfile;
use warploom::runtime::{Runtime, TuneCache, TuneMode, TuneRecord, TunedTask};

use crate::tell;
use crate::tune::{Fault, Neg, entry, found, negation, quick, tuned};

/// Variables of a child process: its work, and its folder.
pub(crate) const CHILD: &str = "WARPLOOM_TEST_TUNE_CHILD";
const FOLDER: &str = "WARPLOOM_TEST_TUNE_FOLDER";

/// A test's own folder, removed after it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warploom-tune-{name}-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This binary again, to run one of [`the_child`]'s jobs.
fn child(job: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pure::tune_cache::the_child", "--nocapture"]);
    command.env(CHILD, job).env(FOLDER, folder).env_remove("WARPLOOM_TUNE_CACHE");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn device() -> DriverKey {
    DriverKey::of(&DeviceProfile::webgpu_floor("a test's device"))
}

/// A record of one task, whose key is made from two numbers.
fn record(process: u64, round: u64) -> TuneRecord {
    let mut record = TuneRecord::new(device());
    let key = serde_json::from_value(format!("{process:016x}{round:016x}").into()).unwrap();
    let tuned = entry(EngineId::new("fused.copy"), 1, KnobValues::default().with("width", 4));
    let task = TunedTask {
        label: format!("task {round} of {process}"),
        shapes: "f32[64] -> f32[64]".into(),
        date: "2026-01-31".into(),
        tuned,
    };
    record.tasks.insert(key, task);
    record
}

/// Not a test: the work of the processes that tests of this file start.
#[test]
fn the_child() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let cache = TuneCache::at(&folder);
    match job.split_once(' ') {
        // Saves until it is killed.
        Some(("save", number)) => {
            let number = number.parse().unwrap();
            for round in 0.. {
                cache.add(record(number, round)).unwrap();
                let message = folder.join(format!("{number}.done"));
                std::fs::write(message.with_extension("new"), round.to_string()).unwrap();
                std::fs::rename(message.with_extension("new"), message).unwrap();
            }
        }
        // With a variable that means nothing.
        None if job == "mode" => {
            for mode in [TuneMode::Off, TuneMode::Cached, TuneMode::Search] {
                Runtime::builder().device("cpu").tune(mode).build().unwrap();
            }
            let Err(error) = Runtime::builder().device("cpu").tune_cache(cache).build() else {
                panic!("nobody set the mode")
            };
            assert!(error.to_string().contains("WARPLOOM_TUNE"), "{error}");
        }
        _ => {
            let mut runtime = Runtime::builder().device("cpu").build().unwrap();
            runtime.set_tuning(TuneMode::Cached, cache);
            runtime.registry_mut().unwrap().add(Neg::new("acme.fatal", Fault::Fatal)).unwrap();
            tuned(&runtime, &negation(), &quick());
        }
    }
}

#[test]
fn a_candidate_that_ends_the_process_is_not_tried_again() {
    let folder = Folder::new("fatal");
    assert!(!child("fatal", &folder.0).status().unwrap().success(), "it must abort");
    let mut runtime = Runtime::builder().device("cpu").build().unwrap();
    runtime.set_tuning(TuneMode::Cached, TuneCache::at(&folder.0));
    runtime.registry_mut().unwrap().add(Neg::new("acme.fatal", Fault::Fatal)).unwrap();
    for _ in 0..2 {
        let options = warploom::runtime::TuneOptions { again: true, ..quick() };
        let report = tuned(&runtime, &negation(), &options);
        let [result] = &report.results[..] else { panic!("{report:?}") };
        let out = result.dropped.iter().find(|d| d.engine.as_str() == "acme.fatal").unwrap();
        assert!(out.why.contains("ended a process"), "{}", out.why);
        assert_eq!(result.tuned.as_ref().unwrap().engine, EngineId::new("fused.elementwise"));
    }
    let device = DriverKey::of(runtime.device().profile());
    let record = TuneCache::at(&folder.0).read(&device).unwrap().unwrap();
    assert_eq!(record.avoid.len(), 1, "{:?}", record.avoid);
    let left = std::fs::read_dir(&folder.0).unwrap().flatten();
    let journals = left.filter(|e| e.path().extension().is_some_and(|e| e == "running")).count();
    assert_eq!(journals, 0, "journals go with their searches");
}

#[test]
fn damage_of_every_byte_is_reported_and_ignored() {
    let (folder, record) = (Folder::new("damage"), record(1, 2));
    let cache = TuneCache::at(&folder.0);
    assert_eq!(cache.read(&record.device).unwrap(), None);
    let path = cache.add(record.clone()).unwrap();
    assert_eq!(cache.read(&record.device).unwrap().as_ref(), Some(&record));
    let good = std::fs::read(&path).unwrap();
    let bad = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let error = cache.read(&record.device).expect_err(what);
        assert!(error.is_bad_file() && error.to_string().contains(".tune"), "{what}: {error}");
        error.to_string()
    };
    for length in 0..good.len() {
        bad(&good[..length], &format!("cut to {length} bytes"));
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            bad(&bytes, &format!("bit {bit} of byte {at}"));
        }
    }
    let longer = [&good[..], b" "].concat();
    bad(&longer, "a byte too many");
    bad(&vec![b' '; 9 << 20], "9 MiB");
    // A runtime ignores it and reports that.
    let mut runtime = Runtime::builder().device("cpu").build().unwrap();
    let own = DriverKey::of(runtime.device().profile());
    std::fs::write(cache.path(&own).unwrap(), &good[..good.len() / 2]).unwrap();
    runtime.set_tuning(TuneMode::Cached, cache.clone());
    assert!(runtime.tuned().choices.is_empty());
    assert!(runtime.startup_line().contains("tuned choices are ignored"));
    // A damaged record is replaced by the next measurements.
    runtime.registry_mut().unwrap().add(Neg::new("acme.right", Fault::None)).unwrap();
    let report = tuned(&runtime, &negation(), &quick());
    assert!(report.ignored.is_some_and(|why| why.contains(".tune")), "it says what it ignores");
    assert_eq!((report.not_kept, report.no_journal), (None, None), "what it found is kept");
    assert_eq!(cache.read(&own).unwrap().unwrap().tasks.len(), 1);
}

/// A folder that cannot be created, since a file has its name.
#[test]
fn results_that_cannot_be_stored_are_reported_and_used_anyway() {
    let folder = Folder::new("nowhere");
    std::fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    for cache in [TuneCache::nowhere(), TuneCache::at(file.join("tune"))] {
        let mut runtime = Runtime::builder().device("cpu").build().unwrap();
        runtime.registry_mut().unwrap().add(Neg::new("acme.right", Fault::None)).unwrap();
        runtime.set_tuning(TuneMode::Cached, cache.clone());
        let report = tuned(&runtime, &negation(), &quick());
        assert!(report.not_kept.is_some(), "{report:?}");
        let folder = cache.path(&runtime.tuned().device).is_some();
        assert_eq!(report.no_journal.is_some(), folder, "{report:?}");
        assert_eq!(runtime.tuned().choices.len(), 1, "plans take it");
    }
}

#[test]
fn more_than_can_be_read_back_replaces_nothing() {
    let folder = Folder::new("large");
    let (cache, small) = (TuneCache::at(&folder.0), record(1, 1));
    let path = cache.add(small.clone()).unwrap();
    let mut large = record(1, 2);
    large.tasks.values_mut().for_each(|task| task.label = "x".repeat(8 << 20));
    for error in [cache.add(large.clone()).unwrap_err(), large.save(&path).unwrap_err()] {
        let message = error.to_string();
        assert!(error.is_invalid() && message.contains("at most 8388608"), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
    assert_eq!(cache.read(&small.device).unwrap(), Some(small));
}

#[test]
fn a_mode_that_the_caller_sets_needs_no_variable() {
    let folder = Folder::new("mode");
    let status = child("mode", &folder.0).env("WARPLOOM_TUNE", "always").status().unwrap();
    assert!(status.success());
}

#[test]
fn records_of_other_devices_and_versions_are_not_taken() {
    let folder = Folder::new("foreign");
    let cache = TuneCache::at(&folder.0);
    let mut runtime = Runtime::builder().device("cpu").build().unwrap();
    let own = DriverKey::of(runtime.device().profile());
    let tasks = found(&runtime, &negation());
    // Two engines, so that there is something to choose.
    assert!(tasks.is_empty(), "the CPU has one way to negate");
    runtime.registry_mut().unwrap().add(Neg::new("acme.right", Fault::None)).unwrap();
    let tasks = found(&runtime, &negation());
    let mut good = TuneRecord::new(own.clone());
    let tuned = entry(EngineId::new("acme.right"), 1, KnobValues::default());
    let task = record(0, 0).tasks.into_values().next().unwrap();
    good.tasks.insert(tasks[0].key.clone(), TunedTask { tuned, ..task });
    let path = folder.0.join("shipped.tune");
    let start = |record: &TuneRecord| {
        record.save(&path).unwrap();
        let builder = Runtime::builder().device("cpu").tune(TuneMode::Cached);
        builder.tune_cache(TuneCache::nowhere()).tune_file(&path).build().unwrap()
    };
    assert_eq!(start(&good).tuned().choices.len(), 1, "one that an application brings");
    let mut other = good.clone();
    other.device.driver.push_str(" of next year");
    assert_eq!(start(&other).tuned().choices.len(), 0, "of another driver");
    let mut old = good.clone();
    old.version = "0.0.0".into();
    let runtime = start(&old);
    assert!(runtime.tuned().choices.is_empty());
    assert!(runtime.startup_line().contains("of version 0.0.0"), "{}", runtime.startup_line());
    let mut still = good.clone();
    still.tasks.values_mut().for_each(|task| task.tuned.seconds = 0.0);
    assert!(start(&still).startup_line().contains("took no time"));
    // A record of another device in the cache is reported.
    std::fs::copy(&path, cache.path(&own).unwrap()).unwrap();
    other.save(&cache.path(&own).unwrap()).unwrap();
    let error = cache.read(&own).unwrap_err();
    assert!(error.is_bad_file() && error.to_string().contains("for another device"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let builder = Runtime::builder().device("cpu").tune_file(&path);
    let line = builder.build().unwrap().startup_line();
    assert!(line.contains("shipped.tune is not there"), "{line}");
}

/// Two processes save to one file continuously and are killed repeatedly: 200 kills with
/// `WARPLOOM_TUNE_KILLS=200`.
#[test]
fn two_that_save_and_die_lose_nothing_that_was_saved() {
    let kills: u64 = match std::env::var("WARPLOOM_TUNE_KILLS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 20,
    };
    let folder = Folder::new("kills");
    std::fs::create_dir_all(&folder.0).unwrap();
    let cache = TuneCache::at(&folder.0);
    let (mut saved, mut reads) = (0, 0);
    for pair in 0..kills.div_ceil(2) {
        let numbers = [2 * pair, 2 * pair + 1];
        let mut children = numbers.map(|n| child(&format!("save {n}"), &folder.0).spawn().unwrap());
        let message = |number: u64| {
            let text = std::fs::read_to_string(folder.0.join(format!("{number}.done")));
            text.ok().and_then(|text| text.parse::<u64>().ok())
        };
        let begin = std::time::Instant::now();
        while numbers.iter().any(|n| message(*n).is_none()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the children save nothing");
            cache.read(&device()).unwrap();
            reads += 1;
        }
        // Anywhere in a save.
        std::thread::sleep(Duration::from_micros(137 * pair % 5000));
        let rounds = numbers.map(message);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let found = cache.read(&device()).unwrap().unwrap();
        for (number, round) in numbers.into_iter().zip(rounds) {
            for round in 0..=round.unwrap() {
                let expected = record(number, round);
                let (key, task) = expected.tasks.iter().next().unwrap();
                assert_eq!(found.tasks.get(key), Some(task), "round {round} of {number}");
                saved += 1;
            }
        }
        // Small files, so that saves stay short.
        assert!(cache.forget(&device()).unwrap());
    }
    tell(&format!("tune: {kills} kills, {saved} saved and found again, {reads} reads all whole"));
}
