//! Converts a wgpu adapter or device description to a [`DeviceProfile`].

use crate::provider::{DeviceKind, DeviceProfile};

/// Returns the optional features that are used if an adapter has them.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::SHADER_F16
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
}

/// Returns the wanted features that an adapter has. Cooperative matrices are enabled only in the
/// one configuration that the kernels use, and only if buffers support f16.
pub(super) fn features_of(adapter: &wgpu::Adapter) -> wgpu::Features {
    let features = wanted_features() & adapter.features();
    let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let usable = features.contains(wgpu::Features::SHADER_F16)
        && has_matrices(adapter, wgpu::CooperativeScalarType::F32);
    if usable { features } else { features - matrices }
}

/// Returns whether an adapter's cooperative matrices also accumulate in f16.
pub(super) fn has_f16_accumulate(adapter: &wgpu::Adapter) -> bool {
    has_matrices(adapter, wgpu::CooperativeScalarType::F16)
}

/// Returns whether an adapter supports cooperative matrices of 16 x 16 f16 with this accumulator
/// type.
fn has_matrices(adapter: &wgpu::Adapter, sums: wgpu::CooperativeScalarType) -> bool {
    let fits = |p: &wgpu::CooperativeMatrixProperties| {
        let types = (p.ab_type, p.cr_type);
        [p.m_size, p.n_size, p.k_size] == [16; 3]
            && types == (wgpu::CooperativeScalarType::F16, sums)
    };
    adapter.cooperative_matrix_properties().iter().any(fits)
}

/// Returns the profile of a device with these features and limits.
pub(super) fn profile_of(
    info: &wgpu::AdapterInfo,
    features: wgpu::Features,
    limits: &wgpu::Limits,
    index: usize,
) -> DeviceProfile {
    let kind = match (info.backend, info.device_type) {
        (wgpu::Backend::Noop, _) => DeviceKind::Null,
        (_, wgpu::DeviceType::Cpu) => DeviceKind::Software,
        (_, wgpu::DeviceType::IntegratedGpu) => DeviceKind::Integrated,
        // Browsers and virtual machines do not report it; assuming that transfers are needed is
        // safe.
        _ => DeviceKind::Discrete,
    };
    // NVIDIA's driver was observed to order memory at barriers, over 24,000 barriers of up to 1,056
    // workgroups.
    let nvidia = kind == DeviceKind::Discrete
        && info.backend == wgpu::Backend::Vulkan
        && vendor(info.vendor) == "NVIDIA";
    let has_subgroups = features.contains(wgpu::Features::SUBGROUP);
    let timestamps =
        wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
    let storage = limits.min_storage_buffer_offset_alignment;
    let uniform = limits.min_uniform_buffer_offset_alignment;
    DeviceProfile::webgpu_floor("").with(|p| {
        p.index = index;
        p.vendor = vendor(info.vendor);
        p.name = info.name.clone();
        p.driver = driver(info);
        p.kind = kind;
        p.shared_memory = matches!(kind, DeviceKind::Integrated | DeviceKind::Software);
        p.has_matrix_hw = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
        // Known from the adapter's properties, not from a feature.
        p.has_f16_accumulate = false;
        p.has_device_scope_barrier = nvidia;
        // A CUDA context keeps the clock high by itself, wgpu does not.
        p.clock_drops_when_idle = kind == DeviceKind::Discrete;
        p.has_subgroups = has_subgroups;
        p.subgroup_min = if has_subgroups { info.subgroup_min_size } else { 0 };
        p.subgroup_max = if has_subgroups { info.subgroup_max_size } else { 0 };
        p.has_f16 = features.contains(wgpu::Features::SHADER_F16);
        p.has_timestamps = features.contains(timestamps);
        p.max_threads_per_workgroup = limits.max_compute_invocations_per_workgroup;
        p.workgroup_memory_bytes = limits.max_compute_workgroup_storage_size;
        p.max_workgroups_per_dim = limits.max_compute_workgroups_per_dimension;
        p.max_storage_buffers = limits.max_storage_buffers_per_shader_stage;
        p.max_binding_bytes = limits.max_storage_buffer_binding_size;
        p.max_buffer_bytes = limits.max_buffer_size;
        p.binding_alignment = storage.max(uniform);
    })
}

fn vendor(id: u32) -> String {
    match id {
        0 => String::new(),
        0x10DE => "NVIDIA".into(),
        0x1002 => "AMD".into(),
        0x8086 => "Intel".into(),
        0x106B => "Apple".into(),
        0x13B5 => "ARM".into(),
        0x5143 => "Qualcomm".into(),
        0x1010 => "Imagination".into(),
        0x1414 => "Microsoft".into(),
        0x1AE0 => "Google".into(),
        0x10005 => "Mesa".into(),
        other => format!("{other:#06x}"),
    }
}

fn driver(info: &wgpu::AdapterInfo) -> String {
    let backend = format!("{:?}", info.backend);
    let parts = [backend.as_str(), &info.driver, &info.driver_info];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(kind: wgpu::DeviceType, backend: wgpu::Backend, vendor: u32) -> DeviceProfile {
        let mut info = wgpu::AdapterInfo::new(kind, backend);
        info.vendor = vendor;
        profile_of(&info, wgpu::Features::empty(), &wgpu::Limits::default(), 0)
    }

    #[test]
    fn the_clock_of_discrete_gpus_drops() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};
        let drops = |kind| profile(kind, wgpu::Backend::Vulkan, 0).clock_drops_when_idle;
        assert_eq!([DiscreteGpu, IntegratedGpu, Cpu].map(drops), [true, false, false]);
    }

    #[test]
    fn barriers_of_nvidia_on_vulkan_order_device_memory() {
        use wgpu::Backend::{Dx12, Vulkan};
        use wgpu::DeviceType::{DiscreteGpu, IntegratedGpu};
        let orders =
            |(kind, backend, vendor)| profile(kind, backend, vendor).has_device_scope_barrier;
        assert!(orders((DiscreteGpu, Vulkan, 0x10DE)));
        for other in [
            (IntegratedGpu, Vulkan, 0x10DE),
            (DiscreteGpu, Dx12, 0x10DE),
            (DiscreteGpu, Vulkan, 0x1002),
        ] {
            assert!(!orders(other), "{other:?}");
        }
    }
}
