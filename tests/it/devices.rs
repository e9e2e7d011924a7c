//! Every device of this machine that tests run on.

use std::sync::Once;

use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::runtime::{Detection, Runtime, RuntimeBuilder, TuneMode};

use crate::tell;

/// How labels of runtimes at WebGPU's guaranteed limits end.
pub(crate) const FLOOR: &str = " at the floor";

/// Whether long lists run whole where some of them usually stand for all: `WARPLOOM_TEST_ALL=1`.
pub(crate) fn whole() -> bool {
    std::env::var("WARPLOOM_TEST_ALL").is_ok_and(|v| v == "1")
}

/// How many cases of a long list stand for all on this device: every first, every eighth... Each
/// kernel takes PoCL a good part of a second to compile.
pub(crate) fn sample(profile: &DeviceProfile, step: usize) -> usize {
    if profile.provider == "opencl" { sample_software(profile, step) } else { 1 }
}

/// The same on any GPU that is the CPU in truth, lavapipe as well: for lists whose length is that
/// for real GPUs.
pub(crate) fn sample_software(profile: &DeviceProfile, step: usize) -> usize {
    if profile.kind == DeviceKind::Software && !whole() { step } else { 1 }
}

/// Whether tests run on this device: `WARPLOOM_TEST_DEVICE` is the beginning of the ids of those
/// that do, such as `opencl`.
pub(crate) fn wanted(profile: &DeviceProfile) -> bool {
    let only = std::env::var("WARPLOOM_TEST_DEVICE").unwrap_or_default();
    profile.id().starts_with(&only)
}

/// Runtimes on every device but null, with all it has, and with `floors` also at WebGPU's
/// guaranteed limits; neither what `doctor` found here nor what `tune` measured counts. Fails where `WARPLOOM_REQUIRE_WEBGPU` is 1 and none is a wgpu device.
pub(crate) fn every(floors: bool) -> Vec<(String, Runtime)> {
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
    let covered = found.iter().any(|(label, _)| label.starts_with("webgpu"));
    let required = std::env::var("WARPLOOM_REQUIRE_WEBGPU").is_ok_and(|v| v == "1");
    let required = required && std::env::var("WARPLOOM_TEST_DEVICE").is_err();
    assert!(covered || !required, "WARPLOOM_REQUIRE_WEBGPU=1 and there is no wgpu device");
    static SAID: Once = Once::new();
    let ids: Vec<String> = found.iter().map(|(_, r)| r.device().profile().id()).collect();
    SAID.call_once(|| tell(&format!("devices: tests cover {}", ids.join(" "))));
    assert!(!found.is_empty(), "no device of this machine is one that tests run on");
    found
}

/// A runtime that nothing of this machine but the device decides about.
fn untouched(profile: &DeviceProfile) -> RuntimeBuilder {
    Runtime::builder().device(profile.id()).trusting(true).tune(TuneMode::Off)
}
