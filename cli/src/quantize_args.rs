//! The options of `warploom quantize`.

use crate::args::at_least_one;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use warploom_core::base::Format;
use warploom_llm::quantize::TARGETS;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom quantize model-F16.gguf model-Q4_K.gguf --type Q4_K
  warploom quantize SmolLM2-135M/ smollm2-Q8_0.gguf --type Q8_0     # a Hugging Face folder
  warploom quantize bitnet-BF16.gguf bitnet.gguf --type TQ2_0 --json > errors.json

Prints the quantisation error of each tensor: RMS, RMS relative to that of the values, and maximum.
OUT appears only when it is complete.")]
pub(crate) struct QuantizeArgs {
    /// GGUF file or Hugging Face folder, with weights in F32, F16 or BF16
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// GGUF file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Storage format of the matrices
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = format(), ignore_case = true)]
    pub(crate) format: Format,
    /// Replace OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// CPU threads (default: one per core)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing except error messages
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

fn format() -> impl TypedValueParser<Value = Format> {
    let names = TARGETS.map(|(_, name, _)| name);
    PossibleValuesParser::new(names).map(|text| {
        let known = TARGETS.iter().find(|(_, name, _)| name.eq_ignore_ascii_case(&text));
        known.map_or(Format::F32, |(format, ..)| *format)
    })
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use warploom_llm::quantize::TARGETS;

    #[test]
    fn every_type_is_read_by_its_name() {
        for (format, name, _) in TARGETS {
            let small = name.to_lowercase();
            for name in [name, &small] {
                let all = ["warploom", "quantize", "in", "out", "--type", name];
                match Cli::read(all).unwrap().command {
                    Command::Quantize(args) => assert_eq!(args.format, format),
                    other => panic!("{other:?}"),
                }
            }
        }
        let error = Cli::read(["warploom", "quantize", "in", "out", "-t", "Q9"]);
        assert!(error.unwrap_err().to_string().contains("TQ2_0"));
    }
}
