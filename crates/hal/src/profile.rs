//! What a device is, in numbers that mean the same for every vendor.

use serde::{Deserialize, Serialize};

/// What kind of hardware stands behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU interface executed by the CPU: lavapipe, SwiftShader, PoCL.
    Software,
    /// The CPU itself, by the Rust functions of the catalogue: a device of this kind gets no WGSL.
    Cpu,
    /// Executes nothing; for tests, never selected.
    Null,
}

/// What a device is. Fields are only ever added; a plan can be made from a saved profile with
/// no device present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Provider that lists it: `webgpu`, `cuda`, `opencl`, `cpu`, `null`, or one of an application.
    pub provider: String,
    /// Position in the provider's list.
    pub index: usize,
    /// Maker, as far as the driver tells.
    pub vendor: String,
    /// Name, as the driver tells it.
    pub name: String,
    /// Driver and its version, or the instruction set of a CPU.
    pub driver: String,
    /// What stands behind it.
    pub kind: DeviceKind,
    /// Whether host and device share one memory: zero copy or transfer.
    pub shared_memory: bool,
    /// Device memory in bytes, where the system tells; 0 where it does not.
    pub memory_bytes: u64,
    /// Reading speed of device memory in bytes/s; 0 until measured.
    pub local_bandwidth: u64,
    /// Host-to-device speed in bytes/s; 0 until measured.
    pub transfer_bandwidth: u64,
    /// Whether kernels may use cooperative matrices: 16 x 16 x 16 of f16 with sums in f32.
    pub has_matrix_hw: bool,
    /// Whether these may sum in f16 besides: [`warploom::plan::Options::half_sums`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_half_sums: bool,
    /// Whether products may be calls of a vendor's library ([`warploom_kernels::Routine`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_gemm_library: bool,
    /// Whether kernels may use subgroup operations.
    pub has_subgroups: bool,
    /// Smallest subgroup, in threads; 0 without subgroups.
    pub subgroup_min: u32,
    /// Largest subgroup, in threads; 0 without subgroups.
    pub subgroup_max: u32,
    /// Whether kernels may use 16-bit floats.
    pub has_f16: bool,
    /// Whether prepared work can write timestamps.
    pub has_timestamps: bool,
    /// Multiprocessors, or cores of a CPU; 0 where not told.
    pub compute_units: u32,
    /// Threads in a workgroup.
    pub max_threads_per_workgroup: u32,
    /// Memory of a workgroup, in bytes.
    pub workgroup_memory_bytes: u32,
    /// Workgroups in one dimension of a dispatch.
    pub max_workgroups_per_dim: u32,
    /// Storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Bytes that one binding may cover.
    pub max_binding_bytes: u64,
    /// Bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// What the offset of a binding must be a multiple of, in bytes.
    pub binding_alignment: u32,
}

impl DeviceProfile {
    /// `provider:index`, the name by which the device can be asked for.
    pub fn id(&self) -> String {
        format!("{}:{}", self.provider, self.index)
    }

    /// The name by which what is the fastest on such devices is kept in the folder of a pack.
    pub fn tuned_name(&self) -> String {
        format!("{} {}", self.provider, self.name)
    }

    /// A device that offers what WebGPU guarantees everywhere, and no more.
    pub fn webgpu_floor(name: &str) -> DeviceProfile {
        DeviceProfile {
            provider: "webgpu".into(),
            index: 0,
            vendor: String::new(),
            name: name.into(),
            driver: String::new(),
            kind: DeviceKind::Discrete,
            shared_memory: false,
            memory_bytes: 0,
            local_bandwidth: 0,
            transfer_bandwidth: 0,
            has_matrix_hw: false,
            has_half_sums: false,
            has_gemm_library: false,
            has_subgroups: false,
            subgroup_min: 0,
            subgroup_max: 0,
            has_f16: false,
            has_timestamps: false,
            compute_units: 0,
            max_threads_per_workgroup: 256,
            workgroup_memory_bytes: 16 << 10,
            max_workgroups_per_dim: 65_535,
            max_storage_buffers: 8,
            max_binding_bytes: 128 << 20,
            max_buffer_bytes: 256 << 20,
            binding_alignment: 256,
        }
    }
}
