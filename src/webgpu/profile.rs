//! Converts a wgpu adapter or device description to a [`DeviceProfile`].

use crate::provider::{DeviceKind, DeviceProfile};

/// Optional features that are used if an adapter has them.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::SHADER_F16
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
}

/// The wanted features that an adapter has. Cooperative matrices are enabled only in the one
/// configuration that the kernels use, and only if buffers support f16.
pub(super) fn features_of(adapter: &wgpu::Adapter) -> wgpu::Features {
    let features = wanted_features() & adapter.features();
    let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let usable = features.contains(wgpu::Features::SHADER_F16)
        && has_matrices(adapter, wgpu::CooperativeScalarType::F32);
    if usable { features } else { features - matrices }
}

/// Whether its cooperative matrices also accumulate in f16.
pub(super) fn has_f16_accumulate(adapter: &wgpu::Adapter) -> bool {
    has_matrices(adapter, wgpu::CooperativeScalarType::F16)
}

/// Whether an adapter supports cooperative matrices of 16 x 16 f16 with this accumulator type.
fn has_matrices(adapter: &wgpu::Adapter, sums: wgpu::CooperativeScalarType) -> bool {
    let fits = |p: &wgpu::CooperativeMatrixProperties| {
        let types = (p.ab_type, p.cr_type);
        [p.m_size, p.n_size, p.k_size] == [16; 3]
            && types == (wgpu::CooperativeScalarType::F16, sums)
    };
    adapter.cooperative_matrix_properties().iter().any(fits)
}

/// The profile of a device with these features and limits.
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
    let has_subgroups = features.contains(wgpu::Features::SUBGROUP);
    let timestamps =
        wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
    let storage = limits.min_storage_buffer_offset_alignment;
    let uniform = limits.min_uniform_buffer_offset_alignment;
    DeviceProfile {
        index,
        vendor: vendor(info.vendor),
        name: info.name.clone(),
        driver: driver(info),
        kind,
        shared_memory: matches!(kind, DeviceKind::Integrated | DeviceKind::Software),
        has_matrix_hw: features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
        // Known from the adapter's properties, not from a feature.
        has_f16_accumulate: false,
        has_subgroups,
        subgroup_min: if has_subgroups { info.subgroup_min_size } else { 0 },
        subgroup_max: if has_subgroups { info.subgroup_max_size } else { 0 },
        has_f16: features.contains(wgpu::Features::SHADER_F16),
        has_timestamps: features.contains(timestamps),
        max_threads_per_workgroup: limits.max_compute_invocations_per_workgroup,
        workgroup_memory_bytes: limits.max_compute_workgroup_storage_size,
        max_workgroups_per_dim: limits.max_compute_workgroups_per_dimension,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        max_buffer_bytes: limits.max_buffer_size,
        binding_alignment: storage.max(uniform),
        ..DeviceProfile::webgpu_floor("")
    }
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
