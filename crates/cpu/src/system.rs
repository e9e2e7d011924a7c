//! Properties of the machine: cores, memory, and the profile of its CPU.

use super::arch::Arch;
use warploom_hal::{DeviceKind, DeviceProfile};

/// Returns the number of cores available to the process; at least 1.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the profile of the CPU with this number of threads.
pub(super) fn profile(arch: &Arch, threads: usize) -> DeviceProfile {
    let (vendor, name) = identity();
    let memory_bytes = memory_bytes();
    let mut profile = DeviceProfile::webgpu_floor("");
    profile.provider = "cpu".into();
    profile.vendor = vendor;
    profile.name = name;
    profile.driver = arch.name.into();
    profile.kind = DeviceKind::Cpu;
    profile.shared_memory = true;
    profile.memory_bytes = memory_bytes;
    profile.has_timestamps = super::clock::AVAILABLE;
    profile.compute_units = threads as u32;
    profile.max_threads_per_workgroup = 1 << 16;
    profile.workgroup_memory_bytes = u32::MAX;
    profile.max_workgroups_per_dim = u32::MAX;
    profile.max_storage_buffers = 16;
    profile.max_binding_bytes = u64::MAX / 2;
    profile.max_buffer_bytes = if memory_bytes > 0 { memory_bytes } else { isize::MAX as u64 };
    profile.binding_alignment = super::memory::ALIGNMENT as u32;
    profile
}

/// Returns the CPU's vendor and name, from `cpuid` on x86-64 and from `/proc/cpuinfo` elsewhere.
fn identity() -> (String, String) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        let text = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let text = String::from_utf8_lossy(&bytes);
            text.trim_matches(['\0', ' ']).to_string()
        };
        let first = __cpuid(0);
        let vendor = text(&[first.ebx, first.edx, first.ecx]);
        if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
            let words: Vec<u32> = (0x8000_0002..=0x8000_0004)
                .map(__cpuid)
                .flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx])
                .collect();
            return (vendor, text(&words));
        }
        (vendor, "x86_64 CPU".into())
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let name = field("model name").or_else(|| field("Model")).or_else(|| field("Hardware"));
        let vendor = field("CPU implementer").unwrap_or_default();
        (vendor, name.unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH)))
    }
}

/// Returns the size of the memory in bytes, at most the control group's limit; 0 if unknown.
fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| {
        let kilobytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
        kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    match (total, limit) {
        (Some(total), Some(limit)) => total.min(limit),
        (total, _) => total.unwrap_or(0),
    }
}
