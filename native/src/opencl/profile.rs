//! Device profiles, from the drivers' queries.

use cl3::device as info;
use cl3::types::cl_device_id;
use cl3::{device, platform};

use super::cl::{Cl, Code, DeviceId, number};
use warploom_core::error::{Error, Result};
use warploom_hal::{DeviceKind, DeviceProfile};

/// Size of a kernel's arguments per buffer, in bytes: the pointer, the offset, the array length.
const BUFFER_ARGUMENTS: u64 = 8 + 8 + 4;
/// Alignment of bindings, in bytes: kernels read 16 bytes at once, and reads aligned to a cache
/// line are faster. The device's own requirement is for sub-buffers, which are not used.
const BINDING_ALIGNMENT: u32 = 64;
/// Upper limit on the number of storage buffers in a profile: more than any kernel uses.
const MAX_BUFFERS: u64 = 64;
/// Query of `cl_intel_required_subgroup_size`, which `cl3` does not name. It returns a list of
/// `size_t`.
const SUB_GROUP_SIZES_INTEL: info::cl_device_info = 0x4108;
/// Maximum number of workgroups in a dimension: WebGPU's guarantee. OpenCL itself has no limit, and
/// its drivers do not report theirs.
const MAX_GROUPS: u32 = 65_535;

/// A device that was found on a platform.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) id: DeviceId,
    pub(super) profile: DeviceProfile,
    /// Extensions, separated by spaces.
    pub(super) extensions: String,
}

/// Finds every device of every platform that can compile and execute kernels, in the loader's
/// order.
///
/// # Errors
/// Unsupported, with the reason, if there is no OpenCL on this machine; device if there is, but it
/// fails.
pub(super) fn find() -> Result<Vec<Found>> {
    let platforms = match platform::get_platform_ids() {
        Ok(platforms) => platforms,
        Err(code) => return Err(absent(Code(code))),
    };
    if platforms.is_empty() {
        return Err(absent(Code(cl3::error_codes::CL_PLATFORM_NOT_FOUND_KHR)));
    }
    let mut found = Vec::new();
    for platform in platforms {
        let asked = info::CL_DEVICE_TYPE_ALL;
        // A platform without devices returns an error.
        for id in device::get_device_ids(platform, asked).unwrap_or_default() {
            match read(id, found.len()) {
                Ok(Some(device)) => found.push(device),
                Ok(None) => {}
                Err(code) => {
                    tracing::warn!("opencl: a device without properties: {code}")
                }
            }
        }
    }
    Ok(found)
}

fn absent(code: Code) -> Error {
    match code.0 {
        cl3::error_codes::DLOPEN_RUNTIME_LOAD_FAILED => Error::unsupported(
            "the library libOpenCL.so.1 (OpenCL.dll on Windows) is not installed, or does not load",
        ),
        cl3::error_codes::CL_PLATFORM_NOT_FOUND_KHR => Error::unsupported(
            "OpenCL's loader finds no driver (on Linux they are listed in /etc/OpenCL/vendors)",
        ),
        _ => Error::device(format!("OpenCL does not list its platforms: {code}")),
    }
}

fn text(id: cl_device_id, what: info::cl_device_info) -> Cl<String> {
    let bytes = device::get_device_data(id, what)?;
    Ok(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_owned())
}

fn value(id: cl_device_id, what: info::cl_device_info) -> Cl<u64> {
    Ok(number(&device::get_device_data(id, what)?))
}

/// Reads the properties of the device with this id; `None` if it is unusable.
fn read(id: cl_device_id, index: usize) -> Cl<Option<Found>> {
    let works = value(id, info::CL_DEVICE_AVAILABLE)? != 0
        && value(id, info::CL_DEVICE_COMPILER_AVAILABLE)? != 0
        && value(id, info::CL_DEVICE_ENDIAN_LITTLE)? != 0;
    let kind = value(id, info::CL_DEVICE_TYPE)?;
    if !works || kind & info::CL_DEVICE_TYPE_CUSTOM != 0 {
        return Ok(None);
    }
    let shared = value(id, info::CL_DEVICE_HOST_UNIFIED_MEMORY)? != 0;
    let kind = match kind {
        kind if kind & info::CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Software,
        _ if shared => DeviceKind::Integrated,
        _ => DeviceKind::Discrete,
    };
    let extensions = text(id, info::CL_DEVICE_EXTENSIONS)?;
    let subgroups = subgroups(id, &extensions);
    let largest = value(id, info::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
    let arguments = value(id, info::CL_DEVICE_MAX_PARAMETER_SIZE)?;
    let threads = max_threads(
        value(id, info::CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
        &device::get_device_data(id, info::CL_DEVICE_MAX_WORK_ITEM_SIZES)?,
    );
    let mut profile = DeviceProfile::webgpu_floor("");
    profile.provider = "opencl".into();
    profile.index = index;
    profile.vendor = vendor(&text(id, info::CL_DEVICE_VENDOR)?);
    profile.name = text(id, info::CL_DEVICE_NAME)?;
    profile.driver = driver(id)?;
    profile.kind = kind;
    profile.shared_memory = shared;
    profile.memory_bytes = value(id, info::CL_DEVICE_GLOBAL_MEM_SIZE)?;
    profile.has_subgroups = subgroups.is_some();
    profile.subgroup_min = subgroups.map_or(0, |(least, _)| least);
    profile.subgroup_max = subgroups.map_or(0, |(_, most)| most);
    // f16 values are loaded and stored by core functions, and computed in `f32`.
    profile.has_f16 = true;
    profile.has_timestamps = true;
    profile.compute_units = whole(value(id, info::CL_DEVICE_MAX_COMPUTE_UNITS)?);
    profile.max_threads_per_workgroup = threads;
    profile.workgroup_memory_bytes = whole(value(id, info::CL_DEVICE_LOCAL_MEM_SIZE)?);
    profile.max_workgroups_per_dim = MAX_GROUPS;
    profile.max_storage_buffers = storage_buffers(arguments);
    profile.max_binding_bytes = largest;
    profile.max_buffer_bytes = largest;
    profile.binding_alignment = BINDING_ALIGNMENT;
    Ok(Some(Found { id: DeviceId(id), profile, extensions }))
}

/// Returns the profile of the same device at WebGPU's guaranteed limits, without optional features.
pub(super) fn at_floor(profile: &DeviceProfile) -> DeviceProfile {
    let floor = DeviceProfile::webgpu_floor("");
    profile.clone().with(|p| {
        p.has_subgroups = false;
        p.subgroup_min = 0;
        p.subgroup_max = 0;
        p.has_f16 = false;
        p.has_timestamps = false;
        p.max_threads_per_workgroup = floor.max_threads_per_workgroup;
        p.workgroup_memory_bytes = floor.workgroup_memory_bytes;
        p.max_storage_buffers = floor.max_storage_buffers;
        p.max_binding_bytes = profile.max_binding_bytes.min(floor.max_binding_bytes);
        p.max_buffer_bytes = profile.max_buffer_bytes.min(floor.max_buffer_bytes);
    })
}

fn whole(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns the maximum number of threads of a workgroup. Kernels use one dimension for all threads,
/// so the limit of the first dimension applies too.
fn max_threads(group: u64, dimensions: &[u8]) -> u32 {
    let first = number(dimensions.get(..size_of::<usize>()).unwrap_or_default());
    whole(group.min(first.max(1)))
}

fn storage_buffers(argument_bytes: u64) -> u32 {
    // The parameter block uses one of them.
    whole((argument_bytes / BUFFER_ARGUMENTS).saturating_sub(1).clamp(8, MAX_BUFFERS))
}

fn vendor(reported: &str) -> String {
    let known = [
        ("NVIDIA", "NVIDIA"),
        ("Advanced Micro Devices", "AMD"),
        ("AuthenticAMD", "AMD"),
        ("Intel", "Intel"),
        ("Apple", "Apple"),
        ("ARM", "ARM"),
        ("QUALCOMM", "Qualcomm"),
    ];
    let known = known.iter().find(|(part, _)| reported.contains(part));
    known.map_or_else(|| reported.to_owned(), |(_, name)| (*name).to_owned())
}

/// Returns the OpenCL version with the driver's suffix, then the driver's own version, as in
/// `OpenCL 3.0 PoCL HSTR: ..., 3.1+debian`.
fn driver(id: cl_device_id) -> Cl<String> {
    let parts = [text(id, info::CL_DEVICE_VERSION)?, text(id, info::CL_DRIVER_VERSION)?];
    Ok(parts.join(", "))
}

/// Returns the minimum and maximum sub-group size, if the device has WGSL's shuffles and reports
/// its sizes.
fn subgroups(id: cl_device_id, extensions: &str) -> Option<(u32, u32)> {
    let needed = ["cl_khr_subgroups", "cl_khr_subgroup_shuffle"];
    if !needed.into_iter().all(|name| has_extension(extensions, name)) {
        return None;
    }
    let one = |what| value(id, what).ok().filter(|size| *size > 0).map(|size| (size, size));
    let list = || {
        let bytes = device::get_device_data(id, SUB_GROUP_SIZES_INTEL).ok()?;
        let sizes = bytes.chunks_exact(size_of::<usize>()).map(number);
        Some((sizes.clone().min()?, sizes.max()?))
    };
    let reported = list()
        .or_else(|| one(info::CL_DEVICE_WAVEFRONT_WIDTH_AMD))
        .or_else(|| one(info::CL_DEVICE_WARP_SIZE_NV));
    // A vendor's query returns garbage if another vendor reuses its number.
    reported
        .filter(|(least, most)| (4..=128).contains(least) && (4..=128).contains(most))
        .map(|(least, most)| (whole(least), whole(most)))
}

/// Returns whether a list of extensions contains this one.
pub(super) fn has_extension(extensions: &str, name: &str) -> bool {
    extensions.split_whitespace().any(|has| has == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_driver_within_what_kernels_need() {
        // OpenCL guarantees 1,024 bytes of arguments.
        assert_eq!(storage_buffers(1024), 50);
        assert_eq!(storage_buffers(4352), 64);
        assert_eq!(storage_buffers(128), 8);
        let sizes = [64usize, 2048, 2048].map(usize::to_ne_bytes).concat();
        assert_eq!(max_threads(1024, &sizes), 64);
        assert_eq!(max_threads(32, &sizes), 32);
        assert_eq!(number(&7u32.to_ne_bytes()), 7);
        assert_eq!(number(&(9u64 << 33).to_ne_bytes()), 9 << 33);
        assert_eq!(vendor("NVIDIA Corporation"), "NVIDIA");
        assert_eq!(vendor("Some Maker"), "Some Maker");
        assert!(has_extension("cl_khr_a cl_khr_subgroups", "cl_khr_subgroups"));
        assert!(!has_extension("cl_khr_subgroups_of_mine", "cl_khr_subgroups"));
    }

    #[test]
    fn what_is_absent_is_said_in_words() {
        let text = absent(Code(cl3::error_codes::DLOPEN_RUNTIME_LOAD_FAILED)).to_string();
        assert!(text.contains("libOpenCL"), "{text}");
        let text = absent(Code(cl3::error_codes::CL_PLATFORM_NOT_FOUND_KHR)).to_string();
        assert!(text.contains("driver"), "{text}");
        let text = absent(Code(-5)).to_string();
        assert!(text.contains("CL_OUT_OF_RESOURCES (-5)"), "{text}");
    }
}
