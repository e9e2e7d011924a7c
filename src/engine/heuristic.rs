//! Cost estimates without running an engine: a roofline of bandwidth, arithmetic and launches.

use super::Cost;
use crate::provider::{DeviceKind, DeviceProfile};

/// Peak speeds behind estimates: those of the profile and its calibration if it has them, else
/// round figures of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Memory bandwidth in bytes per second, reads and writes together.
    pub bytes_per_s: f64,
    /// Floating-point operations per second.
    pub flops_per_s: f64,
    /// Seconds of one kernel launch.
    pub launch_s: f64,
    /// Threads (lanes of a software GPU, cores of a CPU) that must be busy to reach those speeds
    /// (occupancy).
    pub busy_threads: f64,
}

impl Peaks {
    /// The peaks of a device.
    pub fn of(profile: &DeviceProfile) -> Peaks {
        let units = f64::from(profile.compute_units);
        let told = |each: f64, otherwise: f64| if units > 0.0 { units * each } else { otherwise };
        let (bytes_per_s, flops_per_s, launch_s, busy_threads) = match profile.kind {
            DeviceKind::Discrete | DeviceKind::Null => {
                (1e12, told(3e11, 3e13), 2e-6, told(512.0, 5e4))
            }
            // Compute units differ too much here: an Apple core has the lanes of 16 of Intel's.
            DeviceKind::Integrated => (1e11, 3e12, 5e-6, 8192.0),
            DeviceKind::Software => (1e10, 3e10, 5e-5, 64.0),
            DeviceKind::Cpu => (told(1e10, 4e10).min(2e11), told(3e10, 1e11), 2e-6, told(1.0, 4.0)),
        };
        let bytes_per_s = match profile.local_bandwidth {
            0 => bytes_per_s,
            told => told as f64,
        };
        let measured = &profile.calibration;
        Peaks {
            bytes_per_s,
            flops_per_s: measured.flops_per_second.unwrap_or(flops_per_s),
            launch_s: measured.launch_seconds.unwrap_or(launch_s),
            busy_threads: measured.busy_threads.unwrap_or(busy_threads),
        }
    }

    /// Share of the device that this many threads keep busy, 0 to 1.
    pub fn share(&self, threads: f64) -> f64 {
        (threads / self.busy_threads).min(1.0)
    }

    /// Lower bound in seconds for this work.
    pub fn floor(&self, cost: &Cost) -> f64 {
        (cost.bytes / self.bytes_per_s).max(cost.flops / self.flops_per_s)
    }
}

/// A cost model that needs no measurements.
pub trait Heuristic: Send + Sync {
    /// Estimated seconds of an engine with this cost.
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64;
}

/// Roofline: launches, plus the longer of memory traffic and arithmetic at the share of peak speed
/// that the engine reaches.
///
/// If a profile does not report a speed, a round figure of its kind stands in: rankings compare
/// engines on one device, so only proportions matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

impl Heuristic for Roofline {
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64 {
        let peaks = Peaks::of(profile);
        cost.dispatches * peaks.launch_s + peaks.floor(cost) / cost.efficiency.max(1e-3)
    }
}
