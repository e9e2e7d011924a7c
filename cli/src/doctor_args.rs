//! The options of `warploom doctor`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom doctor
  warploom doctor --device webgpu:0 --json > report.json     # to attach to a bug report
  warploom doctor --seconds 120 --cases 1000                 # every case
  warploom doctor --forget                                   # plans use every engine again

Engines that fail are recorded for this device, driver and version of warploom. Plans exclude them,
as `explain` shows, until a later run passes. WARPLOOM_DOCTOR=off ignores the stored results.
The exit code is 1 if an engine fails.")]
pub(crate) struct DoctorArgs {
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Start no further cases after this many seconds, except each engine's first case (see
    /// --first-seconds)
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Time limit in seconds for the first case of each engine, at least --seconds; engines not
    /// reached by then are reported as skipped
    #[arg(long, value_name = "N", default_value = "16", value_parser = seconds)]
    pub(crate) first_seconds: f64,
    /// Maximum number of cases per engine
    #[arg(long, value_name = "N", default_value = "8", value_parser = crate::args::at_least_one)]
    pub(crate) cases: usize,
    /// List every engine, including those that pass or do not apply to this device
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Do not store the results
    #[arg(long, conflicts_with = "forget")]
    pub(crate) no_save: bool,
    /// Delete the stored results of the device, and test nothing
    #[arg(long)]
    pub(crate) forget: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|n| (0.0..=1e6).contains(n)).ok_or("must be 0 to 1000000".into())
}
