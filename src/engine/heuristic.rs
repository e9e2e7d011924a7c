//! Cost estimates without running an engine: a roofline of bandwidth, arithmetic and launches.

use super::Cost;
use crate::provider::{DeviceKind, DeviceProfile};

/// Peak speeds for estimates: from the profile and its calibration if known, otherwise rough
/// defaults for the device kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Memory bandwidth in bytes per second, reads and writes together.
    pub bytes_per_s: f64,
    /// Floating-point operations per second.
    pub flops_per_s: f64,
    /// Seconds per kernel launch.
    pub launch_s: f64,
    /// Threads (lanes of a software GPU, cores of a CPU) that must be busy to reach those speeds
    /// (occupancy).
    pub busy_threads: f64,
}

impl Peaks {
    /// Returns the peaks of a device.
    pub fn of(profile: &DeviceProfile) -> Peaks {
        let units = f64::from(profile.compute_units);
        let scaled = |each: f64, otherwise: f64| if units > 0.0 { units * each } else { otherwise };
        let (bytes_per_s, flops_per_s, launch_s, busy_threads) = match profile.kind {
            DeviceKind::Discrete | DeviceKind::Null => {
                (1e12, scaled(3e11, 3e13), 2e-6, scaled(512.0, 5e4))
            }
            // Compute units differ too much here: an Apple core has the lanes of 16 of Intel's.
            DeviceKind::Integrated => (1e11, 3e12, 5e-6, 8192.0),
            DeviceKind::Software => (1e10, 3e10, 5e-5, 64.0),
            DeviceKind::Cpu => {
                (scaled(1e10, 4e10).min(2e11), scaled(3e10, 1e11), 2e-6, scaled(1.0, 4.0))
            }
        };
        let bytes_per_s = match profile.local_bandwidth {
            0 => bytes_per_s,
            reported => reported as f64,
        };
        let measured = &profile.calibration;
        Peaks {
            bytes_per_s,
            flops_per_s: measured.flops_per_second.unwrap_or(flops_per_s),
            launch_s: measured.launch_seconds.unwrap_or(launch_s),
            busy_threads: measured.busy_threads.unwrap_or(busy_threads),
        }
    }

    /// Returns the fraction of the device that `threads` threads keep busy, from 0 to 1.
    pub fn share(&self, threads: f64) -> f64 {
        (threads / self.busy_threads).min(1.0)
    }

    /// Returns a lower bound on the seconds for this cost: the longer of memory time and arithmetic
    /// time at peak speed.
    pub fn floor(&self, cost: &Cost) -> f64 {
        (cost.bytes / self.bytes_per_s).max(cost.flops / self.flops_per_s)
    }
}

/// A cost model that needs no measurements.
pub trait Heuristic: Send + Sync {
    /// Estimates the seconds that an engine with this cost takes.
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64;
}

/// Roofline: launch time, plus the longer of memory time and arithmetic time at the fraction of
/// peak speed that the engine reaches.
///
/// If a profile does not report a speed, a rough default for the device kind is used: rankings
/// compare engines on one device, so only proportions matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

impl Heuristic for Roofline {
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64 {
        let peaks = Peaks::of(profile);
        cost.dispatches * peaks.launch_s + peaks.floor(cost) / cost.efficiency.max(1e-3)
    }
}
