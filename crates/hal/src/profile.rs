//! Device properties, in units that mean the same for every vendor.

use serde::{Deserialize, Serialize};

/// Kind of hardware behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the memory of the host.
    Integrated,
    /// A GPU API implemented on the CPU: lavapipe, SwiftShader, PoCL.
    Software,
    /// The CPU, through the Rust functions of the catalogue; it receives no WGSL.
    Cpu,
    /// Executes nothing. For tests; never selected automatically.
    Null,
}

/// Properties of a device. Fields are only ever added. A plan can be made from a saved profile
/// without the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Provider of the device: `webgpu`, `cuda`, `opencl`, `cpu`, `null`, or an application's own.
    pub provider: String,
    /// Position in the provider's list.
    pub index: usize,
    /// Vendor, as the driver reports it.
    pub vendor: String,
    /// Name, as the driver reports it.
    pub name: String,
    /// Driver and its version, or the instruction set of a CPU.
    pub driver: String,
    /// Kind of hardware.
    pub kind: DeviceKind,
    /// Whether host and device share memory, so that no transfer is needed.
    pub shared_memory: bool,
    /// Device memory in bytes; 0 if the system does not report it.
    pub memory_bytes: u64,
    /// Read bandwidth of device memory in bytes/s; 0 until measured.
    pub local_bandwidth: u64,
    /// Host-to-device bandwidth in bytes/s; 0 until measured.
    pub transfer_bandwidth: u64,
    /// Whether kernels may use cooperative matrices: 16 x 16 x 16, f16 operands, f32 sums.
    pub has_matrix_hw: bool,
    /// Whether these also support f16 sums: `Options::f16_accumulate`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_f16_accumulate: bool,
    /// Whether products may call a vendor's GEMM library ([`warploom_kernels::Routine`]).
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
    /// Multiprocessors, or cores of a CPU; 0 if unknown.
    pub compute_units: u32,
    /// Largest number of threads in a workgroup.
    pub max_threads_per_workgroup: u32,
    /// Workgroup memory in bytes.
    pub workgroup_memory_bytes: u32,
    /// Largest number of workgroups in one dimension of a dispatch.
    pub max_workgroups_per_dim: u32,
    /// Largest number of storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Largest size of one binding in bytes.
    pub max_binding_bytes: u64,
    /// Largest size of one buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Required alignment of a binding's offset, in bytes.
    pub binding_alignment: u32,
}

impl DeviceProfile {
    /// `provider:index`, the name that selects the device.
    pub fn id(&self) -> String {
        format!("{}:{}", self.provider, self.index)
    }

    /// The key of the tuning results for such devices in the folder of a pack.
    pub fn tuned_name(&self) -> String {
        format!("{} {}", self.provider, self.name)
    }

    /// A device with exactly the limits that WebGPU guarantees.
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
            has_f16_accumulate: false,
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
