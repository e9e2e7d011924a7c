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

docs/kernels.md is the guide.")]
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
    /// Time a pack on a device, for every value of its tuning constants
    Bench(KernelBenchArgs),
    /// Print the expanded text of a built-in kernel, or list all of them
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
endless loops, with file and line; a device reports the first wrong number with both values.
The exit code is 1 if anything fails.")]
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

Each variant is checked with every [[case]] of the manifest before it is timed. Bytes count each
operand and result once.")]
pub(crate) struct KernelBenchArgs {
    /// Folder of the pack
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Device: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Size or number that overrides the first case; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, f64)>,
    /// Number of measured runs
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::args::at_least_one)]
    pub(crate) runs: usize,
    /// Store the best constants for this device in the folder, for `Tensor::custom`
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

The text is the file in shaders/ after its #import, #if and #repeat lines are applied. `warploom
explain` prints the defines and constants of the kernels of a plan. Without -D a kernel has its
default constants and the fewest defines. Fused prologues and epilogues are not included.")]
pub(crate) struct ShowArgs {
    /// Name of the kernel; without it, list all kernels
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Define, or constant with its value; can be repeated
    #[arg(short = 'D', long = "define", value_name = "KEY[=VALUE]", requires = "name")]
    pub(crate) define: Vec<String>,
    /// Weight format of a kernel family, such as q4_k (default: q4_k)
    #[arg(long, value_name = "FORMAT", requires = "name")]
    pub(crate) format: Option<String>,
    /// Language of the text; cuda and opencl are translated from WGSL
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value = "wgsl")]
    pub(crate) lang: Language,
    /// Print one JSON value: the kernel with its parameters and bindings, or the list
    #[arg(long)]
    pub(crate) json: bool,
}

/// The language of a printed kernel.
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
