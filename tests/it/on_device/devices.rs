//! The devices of this machine that tests run on.

use std::sync::Once;

use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::runtime::{Detection, Runtime, RuntimeBuilder, TuneMode};

use crate::{Need, ran, skip, tell};

/// Suffix of the labels of runtimes at WebGPU's guaranteed limits.
pub(crate) const FLOOR: &str = " at the floor";

/// Whether long lists run completely instead of a sample: `WARPLOOM_TEST_ALL=1`.
pub(crate) fn whole() -> bool {
    std::env::var("WARPLOOM_TEST_ALL").is_ok_and(|v| v == "1")
}

/// Stride of the sample of a long list on this device: every case, every eighth... Each kernel
/// takes PoCL a good part of a second to compile.
pub(crate) fn sample(profile: &DeviceProfile, step: usize) -> usize {
    if profile.provider == "opencl" { sample_software(profile, step) } else { 1 }
}

/// The same for any GPU that is really a CPU, also lavapipe: for lists whose length suits real
/// GPUs.
pub(crate) fn sample_software(profile: &DeviceProfile, step: usize) -> usize {
    if profile.kind == DeviceKind::Software && !whole() { step } else { 1 }
}

/// Whether a test leaves a device out because its kernels compile slowly, which the ledger records:
/// each takes PoCL a good part of a second.
pub(crate) fn compiles_slowly(label: &str, runtime: &Runtime) -> bool {
    let slow = sample(runtime.device().profile(), 2) > 1;
    if slow {
        skip(Need::Time, &format!("{label} compiles slowly: WARPLOOM_TEST_ALL=1 runs it"));
    }
    slow
}

/// Whether tests run on this device: `WARPLOOM_TEST_DEVICE` is a prefix of the ids, such as
/// `opencl`.
pub(crate) fn wanted(profile: &DeviceProfile) -> bool {
    let only = std::env::var("WARPLOOM_TEST_DEVICE").unwrap_or_default();
    profile.id().starts_with(&only)
}

/// Runtimes on every device of [`of_machine`], which the ledger records as covered by this test.
pub(crate) fn every(floors: bool) -> Vec<(String, Runtime)> {
    let found = of_machine(floors);
    let kinds: Vec<String> = found.iter().map(|(label, runtime)| kind(label, runtime)).collect();
    ran(kinds.iter().map(String::as_str));
    found
}

/// The kind of device in the ledger: its provider, and whether it is at the floor.
pub(crate) fn kind(label: &str, runtime: &Runtime) -> String {
    let floor = if label.ends_with(FLOOR) { "-floor" } else { "" };
    format!("{}{floor}", runtime.device().profile().provider)
}

/// Runtimes on every device but null, with all its features, and with `floors` also at WebGPU's
/// guaranteed limits. Results of `doctor` and `tune` on this machine are ignored. Fails if
/// `WARPLOOM_REQUIRE` lists a provider without a device.
pub(crate) fn of_machine(floors: bool) -> Vec<(String, Runtime)> {
    let detection = Detection::detect("auto").unwrap();
    for (provider, error) in &detection.failures {
        tell(&format!("devices: {provider} failed: {error}"));
    }
    let profiles = detection.devices.iter().filter(|d| d.rank.is_some()).map(|d| &d.profile);
    let mut found = Vec::new();
    for profile in profiles.filter(|profile| wanted(profile)) {
        let runtime = untouched(profile).build().unwrap();
        found.push((format!("{} {:?}", profile.id(), profile.name), runtime));
        if floors && profile.provider == "webgpu" {
            let runtime = untouched(profile).floor(true).build().unwrap();
            found.push((format!("{} {:?}{FLOOR}", profile.id(), profile.name), runtime));
        }
    }
    if std::env::var("WARPLOOM_TEST_DEVICE").is_err() {
        for need in [Need::WebGpu, Need::OpenCl, Need::Cuda] {
            let name = need.name();
            let covered = found.iter().any(|(label, _)| label.starts_with(name));
            assert!(covered || !need.is_required(), "WARPLOOM_REQUIRE lists {name}: no device");
        }
        let matrix = found.iter().any(|(_, runtime)| runtime.device().profile().has_matrix_hw);
        assert!(matrix || !Need::Matrix.is_required(), "WARPLOOM_REQUIRE lists matrix: no device");
    }
    static SAID: Once = Once::new();
    let ids: Vec<String> = found.iter().map(|(_, r)| r.device().profile().id()).collect();
    SAID.call_once(|| tell(&format!("devices: tests cover {}", ids.join(" "))));
    assert!(!found.is_empty(), "no device of this machine is one that tests run on");
    found
}

/// A runtime that depends on nothing of this machine but the device.
fn untouched(profile: &DeviceProfile) -> RuntimeBuilder {
    Runtime::builder().device(profile.id()).trusting(true).tune(TuneMode::Off)
}
