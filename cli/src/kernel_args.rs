//! The options of `warploom kernel`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel new sharpen            # a folder with a working shader and manifest
  warploom kernel check sharpen          # on every device, and in an interpreter that finds races
  warploom kernel bench sharpen --set n=16777216
  warploom kernel show softmax           # a built-in kernel, as it is compiled

See docs/kernels.md for a guide.")]
pub(crate) struct KernelArgs {
    #[command(subcommand)]
    pub(crate) command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Create a working pack: a folder with a shader and a manifest
    New(NewArgs),
    /// Check a pack: its files, then each case in the interpreter and on devices
    Check(CheckArgs),
    /// Time a pack on a device, for every combination of its tuning constants
    Bench(KernelBenchArgs),
    /// Print the expanded source of a built-in kernel, or list all kernels
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  warploom kernel new kernels/sharpen && warploom kernel check kernels/sharpen")]
pub(crate) struct NewArgs {
    /// Folder to create; its last component is the pack's name
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel check examples/packs/blur
  warploom kernel check sharpen --device cpu --device webgpu:0
  warploom kernel check sharpen --json

The interpreter reports out-of-bounds indices, races, barriers that not every thread reaches and
endless loops, with file and line. For a device, the first wrong value is reported with the expected
one. The exit code is 1 if anything fails.")]
pub(crate) struct CheckArgs {
    /// Folder of the pack
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Device to check on; can be repeated (default: every device)
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

Each variant is checked with every [[case]] of the manifest before it is timed. The bandwidth counts
each operand and each result once.")]
pub(crate) struct KernelBenchArgs {
    /// Folder of the pack
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Override a size or parameter of the first case; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, f64)>,
    /// Number of timed runs
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::args::at_least_one)]
    pub(crate) runs: usize,
    /// Store the fastest constants for this device in the pack's folder, for `Tensor::custom`
    #[arg(long)]
    pub(crate) save: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom kernel show                                     # all kernels, one line each
  warploom kernel show softmax
  warploom kernel show softmax -D subgroup -D WG=256
  warploom kernel show matvec_prequant --format q4_k -D headers
  warploom kernel show attn_split_kv_fused --lang cuda > attention.cu

The output is the file in shaders/ with its #import, #if and #repeat directives expanded. `warploom
explain` prints the defines and constants of the kernels in a plan. Without -D, a kernel has its
default constants and the fewest defines. Fused prologues and epilogues are not included.")]
pub(crate) struct ShowArgs {
    /// Name of the kernel; without it, list all kernels
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Set a define (KEY), or set a constant (KEY=VALUE); can be repeated
    #[arg(short = 'D', long = "define", value_name = "KEY[=VALUE]", requires = "name")]
    pub(crate) define: Vec<String>,
    /// Weight format, for kernels that have a variant for each format (default: q4_k)
    #[arg(long, value_name = "FORMAT", requires = "name")]
    pub(crate) format: Option<String>,
    /// Output language; cuda and opencl are translated from WGSL
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value = "wgsl")]
    pub(crate) lang: Language,
    /// Print one JSON value: the kernel with its parameters and bindings, or the list
    #[arg(long)]
    pub(crate) json: bool,
}

/// The output language of `kernel show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// WGSL, as wgpu compiles it
    Wgsl,
    /// CUDA C, as NVRTC compiles it
    Cuda,
    /// OpenCL C, for devices with sub-groups
    Opencl,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Wgsl => "wgsl",
            Language::Cuda => "cuda",
            Language::Opencl => "opencl",
        }
    }
}

fn setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("not NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
    Ok((name.to_string(), value))
}
