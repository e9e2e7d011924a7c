//! The device that the window draws with, which the pictures compute on too.

use std::sync::Arc;

use eframe::egui_wgpu::{WgpuConfiguration, WgpuSetup, WgpuSetupCreateNew};
use warploom::webgpu::{Provider, wgpu};

/// Returns the settings of the window's device: of the best adapter that can draw to the window,
/// with all limits and features that kernels use, so that it can compute too.
pub fn setup() -> WgpuSetup {
    let mut setup = WgpuSetupCreateNew::without_display_handle();
    setup.instance_descriptor.backends = wgpu::Backends::PRIMARY;
    // No debug layers: they slow every call and print their own messages.
    setup.instance_descriptor.flags = wgpu::InstanceFlags::empty();
    setup.native_adapter_selector = Some(Arc::new(|adapters, surface| {
        let fits = |adapter: &&wgpu::Adapter| {
            surface.is_none_or(|surface| adapter.is_surface_supported(surface))
        };
        let best = adapters.iter().filter(fits).min_by_key(|adapter| rank(adapter));
        let none = || format!("none of {} graphics adapters can draw to a window", adapters.len());
        best.cloned().ok_or_else(none)
    }));
    setup.device_descriptor = Arc::new(Provider::descriptor);
    setup.into()
}

/// Returns the place of an adapter, the best one first.
fn rank(adapter: &wgpu::Adapter) -> u8 {
    match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Returns the configuration of the window's graphics.
pub fn configuration() -> WgpuConfiguration {
    WgpuConfiguration { wgpu_setup: setup(), ..WgpuConfiguration::default() }
}
