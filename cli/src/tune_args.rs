//! What `warploom tune` takes.

use crate::args::Place;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use warploom::base::DType;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom tune model.gguf
  warploom tune org/name:Q4_K_M --device webgpu:0 --classes decode,few,short,prefill
  warploom tune model.gguf --sequences 8                # for `serve`: 8 answers at once
  warploom tune model.gguf --seconds 600 --again        # a long look, also at what is known
  warploom tune model.gguf --output mine.tune           # to ship: WARPLOOM_TUNE_CACHE=mine.tune
  warploom tune model.gguf --json > report.json
  warploom tune --forget                                # plans go by estimates again

What is found is kept for this device, driver and version, task by task, so that Ctrl-C loses
nothing: plans take it, and `explain` says so. A candidate must give the numbers of the engine that
estimates choose; one that does not compile, is wrong or takes too long is left out.
WARPLOOM_TUNE=off ignores what is kept; =search measures what a session lacks before its first run.")]
pub(crate) struct TuneArgs {
    /// GGUF file, Hugging Face folder, or a name on Hugging Face: org/name, org/name:Q4_K_M
    /// (default: the small model that comes with the command)
    #[arg(value_name = "MODEL")]
    #[cfg_attr(not(feature = "embedded-model"), arg(required_unless_present_any = ["forget", "named"]))]
    pub(crate) model: Option<PathBuf>,
    /// MODEL, as other commands take it
    #[arg(short = 'm', long = "model", value_name = "FILE|NAME", conflicts_with = "model")]
    pub(crate) named: Option<PathBuf>,
    /// Device: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Lengths of runs, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "decode,prefill")]
    pub(crate) classes: Vec<Class>,
    /// Sequences of the session: with more than one, `decode` is also a token of each of so many in
    /// one run
    #[arg(long, value_name = "N", default_value = "1", value_parser = crate::args::at_least_one)]
    pub(crate) sequences: usize,
    /// Seconds of the search, about
    #[arg(long, value_name = "N", default_value = "120", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Measure also what is known, or could not be measured before
    #[arg(long)]
    pub(crate) again: bool,
    /// Write what is known of the device to a file as well
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Forget what is known of the device, and measure nothing
    #[arg(long, conflicts_with_all = ["model", "named", "output", "again", "sequences"])]
    pub(crate) forget: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Positions of the context (default: the model's, at most 4096)
    #[arg(short, long, value_name = "N", value_parser = crate::args::at_least_one)]
    pub(crate) context: Option<usize>,
    /// How weights are multiplied: f32, int8 or f16 [default: int8; f32 on GPUs in software]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Keys and values in the cache: f32 or f16 [default: f32 with f32, else f16]
    #[arg(long, value_name = "TYPE", value_parser = crate::args::cache_type)]
    pub(crate) cache: Option<DType>,
    /// Threads of the CPU (default: WARPLOOM_THREADS, then one a core)
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Bytes of device memory that may be used, with K, M or G (default: what there is)
    #[arg(long, value_name = "BYTES", value_parser = crate::args::bytes)]
    pub(crate) memory_budget: Option<u64>,
}

/// Tokens of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Class {
    /// One token after others
    Decode,
    /// 2 to 8
    Few,
    /// 9 to 64
    Short,
    /// 65 to 512
    Prefill,
}

impl Class {
    /// A number of tokens in it.
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
    /// Which model, on what, as other commands say it.
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
