//! Properties of devices, in units that mean the same for every vendor.

use serde::{Deserialize, Serialize};

use super::calibration::Calibration;

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
    /// The CPU, which runs Rust functions for the kernels of the catalogue instead of WGSL.
    Cpu,
    /// A device that executes nothing. For tests; never selected automatically.
    Null,
}

impl DeviceKind {
    /// Returns what lists of devices call this kind.
    pub fn title(self) -> &'static str {
        match self {
            DeviceKind::Discrete => "discrete GPU",
            DeviceKind::Integrated => "integrated GPU",
            DeviceKind::Software => "software GPU",
            DeviceKind::Cpu => "CPU",
            DeviceKind::Null => "null",
        }
    }
}

/// Properties of a device. A plan can be made from a saved profile without the device.
///
/// Later versions may add fields, so other crates cannot create a profile with a struct expression:
/// they start from [`DeviceProfile::webgpu_floor`] and call [`DeviceProfile::with`].
///
/// ```
/// # use warploom_hal::DeviceProfile;
/// let profile = DeviceProfile::webgpu_floor("my device").with(|p| {
///     p.provider = "mine".into();
///     p.compute_units = 24;
///     p.has_device_scope_barrier = true;
///     p.calibration.launch_seconds = Some(4e-6);
/// });
/// assert_eq!(profile.id(), "mine:0");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// Whether kernels may use cooperative matrices of 16 x 16 x 16 with f16 operands and f32 sums.
    pub has_matrix_hw: bool,
    /// Whether cooperative matrices also support f16 sums, which `Options::f16_accumulate` allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_f16_accumulate: bool,
    /// Whether matrix products may call a vendor's GEMM library ([`warploom_kernels::Routine`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_gemm_library: bool,
    /// Whether the provider calls a vendor's GEMM library if one is installed. If none is, plans
    /// report it as missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supports_gemm_library: bool,
    /// Whether subgroups of 32 threads can multiply int8 matrices in hardware, as
    /// `shaders/shared/mma_int8.wgsl` requires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_int8_mma: bool,
    /// Whether a kernel may start before the previous one is done and wait on the device where it
    /// first depends on it (programmatic dependent launch).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_launch_overlap: bool,
    /// Whether `storageBarrier` orders memory between workgroups. If so, a workgroup that has seen
    /// another workgroup change an atomic word after a barrier also sees, by atomic reads, what
    /// that workgroup stored before the barrier. WGSL does not guarantee this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_device_scope_barrier: bool,
    /// Whether the device lowers its clock between runs. A runtime then keeps it busy with a
    /// keep-alive kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_drops_when_idle: bool,
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
    /// Number of multiprocessors, or of cores of a CPU; 0 if unknown.
    pub compute_units: u32,
    /// Maximum number of threads in a workgroup.
    pub max_threads_per_workgroup: u32,
    /// Maximum workgroup memory of a kernel in bytes.
    pub workgroup_memory_bytes: u32,
    /// Maximum number of workgroups in one dimension of a dispatch.
    pub max_workgroups_per_dim: u32,
    /// Maximum number of storage buffers that one kernel may bind.
    pub max_storage_buffers: u32,
    /// Maximum size of one binding in bytes.
    pub max_binding_bytes: u64,
    /// Maximum size of one buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Required alignment of a binding's offset, in bytes.
    pub binding_alignment: u32,
    /// Measured constants of this class of devices.
    #[serde(default, skip_serializing_if = "Calibration::is_default")]
    pub calibration: Calibration,
}

impl DeviceProfile {
    /// Returns `provider:index`, the name that selects the device.
    pub fn id(&self) -> String {
        format!("{}:{}", self.provider, self.index)
    }

    /// Returns the key under which a kernel pack stores tuning results for devices like this one.
    pub fn tuned_name(&self) -> String {
        format!("{} {}", self.provider, self.name)
    }

    /// Returns the optional features that the device has, in words, for lists of devices:
    /// `subgroups 8-32`, `f16`.
    pub fn features(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.has_subgroups {
            let (min, max) = (self.subgroup_min, self.subgroup_max);
            all.push(match min == max {
                true => format!("subgroups {min}"),
                false => format!("subgroups {min}-{max}"),
            });
        }
        let flags = [
            (self.has_f16, "f16"),
            (self.has_matrix_hw, "matrix"),
            (self.has_gemm_library, "library products"),
            (self.has_timestamps, "timestamps"),
            (self.shared_memory, "shared memory"),
        ];
        all.extend(flags.iter().filter(|flag| flag.0).map(|flag| flag.1.to_owned()));
        all
    }

    /// Creates the profile of a device with exactly the limits that WebGPU guarantees and no
    /// optional feature.
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
            supports_gemm_library: false,
            has_int8_mma: false,
            has_launch_overlap: false,
            has_device_scope_barrier: false,
            clock_drops_when_idle: false,
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
            calibration: Calibration::new(),
        }
    }

    /// Returns the profile with the fields changed by `change`.
    pub fn with(mut self, change: impl FnOnce(&mut DeviceProfile)) -> DeviceProfile {
        change(&mut self);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_that_the_device_has() {
        let floor = DeviceProfile::webgpu_floor("Test GPU");
        assert!(floor.features().is_empty());
        let profile = floor.with(|p| {
            (p.has_subgroups, p.subgroup_min, p.subgroup_max) = (true, 8, 32);
            p.has_f16 = true;
        });
        assert_eq!(profile.features(), ["subgroups 8-32", "f16"]);
        let fixed = profile.with(|p| p.subgroup_min = 32);
        assert_eq!(fixed.features()[0], "subgroups 32");
    }
}
