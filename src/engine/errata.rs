//! Errata: engines known to be wrong on a driver, and the table that ships with the crate.

use serde::{Deserialize, Serialize};

use super::{EngineId, Registry};
use crate::provider::DeviceProfile;

/// Identity of a device and its driver, for which a finding about an engine holds. The device's
/// index in the provider's list is not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DriverKey {
    /// Name of the provider, such as `webgpu` or `cuda`.
    pub provider: String,
    /// Vendor name.
    pub vendor: String,
    /// Device name.
    pub name: String,
    /// Driver and its version, or the instruction set of a CPU.
    pub driver: String,
}

impl DriverKey {
    /// Returns the key of a device.
    pub fn of(profile: &DeviceProfile) -> DriverKey {
        DriverKey {
            provider: profile.provider.clone(),
            vendor: profile.vendor.clone(),
            name: profile.name.clone(),
            driver: profile.driver.clone(),
        }
    }

    /// Returns whether a profile has this identity.
    pub fn is(&self, profile: &DeviceProfile) -> bool {
        self.provider == profile.provider
            && self.vendor == profile.vendor
            && self.name == profile.name
            && self.driver == profile.driver
    }
}

/// An engine that is known to be wrong on a device; plans for that device leave it out. Unlike an
/// engine blocked by the caller, it need not be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The device.
    pub device: DriverKey,
    /// The engine.
    pub engine: EngineId,
    /// The source of the finding and the fault, as shown by `explain`.
    pub reason: String,
}

/// A row of the errata table: an engine that is wrong with certain devices and drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erratum {
    /// The provider; empty matches any.
    pub provider: &'static str,
    /// A substring of the vendor's name; empty matches any.
    pub vendor: &'static str,
    /// A substring of the device's name; empty matches any.
    pub name: &'static str,
    /// A substring of the driver's name, or of the browser's name if the device reports that
    /// instead.
    pub driver: &'static str,
    /// The first faulty version and the first fixed one, such as `["22.3", "23"]`; an empty string
    /// means no bound. The driver's version is the first version number after `driver`.
    pub versions: [&'static str; 2],
    /// The engine; a trailing `*` matches every id with that prefix.
    pub engine: &'static str,
    /// A description of the fault.
    pub reason: &'static str,
    /// A link to the report: an issue of the driver or of this crate.
    pub link: &'static str,
}

/// The table that ships with the crate. Each row comes from a report of `warploom doctor` and is
/// removed once no affected driver is in use. No engine of this version is known to be wrong.
pub static ERRATA: &[Erratum] = &[];

/// Returns a [`Block`] for each registered engine that an erratum in `table` affects on a device.
pub fn errata(table: &[Erratum], profile: &DeviceProfile, registry: &Registry) -> Vec<Block> {
    let rows = table.iter().filter(|row| row.is_of(profile));
    rows.flat_map(|row| {
        registry.engines().iter().filter(|engine| row.means(engine.id())).map(|engine| Block {
            device: DriverKey::of(profile),
            engine: engine.id().clone(),
            reason: format!("in the errata of {:?}: {} ({})", profile.driver, row.reason, row.link),
        })
    })
    .collect()
}

impl Erratum {
    fn is_of(&self, profile: &DeviceProfile) -> bool {
        let Some(at) = profile.driver.find(self.driver) else { return false };
        (self.provider.is_empty() || self.provider == profile.provider)
            && profile.vendor.contains(self.vendor)
            && profile.name.contains(self.name)
            && self.holds(version(&profile.driver[at + self.driver.len()..]))
    }

    /// Returns whether a driver version is within the bounds. An unknown version is accepted only
    /// if there are no bounds.
    fn holds(&self, version: Option<Vec<u64>>) -> bool {
        let [from, until] = self.versions.map(self::version);
        match version {
            Some(version) => {
                from.is_none_or(|from| from <= version) && until.is_none_or(|until| version < until)
            }
            None => from.is_none() && until.is_none(),
        }
    }

    fn means(&self, engine: &EngineId) -> bool {
        match self.engine.strip_suffix('*') {
            Some(beginning) => engine.as_str().starts_with(beginning),
            None => engine.as_str() == self.engine,
        }
    }
}

/// Parses the first version number in a text: `Mesa 22.3.6-1` yields 22, 3, 6.
fn version(text: &str) -> Option<Vec<u64>> {
    let text = &text[text.find(|c: char| c.is_ascii_digit())?..];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let parts = text[..end].split('.').filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Erratum = Erratum {
        provider: "webgpu",
        vendor: "",
        name: "llvmpipe",
        driver: "Mesa",
        versions: ["22.3", "23.1"],
        engine: "wgsl.matvec.q4_k*",
        reason: "loses a barrier",
        link: "https://example.org/1",
    };

    fn profile(driver: &str) -> DeviceProfile {
        let floor = DeviceProfile::webgpu_floor("llvmpipe (LLVM 15.0.6, 256 bits)");
        floor.with(|p| p.driver = driver.into())
    }

    fn blocked(row: Erratum, profile: &DeviceProfile) -> Vec<String> {
        let blocks = errata(&[row], profile, &Registry::builtin());
        blocks.iter().map(|block| block.engine.to_string()).collect()
    }

    #[test]
    fn rows_hold_within_their_versions() {
        for (driver, held) in [
            ("llvmpipe Mesa 22.2.9", false),
            ("llvmpipe Mesa 22.3", true),
            ("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", true),
            ("llvmpipe Mesa 23.0.4", true),
            ("llvmpipe Mesa 23.1.0", false),
            ("llvmpipe Mesa 100.0", false),
            ("llvmpipe Mesa", false),
            ("SwiftShader 22.3", false),
        ] {
            assert_eq!(!blocked(ROW, &profile(driver)).is_empty(), held, "{driver}");
        }
        let always = Erratum { versions: ["", ""], ..ROW };
        assert!(!blocked(always, &profile("llvmpipe Mesa")).is_empty());
    }

    #[test]
    fn rows_name_engines_and_devices() {
        let mesa = profile("Mesa 22.3.6");
        let names = blocked(ROW, &mesa);
        assert!(
            names.len() > 1 && names.iter().all(|n| n.starts_with("wgsl.matvec.q4_k")),
            "{names:?}"
        );
        let one = Erratum { engine: "wgsl.matvec.q4_k", ..ROW };
        assert_eq!(blocked(one, &mesa), ["wgsl.matvec.q4_k"]);
        assert!(blocked(Erratum { engine: "wgsl.matvec.q4_", ..ROW }, &mesa).is_empty());
        assert!(blocked(Erratum { provider: "opencl", ..ROW }, &mesa).is_empty());
        assert!(blocked(Erratum { name: "H200", ..ROW }, &mesa).is_empty());
        assert!(blocked(Erratum { vendor: "AMD", ..ROW }, &mesa).is_empty());
        let block = &errata(&[ROW], &mesa, &Registry::builtin())[0];
        assert!(block.device.is(&mesa) && !block.device.is(&profile("Mesa 22.3.7")));
        assert!(block.reason.contains("loses a barrier (https://example.org/1)"));
    }
}
