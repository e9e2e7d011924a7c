//! What `warploom doctor` takes.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom doctor
  warploom doctor --device webgpu:0 --json > report.json     # for an issue of ours or the driver's
  warploom doctor --seconds 120 --cases 1000                 # all that the table has
  warploom doctor --forget                                   # plans take every engine again

What is wrong is remembered for this driver and version: plans leave it out, `explain` says so, and
an examination that finds it right takes it back. WARPLOOM_DOCTOR=off ignores what is remembered.
Exit code 1 where anything is wrong.")]
pub(crate) struct DoctorArgs {
    /// Device: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Seconds after which no engine gets another case
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds after which none gets its first either, and is told as left out (at least those of
    /// --seconds)
    #[arg(long, value_name = "N", default_value = "16", value_parser = seconds)]
    pub(crate) first_seconds: f64,
    /// Cases of one engine, at most
    #[arg(long, value_name = "N", default_value = "8", value_parser = crate::args::at_least_one)]
    pub(crate) cases: usize,
    /// List every engine, also those that are right or not of this device
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Remember nothing
    #[arg(long, conflicts_with = "forget")]
    pub(crate) no_save: bool,
    /// Forget what is remembered of the device, and examine nothing
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
