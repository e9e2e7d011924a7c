//! GPUs through wgpu: Vulkan, Metal and DX12 natively, WebGPU in a browser.
//!
//! A recording is made ready once (`prepare`): pipelines found, bind groups built, parameters
//! that never change written, sizes that change listed once each. A `submit` then evaluates those
//! sizes and replays: one encoder, one compute pass over consecutive dispatches, one submit.
//!
//! Invariants:
//! - `submit` checks everything before it writes anything: an error leaves no half of the work.
//! - wgpu puts `Queue::write_buffer` before *all* commands of the next submit. So only what no
//!   earlier command of the same submit could have seen is written directly (uploads at the head
//!   of the first work, parameters of a work's first occurrence); the rest goes through a staging
//!   buffer and a copy at its place.
//! - No error of wgpu panics. Those that no call answers for are recorded, and `wait` returns
//!   them. Those of a submit are told by `submit`; in a browser, which tells them later, by the next
//!   `wait` for it or for a later one. Downloads of such a submit are never returned.
//! - An id of a freed buffer or of freed work is an error. A freed buffer's memory goes back when
//!   the device is done with it, even while prepared work still names it.
//! - The callbacks touch the error record only, never the device's state.
//! - Kernels compile on threads, natively: wgpu's error scopes are of a thread, so each kernel has
//!   its own errors.
//!
//! WGSL of the catalogue and of `codegen` runs without bounds checks and with workgroup memory
//! not cleared; a user's WGSL runs with all of wgpu's checks.
//!
//! Absent on purpose: any choice between kernels, a cache of pipelines on disk, subgroups in a
//! browser (wgpu 30 does not pass them on), and mapping of device memory into the host. Memory that
//! the provider takes for itself (parameters, staging) is not counted in the budget.

mod bind;
mod compile;
mod device;
mod faults;
#[cfg(not(target_arch = "wasm32"))]
mod noop;
mod oneshot;
mod prepare;
mod profile;
mod resolve;
mod submit;
mod timing;
mod transfer;
mod wait;

use std::sync::{Arc, OnceLock};
#[cfg(not(target_arch = "wasm32"))]
use std::sync::{Mutex, PoisonError};

#[cfg(not(target_arch = "wasm32"))]
pub use noop::noop_device;
/// The version of wgpu whose devices [`Provider::from_device`] takes.
pub use wgpu;

#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform;
use crate::base::platform::{BROWSER, BoxFuture};
use crate::error::{Error, Result};
use crate::provider::{Device, DeviceProfile, OpenOptions};
use device::{Source, WebGpuDevice};

/// The provider of every device that wgpu finds.
pub struct Provider {
    /// Made by the first call that needs it: drivers take a tenth of a second to wake.
    instance: OnceLock<wgpu::Instance>,
    /// What was found, so that the list and `open` mean the same devices. Not kept in a browser,
    /// where an adapter opens one device only.
    found: OnceLock<Vec<wgpu::Adapter>>,
}

crate::base::debug_as!(Provider, |this| adapters: this.found.get().map(Vec::len));

impl Provider {
    /// Drivers are looked for when devices are listed. Finding none is no error: the list is empty then.
    pub fn new() -> Provider {
        Provider { instance: OnceLock::new(), found: OnceLock::new() }
    }

    fn instance(&self) -> &wgpu::Instance {
        let make = || {
            wgpu::Instance::new(wgpu::InstanceDescriptor {
                backends: wgpu::Backends::PRIMARY,
                // No debug layers: they cost time in every call and print on their own.
                flags: wgpu::InstanceFlags::empty(),
                ..wgpu::InstanceDescriptor::new_without_display_handle()
            })
        };
        // One for the process, never dropped: with the last one a driver is unloaded, and a thread
        // that had called it may crash at its end, in what the driver left there.
        #[cfg(not(target_arch = "wasm32"))]
        let make = || {
            static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            INSTANCE.get_or_init(make).clone()
        };
        self.instance.get_or_init(make)
    }

    /// A device on a `wgpu::Device` that the caller has already, sharing its queue. Limits and
    /// features are those it was made with; of `options` only the memory budget applies.
    ///
    /// The device's uncaptured-error and device-lost callbacks are replaced: errors of the
    /// caller's own calls outside of error scopes surface at `wait` too.
    pub fn from_device(
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &OpenOptions,
    ) -> Arc<dyn Device> {
        WebGpuDevice::open(device, queue, Source::default(), options)
    }

    async fn adapters(&self) -> Vec<wgpu::Adapter> {
        if BROWSER {
            // A page is given one adapter, and none is not an error of ours.
            let options = wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            };
            return self.instance().request_adapter(&options).await.into_iter().collect();
        }
        if let Some(found) = self.found.get() {
            return found.clone();
        }
        let instance = self.instance();
        let found = in_turn(|| instance.enumerate_adapters(wgpu::Backends::PRIMARY)).await;
        self.found.get_or_init(|| found).clone()
    }

    async fn open_adapter(&self, index: usize, options: OpenOptions) -> Result<Arc<dyn Device>> {
        let adapters = self.adapters().await;
        let adapter = adapters.get(index).ok_or_else(|| {
            let found = adapters.len();
            Error::invalid(format!("webgpu:{index} does not exist, {found} adapters were found"))
        })?;
        let (required_features, required_limits) = if options.floor {
            (wgpu::Features::empty(), wgpu::Limits::default())
        } else {
            (profile::features_of(adapter), adapter.limits())
        };
        let experimental = required_features.intersects(wgpu::Features::all_experimental_mask());
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("warploom"),
            required_features,
            required_limits,
            experimental_features: match experimental {
                // SAFETY: cooperative matrices are the only such feature that is asked for, and only
                // kernels of the catalogue use them, with tiles and elements of the kind the adapter lists.
                true => unsafe { wgpu::ExperimentalFeatures::enabled() },
                false => wgpu::ExperimentalFeatures::disabled(),
            },
            ..Default::default()
        };
        let opened = in_turn(|| adapter.request_device(&descriptor)).await;
        let (gpu, queue) = opened.map_err(|error| {
            let name = adapter.get_info().name;
            Error::device(format!("webgpu:{index} {name:?} cannot be opened: {error}"))
        })?;
        let half_sums = profile::has_half_sums(adapter);
        let source = Source { index, info: Some(adapter.get_info()), half_sums };
        Ok(WebGpuDevice::open(gpu, queue, source, &options))
    }
}

/// What wgpu looks for on this system.
const API: &str = match () {
    () if cfg!(target_vendor = "apple") => "Metal",
    () if cfg!(windows) => "DirectX 12 or Vulkan",
    () => "Vulkan",
};

/// Held by who looks for drivers or adapters or opens a device: NVIDIA's driver 580 for Vulkan crashed at times where one
/// thread asked for an adapter's properties and another opened a device.
#[cfg(not(target_arch = "wasm32"))]
static TURN: Mutex<()> = Mutex::new(());

/// Calls wgpu in turn with other threads. Natively it works in the call, and the future is ready.
#[cfg(not(target_arch = "wasm32"))]
async fn in_turn<T, F: Future<Output = T>>(work: impl FnOnce() -> F) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    platform::block_on(work())
}

/// A page has one thread.
#[cfg(target_arch = "wasm32")]
async fn in_turn<T, F: Future<Output = T>>(work: impl FnOnce() -> F) -> T {
    work().await
}

impl Default for Provider {
    fn default() -> Self {
        Provider::new()
    }
}

impl crate::provider::Provider for Provider {
    fn name(&self) -> &'static str {
        "webgpu"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        Box::pin(async move {
            let adapters = self.adapters().await;
            let profiles = adapters.iter().enumerate().map(|(index, adapter)| {
                let features = profile::features_of(adapter);
                let limits = adapter.limits();
                let profile = profile::profile_of(&adapter.get_info(), features, &limits, index);
                let has_half_sums = profile.has_matrix_hw && profile::has_half_sums(adapter);
                DeviceProfile { has_half_sums, ..profile }
            });
            Ok(profiles.collect())
        })
    }

    fn absence(&self) -> Option<String> {
        let nothing = self.found.get().is_some_and(Vec::is_empty);
        nothing.then(|| {
            format!("wgpu found no adapter: no driver for {API} is here, or none has a device")
        })
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        Box::pin(self.open_adapter(index, options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_driver_wakes_before_devices_are_listed() {
        assert!(Provider::new().instance.get().is_none());
    }
}
