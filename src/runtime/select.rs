//! Selects a device: queries every provider once, or only the provider of a device requested by
//! name, and reports the choice in one line.

use std::fmt::{self, Write};
use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::{block_on, runs_in_place};
use crate::error::{Error, Result};
#[cfg(not(target_arch = "wasm32"))]
use crate::provider::worker::on_thread;
use crate::provider::{Device, DeviceKind, DeviceProfile, NullProvider, OpenOptions, Provider};

/// A detected device.
#[derive(Clone, Debug)]
pub struct DetectedDevice {
    /// The device's profile.
    pub profile: DeviceProfile,
    /// Preference rank; lower is better. A device without a rank is selected only by name.
    pub rank: Option<u32>,
    /// The reason for the rank.
    pub reason: &'static str,
}

/// The requested device, the available devices and the selected one.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The request: `auto`, a provider, or a device.
    pub requested: String,
    /// Every device, best first. For a runtime on a device requested by name, only the devices of
    /// its provider.
    pub devices: Vec<DetectedDevice>,
    /// Providers that failed to list their devices, and devices that failed to open, with the
    /// error.
    pub failures: Vec<(String, String)>,
    /// Providers without devices on this machine, with the reason, such as a missing library.
    pub absent: Vec<(String, String)>,
    /// Index of the selected device in `devices`.
    pub selected: usize,
}

/// Providers added by the caller.
#[derive(Clone, Default)]
pub(super) struct Providers(pub(super) Vec<Arc<dyn Provider>>);

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|provider| provider.name())).finish()
    }
}

/// A provider, and whether the caller added it.
pub(super) struct Listed {
    provider: Arc<dyn Provider>,
    own: bool,
}

/// Names of the built-in providers, including those that this build lacks.
const NAMES: [&str; 5] = ["cuda", "webgpu", "opencl", "cpu", "null"];

/// Returns every provider: the caller's, then those of this build. No other code lists them.
///
/// # Errors
/// Invalid if the name of a caller's provider is malformed or taken.
pub(super) fn providers(own: &Providers) -> Result<Vec<Listed>> {
    let builtin: Vec<Arc<dyn Provider>> = vec![
        #[cfg(all(feature = "cuda", not(target_arch = "wasm32")))]
        Arc::new(crate::native::cuda::Provider::new()),
        #[cfg(feature = "webgpu")]
        Arc::new(crate::webgpu::Provider::new()),
        #[cfg(all(feature = "opencl", not(target_arch = "wasm32")))]
        Arc::new(crate::native::opencl::Provider),
        Arc::new(crate::cpu::Provider),
        Arc::new(NullProvider),
    ];
    for (place, provider) in own.0.iter().enumerate() {
        let name = provider.name();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name == "auto" || !name.chars().all(plain) {
            return Err(Error::invalid(format!(
                "a provider cannot be called {name:?}: letters, digits, - and _, and not auto"
            )));
        }
        if NAMES.contains(&name) {
            return Err(Error::invalid(format!(
                "a provider cannot be called {name:?}: that is one of warploom"
            )));
        }
        if own.0[..place].iter().any(|other| other.name() == name) {
            return Err(Error::invalid(format!("there are two providers called {name:?}")));
        }
    }
    let own = own.0.iter().map(|provider| Listed { provider: provider.clone(), own: true });
    Ok(own.chain(builtin.into_iter().map(|provider| Listed { provider, own: false })).collect())
}

impl Listed {
    /// Lists the provider's devices. Profiles of a caller's provider must have ids that match their
    /// list index.
    async fn list(&self) -> Result<Vec<DetectedDevice>> {
        let profiles = self.provider.list().await?;
        let devices = profiles.into_iter().enumerate().map(|(index, profile)| {
            let id = format!("{}:{index}", self.provider.name());
            if self.own && profile.id() != id {
                let says = profile.id();
                return Err(Error::invalid(format!("the profile of {id} has the id {says}")));
            }
            let (rank, reason) = rank(&profile, self.own);
            Ok(DetectedDevice { profile, rank, reason })
        });
        devices.collect()
    }
}

/// Returns the preference rank of a device and its reason. `own` means that the caller added the
/// provider.
fn rank(profile: &DeviceProfile, own: bool) -> (Option<u32>, &'static str) {
    use DeviceKind::{Cpu, Discrete, Integrated, Null, Software};
    match (profile.kind, profile.provider.as_str()) {
        (Null, _) => (None, "executes nothing; selected only by name"),
        _ if own => (Some(0), "from a provider of the application"),
        (Discrete | Integrated, "cuda") => (Some(1), "an NVIDIA GPU through its own driver"),
        (Discrete, "opencl") => (Some(4), "a GPU through OpenCL, below the same through wgpu"),
        (Integrated, "opencl") => (Some(5), "a GPU through OpenCL, below the same through wgpu"),
        (Discrete, _) => (Some(2), "a GPU with its own memory"),
        (Integrated, _) => (Some(3), "a GPU that shares the host's memory"),
        (Cpu, _) => (Some(6), "the CPU, below any real GPU"),
        (Software, _) => (Some(7), "a GPU interface on the CPU, slower than the CPU itself"),
    }
}

impl Detection {
    /// Queries every built-in provider and selects a device.
    /// [`RuntimeBuilder::detect_async`](super::RuntimeBuilder::detect_async) also queries the
    /// caller's.
    ///
    /// # Errors
    /// Invalid if no device matches `requested`; the error lists the available ones.
    pub async fn detect_async(requested: &str) -> Result<Detection> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let requested = requested.to_string();
            return on_thread("warploom open", move || Detection::detect(&requested)).await;
        }
        Detection::among(&providers(&Providers::default())?, requested).await
    }

    /// Selects the device to open. For a device requested by name only its provider is queried:
    /// driver initialisation takes tenths of a second, and other drivers may be broken.
    ///
    /// # Errors
    /// Same as [`Detection::detect_async`].
    pub(super) async fn to_open(providers: &[Listed], requested: &str) -> Result<Detection> {
        let name = requested.split(':').next().unwrap_or_default();
        if let Some(own) = providers.iter().find(|listed| listed.provider.name() == name) {
            let found = Detection::among(std::slice::from_ref(own), requested).await;
            if found.is_ok() {
                return found;
            }
        }
        // Either `auto`, or there is no such device; the error then lists all devices.
        Detection::among(providers, requested).await
    }

    /// Queries these providers and selects a device.
    ///
    /// # Errors
    /// Same as [`Detection::detect_async`].
    pub(super) async fn among(providers: &[Listed], requested: &str) -> Result<Detection> {
        let mut devices = Vec::new();
        let (mut failures, mut absent) = (Vec::new(), Vec::new());
        for listed in providers {
            let name = || listed.provider.name().to_string();
            match listed.list().await {
                Ok(found) => devices.extend(found),
                Err(error) => failures.push((name(), error.to_string())),
            }
            absent.extend(listed.provider.absence().map(|why| (name(), why)));
        }
        devices.sort_by_key(|d| d.rank.unwrap_or(u32::MAX));
        let mut detection =
            Detection { requested: requested.into(), devices, failures, absent, selected: 0 };
        detection.selected = detection.find(requested)?;
        Ok(detection)
    }

    /// Blocking version of [`Detection::detect_async`].
    ///
    /// # Errors
    /// Same as [`Detection::detect_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn detect(requested: &str) -> Result<Detection> {
        block_on(Detection::detect_async(requested))
    }

    /// Returns a detection that lists only the device that the caller opened.
    pub(super) fn given(profile: &DeviceProfile) -> Detection {
        let (rank, _) = rank(profile, false);
        let device =
            DetectedDevice { profile: profile.clone(), rank, reason: "given by the caller" };
        Detection {
            requested: "given".into(),
            devices: vec![device],
            failures: Vec::new(),
            absent: Vec::new(),
            selected: 0,
        }
    }

    fn find(&self, requested: &str) -> Result<usize> {
        let matches = |device: &&DetectedDevice| match requested {
            "auto" => device.rank.is_some(),
            name if name.contains(':') => device.profile.id() == name,
            name => device.profile.provider == name,
        };
        let found = self.devices.iter().position(|device| matches(&device));
        found.ok_or_else(|| {
            // A null device is only for tests.
            let real = |d: &&DetectedDevice| d.profile.kind != DeviceKind::Null;
            let ids: Vec<String> =
                self.devices.iter().filter(real).map(|d| d.profile.id()).collect();
            let mut text = format!("no device {requested:?}; there is {}", ids.join(", "));
            for (provider, error) in &self.failures {
                let _ = write!(text, "; {provider} failed: {error}");
            }
            for (provider, why) in &self.absent {
                let _ = write!(text, "; {provider} is not here: {why}");
            }
            Error::invalid(text)
        })
    }

    /// Opens the selected device. With `auto`, a device that fails to open is reported in the
    /// startup line and the next one is tried. A device requested by name is never replaced.
    pub(super) async fn open(
        &mut self,
        providers: &[Listed],
        options: OpenOptions,
    ) -> Result<Arc<dyn Device>> {
        loop {
            let device = &self.devices[self.selected];
            let error = match open(providers, &device.profile, options.clone()).await {
                Ok(device) => return Ok(device),
                Err(error) => error,
            };
            let next = self.selected + 1;
            let another = self.devices.get(next).is_some_and(|d| d.rank.is_some());
            if self.requested != "auto" || !another {
                return Err(error);
            }
            self.failures.push((device.profile.id(), error.to_string()));
            self.selected = next;
        }
    }

    /// Returns the selected device.
    pub fn selected(&self) -> &DetectedDevice {
        &self.devices[self.selected]
    }

    /// Returns one line that reports the selection:
    /// `requested=auto detected=[webgpu:0 "NVIDIA H200", cpu:0 avx512] selected=webgpu:0 (why)`.
    pub fn startup_line(&self) -> String {
        let list: Vec<String> = self
            .devices
            .iter()
            .filter(|d| d.rank.is_some() || d.profile.id() == self.selected().profile.id())
            .map(|d| match d.profile.kind {
                DeviceKind::Cpu => format!("{} {}", d.profile.id(), d.profile.driver),
                _ => format!("{} {:?}", d.profile.id(), d.profile.name),
            })
            .collect();
        let selected = self.selected();
        let mut line = format!(
            "requested={} detected=[{}] selected={} ({})",
            self.requested,
            list.join(", "),
            selected.profile.id(),
            selected.reason
        );
        for (provider, error) in &self.failures {
            let _ = write!(line, " failed={provider}: {error}");
        }
        line
    }
}

async fn open(
    providers: &[Listed],
    profile: &DeviceProfile,
    options: OpenOptions,
) -> Result<Arc<dyn Device>> {
    let id = profile.id();
    let Some(listed) = providers.iter().find(|p| p.provider.name() == profile.provider) else {
        return Err(Error::invalid(format!("no provider {:?} in this build", profile.provider)));
    };
    let opened = listed.provider.open(profile.index, options).await;
    let device = opened.map_err(|e| e.context(format_args!("opening {id}")))?;
    match device.profile().id() {
        says if listed.own && says != id => {
            Err(Error::invalid(format!("the device that {id} opened has the id {says}")))
        }
        _ => Ok(device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_before_wgpu_before_opencl_before_the_cpu() {
        use DeviceKind::{Cpu, Discrete, Integrated, Null, Software};
        let order = [
            ("cuda", Discrete),
            ("webgpu", Discrete),
            ("webgpu", Integrated),
            ("opencl", Discrete),
            ("opencl", Integrated),
            ("cpu", Cpu),
            ("webgpu", Software),
        ];
        let ranks = order.map(|(provider, kind)| {
            let floor = DeviceProfile::webgpu_floor("");
            rank(
                &floor.with(|p| {
                    p.provider = provider.into();
                    p.kind = kind;
                }),
                false,
            )
            .0
            .unwrap()
        });
        assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]), "{ranks:?}");
        let null = DeviceProfile::webgpu_floor("").with(|p| p.kind = Null);
        assert_eq!((rank(&null, false).0, rank(&null, true).0), (None, None));
    }

    #[test]
    fn a_missing_device_is_an_error_if_it_is_requested() {
        let mut detection = Detection::detect("null").unwrap();
        detection.absent = vec![("cuda".into(), "no driver".into())];
        let error = detection.find("cuda").unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("cuda is not here: no driver"));
        assert!(!detection.startup_line().contains("no driver"));
        // The null device is selected by name and never listed as available.
        let error = detection.find("foo").unwrap_err().to_string();
        assert!(error.contains("cpu:0") && !error.contains("null:0"), "{error}");
    }
}
