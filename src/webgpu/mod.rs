//! GPUs through wgpu: Vulkan, Metal and DX12 natively, WebGPU in a browser.
//!
//! `prepare` does everything that can be done once: it looks up pipelines, builds bind groups,
//! writes constant parameters and lists each varying size once. `submit` evaluates those sizes and
//! replays the recording: one encoder, one compute pass per run of consecutive dispatches, one
//! submit.
//!
//! Invariants:
//! - `submit` checks everything before it writes anything, so an error leaves no partial work.
//! - wgpu executes `Queue::write_buffer` before *all* commands of the next submit. So only data
//!   that no earlier command of the submit reads is written directly (uploads at the start of the
//!   first work, parameters of a work's first occurrence). Other data goes through a staging buffer
//!   and a copy in command order.
//! - No wgpu error panics. Errors that no call returns are recorded, and `wait` returns them.
//!   `submit` returns its own errors; in a browser, which reports them later, the next `wait` for
//!   it or for a later submit does. Downloads of a failed submit are never returned.
//! - Using the id of a freed buffer or of freed work is an error. A freed buffer's memory is
//!   released when the device is done with it, even if prepared work still names it.
//! - The callbacks access only the error record, never the device's state.
//! - On native builds kernels compile on background threads. wgpu's error scopes are per thread, so
//!   each kernel gets its own errors. A browser compiles on its own threads (`parallel_request`).
//!
//! WGSL of the catalogue and of `codegen` runs without bounds checks and without clearing of
//! workgroup memory. User WGSL runs with all wgpu checks.
//!
//! Not implemented on purpose: selection between kernels, a pipeline cache on disk and mapping of
//! device memory. Memory of the provider itself (parameters, staging) does not count towards the
//! budget.

mod bind;
#[cfg(target_arch = "wasm32")]
mod browser_subgroups;
mod compile;
mod device;
mod faults;
mod foreign;
#[cfg(not(target_arch = "wasm32"))]
mod noop;
#[cfg(target_arch = "wasm32")]
mod parallel_request;

mod prepare;
mod profile;
mod resolve;
mod submit;
mod timing;
mod transfer;
mod wait;

use std::any::Any;
use std::sync::{Arc, OnceLock};
#[cfg(not(target_arch = "wasm32"))]
use std::sync::{Mutex, PoisonError};

#[cfg(not(target_arch = "wasm32"))]
pub use noop::noop_device;
/// The version of wgpu from which [`Provider::from_device`] accepts devices.
pub use wgpu;

#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform;
use crate::base::platform::{BROWSER, BoxFuture};
use crate::error::{Error, Result};
use crate::provider::{BufferRange, Device, DeviceProfile, OpenOptions};
use device::{Source, WebGpuDevice};

/// The provider of all wgpu devices.
pub struct Provider {
    /// Created on first use: driver initialisation takes a tenth of a second.
    instance: OnceLock<wgpu::Instance>,
    /// The adapters found, so that indices of the list and of `open` agree. Not kept in a browser,
    /// where an adapter opens only one device.
    found: OnceLock<Vec<wgpu::Adapter>>,
}

crate::base::debug_as!(Provider, |this| adapters: this.found.get().map(Vec::len));

impl Provider {
    /// Creates a provider that loads drivers when devices are first listed or opened. Without
    /// drivers the list is empty, which is not an error.
    pub fn new() -> Provider {
        Provider { instance: OnceLock::new(), found: OnceLock::new() }
    }

    fn instance(&self) -> &wgpu::Instance {
        let make = || {
            wgpu::Instance::new(wgpu::InstanceDescriptor {
                backends: wgpu::Backends::PRIMARY,
                // No debug layers: they slow every call and print their own messages.
                flags: wgpu::InstanceFlags::empty(),
                ..wgpu::InstanceDescriptor::new_without_display_handle()
            })
        };
        // One per process, never dropped: dropping the last instance unloads the driver, and a
        // thread that had called it may crash in the driver's code when it ends.
        #[cfg(not(target_arch = "wasm32"))]
        let make = || {
            static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            INSTANCE.get_or_init(make).clone()
        };
        self.instance.get_or_init(make)
    }

    /// Wraps an existing `wgpu::Device` and shares its queue. Limits and features are those of that
    /// device. Of `options` only the memory budget applies.
    ///
    /// Replaces the device's uncaptured-error and device-lost callbacks. Errors of the caller's own
    /// calls outside of error scopes therefore also surface at `wait`.
    pub fn from_device(
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &OpenOptions,
    ) -> Arc<dyn Device> {
        WebGpuDevice::open(device, queue, Source::default(), options)
    }

    /// Returns the descriptor with which this provider opens an adapter: all limits, and the
    /// features that its kernels use. Useful for an application that opens the device itself, for
    /// example because it also draws with it, and then passes it to [`Provider::from_device`].
    pub fn descriptor(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
        descriptor_of(profile::features_of(adapter), adapter.limits())
    }

    /// Returns the `wgpu::Device` of a device of this provider, or `None` for other devices. The
    /// provider keeps using it, so the caller must not map or destroy buffers of the provider.
    pub fn gpu_of(device: &dyn Device) -> Option<wgpu::Device> {
        Some(as_webgpu(device)?.gpu.clone())
    }

    /// Returns the `wgpu::Buffer` that holds a range, so that a render pass can read it without a
    /// copy. Returns `None` for a device of another provider, and for a freed buffer. Before its
    /// own submit, the caller must have submitted the work that writes the range, and must not free
    /// or overwrite the range. The buffer has the usages `STORAGE`, `COPY_SRC` and `COPY_DST`.
    pub fn buffer_of(device: &dyn Device, range: BufferRange) -> Option<wgpu::Buffer> {
        Some(as_webgpu(device)?.state().buffer(range).ok()?.gpu.clone())
    }

    async fn adapters(&self) -> Vec<wgpu::Adapter> {
        if BROWSER {
            // A page gets one adapter; none is not an error.
            let options = wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            };
            let instance = self.instance();
            let mut found = instance.request_adapter(&options).await;
            // Chromium 156 on Linux answers the first request of a new GPU process with none.
            if found.is_err() {
                found = instance.request_adapter(&options).await;
            }
            return found.into_iter().collect();
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
        let descriptor = descriptor_of(required_features, required_limits);
        let request = || adapter.request_device(&descriptor);
        #[cfg(target_arch = "wasm32")]
        let request = || match options.floor {
            true => request(),
            false => browser_subgroups::with_subgroups(request),
        };
        let opened = in_turn(request).await;
        let (gpu, queue) = opened.map_err(|error| {
            let name = adapter.get_info().name;
            Error::device(format!("webgpu:{index} {name:?} cannot be opened: {error}"))
        })?;
        let f16_accumulate = profile::has_f16_accumulate(adapter);
        let source = Source { index, info: Some(adapter.get_info()), f16_accumulate };
        Ok(WebGpuDevice::open(gpu, queue, source, &options))
    }
}

/// Returns a device as one of this provider, if it is.
fn as_webgpu(device: &dyn Device) -> Option<&WebGpuDevice> {
    let any: &dyn Any = device;
    any.downcast_ref()
}

/// Returns the descriptor of a device with these features and limits.
fn descriptor_of(
    required_features: wgpu::Features,
    required_limits: wgpu::Limits,
) -> wgpu::DeviceDescriptor<'static> {
    let experimental = required_features.intersects(wgpu::Features::all_experimental_mask());
    wgpu::DeviceDescriptor {
        label: Some("warploom"),
        required_features,
        required_limits,
        experimental_features: match experimental {
            // SAFETY: cooperative matrices are the only experimental feature requested, and only
            // catalogue kernels use them, with tile sizes and element types that the adapter lists.
            true => unsafe { wgpu::ExperimentalFeatures::enabled() },
            false => wgpu::ExperimentalFeatures::disabled(),
        },
        ..Default::default()
    }
}

/// Names of the graphics APIs that wgpu uses on this system.
const API: &str = match () {
    () if cfg!(target_vendor = "apple") => "Metal",
    () if cfg!(windows) => "DirectX 12 or Vulkan",
    () => "Vulkan",
};

/// Serialises driver loading, adapter listing and device opening: NVIDIA's Vulkan driver 580
/// sometimes crashed when one thread queried an adapter's properties while another opened a device.
#[cfg(not(target_arch = "wasm32"))]
static TURN: Mutex<()> = Mutex::new(());

/// Serialises wgpu calls between threads. On native builds the call does the work and the future is
/// ready.
#[cfg(not(target_arch = "wasm32"))]
async fn in_turn<T, F: Future<Output = T>>(work: impl FnOnce() -> F) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    platform::block_on(work())
}

/// Version for browsers, where a page has one thread: makes the call directly.
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
                let has_f16_accumulate =
                    profile.has_matrix_hw && profile::has_f16_accumulate(adapter);
                profile.with(|p| p.has_f16_accumulate = has_f16_accumulate)
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
