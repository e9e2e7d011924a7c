//! The options of `warploom tune`.

use crate::args::Place;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use warploom_core::base::DType;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom tune model.gguf
  warploom tune org/name:Q4_K_M --device webgpu:0 --classes decode,few,short,prefill
  warploom tune model.gguf --sequences 8                # for `serve` with 8 answers at once
  warploom tune model.gguf --seconds 600 --again        # longer, tuned tasks included
  warploom tune model.gguf --output mine.tune           # to ship; WARPLOOM_TUNE_CACHE reads it
  warploom tune model.gguf --json > report.json
  warploom tune --forget                                # plans use estimates again

Results are stored after each task, for this device, driver and version of warploom, so Ctrl-C loses
none. Plans use them, as `explain` shows. A candidate must match the results of the engine that the
estimates choose; one that does not compile, is wrong or takes too long is rejected.
WARPLOOM_TUNE=off ignores stored results; =search measures missing ones before the first run.")]
pub(crate) struct TuneArgs {
    /// GGUF file, Hugging Face folder, or a model's name on Hugging Face: org/name or
    /// org/name:Q4_K_M (default: the small model embedded in the command)
    #[arg(value_name = "MODEL")]
    #[cfg_attr(not(feature = "embedded-model"), arg(required_unless_present_any = ["forget", "named"]))]
    pub(crate) model: Option<PathBuf>,
    /// Same as MODEL, for consistency with other commands
    #[arg(short = 'm', long = "model", value_name = "FILE|NAME", conflicts_with = "model")]
    pub(crate) named: Option<PathBuf>,
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Shape classes to tune, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "decode,prefill")]
    pub(crate) classes: Vec<Class>,
    /// Number of sequences in the session to tune for; with more than one, `decode` also covers
    /// batched decoding
    #[arg(long, value_name = "N", default_value = "1", value_parser = crate::args::at_least_one)]
    pub(crate) sequences: usize,
    /// Approximate duration of the search in seconds
    #[arg(long, value_name = "N", default_value = "120", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Re-measure tasks that are already tuned, and retry those that could not be measured
    #[arg(long)]
    pub(crate) again: bool,
    /// Also write the device's results to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Delete the stored results of the device, and measure nothing
    #[arg(long, conflicts_with_all = ["model", "named", "output", "again", "sequences"])]
    pub(crate) forget: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Context length in tokens (default: the model's, at most 4096)
    #[arg(short, long, value_name = "N", value_parser = crate::args::at_least_one)]
    pub(crate) context: Option<usize>,
    /// Precision of matrix products with weights: f32, int8 or f16
    /// [default: int8; f32 on software GPUs]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Element type of the KV cache: f32 or f16 [default: f32 with --compute f32, else f16]
    #[arg(long, value_name = "TYPE", value_parser = crate::args::cache_type)]
    pub(crate) cache: Option<DType>,
    /// CPU threads (default: WARPLOOM_THREADS, then one per core)
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Limit on device memory in bytes; accepts suffixes K, M and G (default:
    /// WARPLOOM_MEMORY_BUDGET, then the device's memory)
    #[arg(long, value_name = "BYTES", value_parser = crate::args::bytes)]
    pub(crate) memory_budget: Option<u64>,
}

/// A shape class, by the number of tokens in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Class {
    /// 1 token
    Decode,
    /// 2 to 8 tokens
    Few,
    /// 9 to 64 tokens
    Short,
    /// 65 to 512 tokens
    Prefill,
}

impl Class {
    /// Returns the largest number of tokens of the class.
    pub(crate) fn tokens(self) -> usize {
        match self {
            Class::Decode => 1,
            Class::Few => 8,
            Class::Short => 64,
            Class::Prefill => 512,
        }
    }
}

impl TuneArgs {
    /// Returns the options that other commands share.
    pub(crate) fn place(&self) -> Place {
        Place {
            model: self.named.as_ref().or(self.model.as_ref()).cloned(),
            device: self.device.clone(),
            context: self.context,
            compute: self.compute,
            cache: self.cache,
            deterministic: false,
            copy: false,
            threads: self.threads,
            memory_budget: self.memory_budget,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|n| (0.0..=1e6).contains(n)).ok_or("must be 0 to 1000000".into())
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use std::path::Path;

    #[test]
    fn a_model_is_named_by_position_or_as_elsewhere() {
        for model in [&["m.gguf"][..], &["-m", "m.gguf"], &["--model", "m.gguf"]] {
            let all = ["warploom", "tune"].iter().chain(model);
            match Cli::read(all).unwrap().command {
                Command::Tune(args) => {
                    assert_eq!(args.place().model.as_deref(), Some(Path::new("m.gguf")));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(Cli::read(["warploom", "tune", "a.gguf", "-m", "b.gguf"]).is_err());
    }
}
