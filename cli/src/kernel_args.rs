//! What `warploom kernel` takes.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel new sharpen            # a folder with a shader and a manifest that work
  warploom kernel check sharpen          # on every device, and in an interpreter that finds races
  warploom kernel bench sharpen --set n=16777216

docs/kernels.md begins where you have a shader.")]
pub(crate) struct KernelArgs {
    #[command(subcommand)]
    pub(crate) command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Write a new pack that works: a folder with a shader and a manifest
    New(NewArgs),
    /// Check a pack: its files, each case in the interpreter, then on devices
    Check(CheckArgs),
    /// Time a pack on a device, for every value of the constants that its manifest tunes
    Bench(KernelBenchArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  warploom kernel new kernels/sharpen && warploom kernel check kernels/sharpen")]
pub(crate) struct NewArgs {
    /// Folder to make; its last part is the pack's name
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel check examples/packs/blur
  warploom kernel check sharpen --device cpu --device webgpu:0
  warploom kernel check sharpen --json

The interpreter tells indices outside of their array, races, barriers that not every thread reaches
and loops without an end, with file and line; each device the first wrong number with both values.
Exit code 1 where anything is wrong.")]
pub(crate) struct CheckArgs {
    /// Folder of the pack
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Device to check on, more than once if wanted (default: every one)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel bench examples/packs/blur --set width=4096 --set height=4096
  warploom kernel bench sharpen --device cuda:0 --json

Each variant is checked with every [[case]] of the manifest before it is timed. Bytes are those of operands and results, once each.")]
pub(crate) struct KernelBenchArgs {
    /// Folder of the pack
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Device: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Sizes and numbers in the place of those of the first case
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, f64)>,
    /// Runs that are measured
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::args::at_least_one)]
    pub(crate) runs: usize,
    /// Keep the best constants in the folder, for this device: `Tensor::custom` then takes them
    #[arg(long)]
    pub(crate) save: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("not NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("{value:?} is no number"))?;
    Ok((name.to_string(), value))
}
