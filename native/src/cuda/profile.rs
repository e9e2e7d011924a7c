//! Device profiles, from the driver's attributes.

use cudarc::driver::{result, sys};

use super::driver::{Driver, convert, version_text};
use super::gpu::Gpu;
use super::library::lt;
use super::nvrtc::Nvrtc;
use warploom_core::error::Result;
use warploom_hal::{DeviceKind, DeviceProfile};

/// Maximum number of storage buffers. Each takes a pointer and a word for its array length from the
/// 4 KiB of a kernel's arguments.
const MAX_STORAGE_BUFFERS: u32 = 256;
/// The range that a kernel can index with 32-bit byte offsets, in bytes, rounded down.
const MAX_BINDING_BYTES: u64 = (1 << 32) - 64;
/// Maximum number of workgroups in any dimension; CUDA allows more in x only.
const MAX_WORKGROUPS: u32 = 65_535;
/// Alignment of bindings in bytes. Kernel pointers need 16; reads aligned to cache sectors are
/// faster.
const BINDING_ALIGNMENT: u32 = 64;

/// Minimum compute capability at which tensor cores multiply f16 matrices with f32 sums.
const MATRIX_CAPABILITY: i32 = 75;

/// Returns the compute capability as `10 * major + minor`.
pub(super) fn capability(device: sys::CUdevice) -> Result<i32> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    };
    let number = |which| {
        Gpu::attribute(device, which).map_err(|error| convert("the compute capability", error))
    };
    let major = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok(10 * major + number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)
}

/// Returns the profile of a device, without opening it.
pub(super) fn profile_of(driver: &Driver, nvrtc: &Nvrtc, index: usize) -> Result<DeviceProfile> {
    use sys::CUdevice_attribute::*;
    let wrong = |error| convert(&format!("asking for cuda:{index}"), error);
    let device = result::device::get(index as i32).map_err(wrong)?;
    let number = |which| match Gpu::attribute(device, which) {
        Ok(value) => Ok(u32::try_from(value).unwrap_or(0)),
        Err(error) => Err(wrong(error)),
    };
    // SAFETY: a device that the driver returned.
    let memory_bytes = unsafe { result::device::total_mem(device) }.map_err(wrong)? as u64;
    let shared_memory = number(CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0;
    let warp = number(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    let mut profile = DeviceProfile::webgpu_floor("");
    profile.provider = "cuda".into();
    profile.index = index;
    profile.vendor = "NVIDIA".into();
    profile.name = result::device::get_name(device).map_err(wrong)?;
    profile.driver = format!(
        "CUDA {}, NVRTC {}, {}",
        version_text(driver.version),
        nvrtc.version(),
        match lt() {
            Ok(lt) => format!("cuBLASLt {}", lt.version),
            Err(_) => "no cuBLASLt".into(),
        }
    );
    profile.kind = if shared_memory { DeviceKind::Integrated } else { DeviceKind::Discrete };
    profile.shared_memory = shared_memory;
    profile.memory_bytes = memory_bytes;
    profile.has_matrix_hw = capability(device)? >= MATRIX_CAPABILITY;
    profile.has_f16_accumulate = capability(device)? >= MATRIX_CAPABILITY;
    profile.has_gemm_library = lt().is_ok();
    profile.has_subgroups = true;
    profile.subgroup_min = warp;
    profile.subgroup_max = warp;
    // f16 is two bytes in memory and f32 in registers, on every device.
    profile.has_f16 = true;
    profile.has_timestamps = true;
    profile.compute_units = number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    profile.max_threads_per_workgroup = number(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    profile.workgroup_memory_bytes = number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
    profile.max_workgroups_per_dim = MAX_WORKGROUPS;
    profile.max_storage_buffers = MAX_STORAGE_BUFFERS;
    profile.max_binding_bytes = MAX_BINDING_BYTES;
    profile.max_buffer_bytes = memory_bytes;
    profile.binding_alignment = BINDING_ALIGNMENT;
    Ok(profile.with_cuda_features())
}

/// Returns the profile of the same device at WebGPU's guaranteed limits.
pub(super) fn at_floor(profile: DeviceProfile) -> DeviceProfile {
    let floor = DeviceProfile::webgpu_floor(&profile.name);
    let floor = floor.with(|p| {
        p.provider = profile.provider;
        p.index = profile.index;
        p.vendor = profile.vendor;
        p.driver = profile.driver;
        p.kind = profile.kind;
        p.shared_memory = profile.shared_memory;
        p.memory_bytes = profile.memory_bytes;
        p.compute_units = profile.compute_units;
    });
    floor.with_cuda_features()
}
