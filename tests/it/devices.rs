//! Every device of this machine that tests run on.

use warploom::runtime::{Detection, Runtime};

use crate::tell;

/// Runtimes on every device but null, with all it has, and with `floors` also at WebGPU's
/// guaranteed limits. Fails where `WARPLOOM_REQUIRE_WEBGPU` is 1 and none is a wgpu device.
pub(crate) fn every(floors: bool) -> Vec<(String, Runtime)> {
    let detection = Detection::detect_blocking("auto").unwrap();
    for (provider, error) in &detection.failures {
        tell(&format!("devices: {provider} failed: {error}"));
    }
    let profiles = detection.devices.iter().filter(|d| d.rank.is_some()).map(|d| &d.profile);
    let mut found = Vec::new();
    for profile in profiles {
        let runtime = Runtime::builder().device(profile.id()).build().unwrap();
        found.push((format!("{} {:?}", profile.id(), profile.name), runtime));
        if floors && profile.provider == "webgpu" {
            let runtime = Runtime::builder().device(profile.id()).floor(true).build().unwrap();
            found.push((format!("{} {:?} at the floor", profile.id(), profile.name), runtime));
        }
    }
    let covered = found.iter().any(|(label, _)| label.starts_with("webgpu"));
    let required = std::env::var("WARPLOOM_REQUIRE_WEBGPU").is_ok_and(|v| v == "1");
    assert!(covered || !required, "WARPLOOM_REQUIRE_WEBGPU=1 and there is no wgpu device");
    if !covered {
        tell("devices: no wgpu device on this machine, only the CPU is covered");
    }
    found
}
