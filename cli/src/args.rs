//! What the command line takes.

use crate::chat_args::ChatArgs;
use crate::dashes::text;
use crate::doctor_args::DoctorArgs;
use crate::download_args::DownloadArgs;
use crate::explain_args::ExplainArgs;
use crate::kernel_args::KernelArgs;
use crate::numbers::{Seed, another_seed, last_n, seed, tokens, top_k};
use crate::perplexity_args::PerplexityArgs;
use crate::quantize_args::QuantizeArgs;
#[cfg(feature = "serve")]
use crate::serve_args::ServeArgs;
use crate::tune_args::TuneArgs;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use warploom::base::DType;
use warploom::runtime::RuntimeBuilder;
use warploom_llm::sampler::Sampling;

/// Run language models on any GPU or on the CPU, and look at devices.
#[derive(Debug, Parser)]
#[command(name = "warploom", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What a command line says. A number below 0 behind an option is its value, so that is told what
    /// is wrong with it, and never an option or a prompt.
    ///
    /// # Errors
    /// Wrong usage, and help.
    pub(crate) fn read<T: Into<OsString> + Clone>(
        args: impl IntoIterator<Item = T>,
    ) -> Result<Cli, clap::Error> {
        fn with_numbers(command: clap::Command) -> clap::Command {
            let takes = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
            let command = command.mut_args(|arg| match takes(&arg) {
                true => arg.allow_negative_numbers(true),
                false => arg,
            });
            command.mut_subcommands(with_numbers)
        }
        let mut command = with_numbers(Cli::command());
        let args = args.into_iter().map(Into::into).collect();
        let args = crate::dashes::marked(&command, args);
        let matches = command.try_get_matches_from_mut(args)?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

const EXAMPLES: &str = "\
Examples:
  warploom generate \"Once upon a time\"
  warploom generate --model model.gguf --device cpu \"The capital of France is\"
  warploom devices
  warploom doctor
  warploom tune model.gguf
  warploom bench --model model.gguf --json
  warploom explain --profile apple-m2
  warploom quantize model-F16.gguf model-Q4_K.gguf --type Q4_K
  warploom serve --port 8080
  warploom kernel new sharpen

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List devices, and tell which one is selected and why
    Devices(DevicesArgs),
    /// Examine a device: every engine against the reference; what is wrong is left out from then on
    Doctor(DoctorArgs),
    /// Write text that goes on from a prompt
    Generate(GenerateArgs),
    /// Talk with a model
    Chat(ChatArgs),
    /// Bring a model from Hugging Face into its cache, and say where it lies
    Download(DownloadArgs),
    /// Measure prompt reading and writing, and compare with the device's memory bandwidth
    Bench(BenchArgs),
    /// Measure how well a model foresees a text
    Perplexity(PerplexityArgs),
    /// Tell how a model or graph would run on a device, or how long each step takes there
    Explain(Box<ExplainArgs>),
    /// Measure which engines are the fastest for a model on a device; plans take them from then on
    Tune(Box<TuneArgs>),
    /// Make, check and time kernel packs: your own WGSL as an operation
    Kernel(KernelArgs),
    /// Make a model smaller: F16, BF16 or F32 weights to packed ones in a new GGUF file
    Quantize(QuantizeArgs),
    /// Answer OpenAI's clients over HTTP, many at a time
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom devices
  warploom devices --device webgpu:1   # would this one be found?
  warploom devices --json
  warploom devices --device webgpu:0 --save-profile mine.json   # for `explain --profile`")]
pub(crate) struct DevicesArgs {
    /// Device to select: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the selected device's profile to a file, with its measured memory bandwidth
    #[arg(long, value_name = "FILE")]
    pub(crate) save_profile: Option<PathBuf>,
}

/// Which model, on what.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// GGUF file, Hugging Face folder, or a name on Hugging Face: org/name, org/name:Q4_K_M
    /// (default: the small model that comes with the command)
    #[arg(short, long, value_name = "FILE|NAME")]
    #[cfg_attr(not(feature = "embedded-model"), arg(required = true))]
    pub(crate) model: Option<PathBuf>,
    /// Device: auto, cpu, cuda, webgpu, opencl, webgpu:1 (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Positions of the context (default: the model's, at most 4096)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) context: Option<usize>,
    /// How weights are multiplied: f32 (exact), int8 (packed ones with 8-bit activations, faster; others as
    /// f16) or f16 (prompts as halves, on matrix hardware) [default: int8; f32 on GPUs in software]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Keys and values in the context's cache: f32 (exact) or f16 (half the memory)
    /// [default: f32 with f32, else f16]
    #[arg(long, value_name = "TYPE", value_parser = cache_type)]
    pub(crate) cache: Option<DType>,
    /// The same bits on the same device, whatever the batch, the threads or the run; slower
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Read the file into memory instead of mapping it: for files that may change
    #[arg(long)]
    pub(crate) copy: bool,
    /// Threads of the CPU (default: WARPLOOM_THREADS, then one a core)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Bytes of device memory that may be used, with K, M or G (default: what there is)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_budget: Option<u64>,
}

impl Place {
    /// Sets what is given; the environment decides the rest.
    pub(crate) fn set(&self, mut builder: RuntimeBuilder) -> RuntimeBuilder {
        if self.threads.is_some() {
            builder = builder.threads(self.threads);
        }
        if self.memory_budget.is_some() {
            builder = builder.memory_budget(self.memory_budget);
        }
        match &self.device {
            Some(device) => builder.device(device),
            None => builder,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom generate \"Once upon a time\"
  warploom generate --temperature 0 --max-tokens 64 \"The sun is\"      # the same each time
  warploom generate --seed 7 --json \"A mouse\"
  echo \"Long ago\" | warploom generate
  echo \"Long ago\" | warploom generate -        # waits for it, however long it takes
  warploom generate \"- milk\"                  # text after a dash; before one word put --
  warploom generate -m model.gguf $'<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n'

Text goes to standard output, all else to standard error. Ctrl-C keeps what is written.")]
pub(crate) struct GenerateArgs {
    /// Text to go on from; `-` reads standard input (default: standard input if it is no terminal and
    /// says something within 10 seconds, else the beginning of a text)
    #[arg(value_name = "PROMPT", value_parser = text)]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Most tokens to write, -1 for as many as the context holds
    #[arg(short = 'n', long, value_name = "N", default_value = "256", value_parser = tokens)]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the text only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// How the next token is chosen.
#[derive(Clone, Debug, Args)]
pub(crate) struct Choice {
    /// 0 always takes the most probable token [default: 0.8; own model 0.7]
    #[arg(short, long, value_name = "T", value_parser = not_negative)]
    pub(crate) temperature: Option<f32>,
    /// Draw from the fewest tokens with this share of the probability [default: 0.95; own model 1]
    #[arg(long, value_name = "P", value_parser = share)]
    pub(crate) top_p: Option<f32>,
    /// Draw from this many tokens, 0 for all [default: 40; own model 0]
    #[arg(long, value_name = "N", value_parser = top_k)]
    pub(crate) top_k: Option<usize>,
    /// Draw from tokens this probable relative to the best [default: 0.05]
    #[arg(long, value_name = "P", value_parser = share)]
    pub(crate) min_p: Option<f32>,
    /// Weakens tokens that came lately, 1 for off [default: 1; own model 1.15]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub(crate) repeat_penalty: Option<f32>,
    /// How many tokens count as lately, -1 for the whole context
    #[arg(long, value_name = "N", default_value = "64", value_parser = last_n)]
    pub(crate) repeat_last_n: usize,
    /// Start of the random numbers (default and -1: another one each time, told at the end)
    #[arg(short, long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<Seed>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom bench
  warploom bench --model model.gguf --prompt-tokens 1024 --tokens 256
  warploom bench --sequences 8 --prompt-tokens 64     # also 8 at once
  warploom bench --kernels                            # where the time goes
  warploom bench --device cpu --json")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Tokens of the prompt (default: 512, less if the context is short)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) prompt_tokens: Option<usize>,
    /// Tokens to write after it (default: 128, less if the context is short)
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one)]
    pub(crate) tokens: Option<usize>,
    /// Also time so many sequences that are decoded at once, a token of each in one run
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    pub(crate) sequences: usize,
    /// Also time each kernel of the prompt (its first 512 tokens) and of a token in the middle of the
    /// text, planned for those lengths: its share of the time, and of the bytes a second of a copy
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl GenerateArgs {
    /// How tokens are chosen.
    pub(crate) fn sampling(&self, seed: u64) -> Sampling {
        self.choice.sampling(&self.place, seed)
    }
}

impl Choice {
    /// What was asked for, and else what suits the model. The card of the model that comes with
    /// the command recommends its values.
    pub(crate) fn sampling(&self, place: &Place, seed: u64) -> Sampling {
        let base = match place.model {
            Some(_) => Sampling::default(),
            None => Sampling {
                temperature: 0.7,
                top_k: 0,
                top_p: 1.0,
                min_p: 0.05,
                repetition_penalty: 1.15,
                ..Sampling::default()
            },
        };
        Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(base.repetition_penalty),
            repeat_last_n: self.repeat_last_n,
            seed,
        }
    }

    /// The seed that was asked for, or another one each time.
    pub(crate) fn seed(&self) -> u64 {
        self.fixed_seed().unwrap_or_else(another_seed)
    }

    /// The seed, where a certain one was asked for.
    pub(crate) fn fixed_seed(&self) -> Option<u64> {
        self.seed.and_then(Seed::fixed)
    }
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be a whole number above 0".into())
}

pub(crate) fn cache_type(text: &str) -> Result<DType, String> {
    let types = [DType::F32, DType::F16];
    types.into_iter().find(|t| t.name() == text).ok_or_else(|| "must be f32 or f16".into())
}

fn number(text: &str, fits: impl Fn(f32) -> bool, words: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|n: &f32| n.is_finite() && fits(*n));
    number.ok_or_else(|| format!("must be {words}"))
}

pub(crate) fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |n| n >= 0.0, "a number of 0 or more")
}

pub(crate) fn positive(text: &str) -> Result<f32, String> {
    number(text, |n| n >= f32::MIN_POSITIVE, "a number above 0")
}

pub(crate) fn share(text: &str) -> Result<f32, String> {
    number(text, |n| (0.0..=1.0).contains(&n), "a number from 0 to 1")
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = warploom::config::parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "must be a number of bytes, such as 512M or 1.5G".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn generate(args: &[&str]) -> Result<GenerateArgs, clap::Error> {
        let all = ["warploom", "generate"].iter().chain(args);
        match Cli::read(all)?.command {
            Command::Generate(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_examples_and_every_command_is_in_the_first() {
        let mut root = Cli::command();
        let help = root.render_long_help().to_string();
        for line in [
            "devices ",
            "generate ",
            "chat ",
            "download ",
            "bench ",
            "perplexity ",
            "explain ",
            "quantize ",
            #[cfg(feature = "serve")]
            "serve ",
            "Exit codes: 0 done, 1 failed",
        ] {
            assert!(help.contains(line), "{line:?} in {help}");
        }
        let rows = [
            ("devices", ["warploom devices --json", "--device <DEVICE>", "WARPLOOM_DEVICE"]),
            (
                "generate",
                ["echo \"Long ago\" | warploom generate -", "--top-p <P>", "cuda, webgpu"],
            ),
            ("chat", ["--system", "/help", "warploom chat --json"]),
            ("download", ["org/name:Q4_K_M", "HF_TOKEN", "--offline"]),
            ("explain", ["--graph dot --after simplify", "--profile <FILE|NAME>", "adreno-740"]),
            ("quantize", ["--type TQ2_0", "--type <TYPE>", "--force"]),
            #[cfg(feature = "serve")]
            ("serve", ["--parallel <N>", "127.0.0.1:8080/v1", "WARPLOOM_API_KEY"]),
            ("perplexity", ["warploom perplexity", "--window <N>", "--compute <MODE>"]),
            ("bench", ["warploom bench --device cpu --json", "--prompt-tokens <N>", "--copy"]),
        ];
        for (name, lines) in rows {
            let command = root.find_subcommand_mut(name).unwrap();
            let help = command.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{name}: {help}");
            for line in lines {
                assert!(help.contains(line), "{name}: {line:?} in {help}");
            }
        }
    }

    #[test]
    fn options_reach_their_fields() {
        let args = generate(&[
            "--model",
            "m.gguf",
            "-d",
            "webgpu:1",
            "-n",
            "9",
            "-t",
            "0",
            "--top-p",
            "0.5",
            "--top-k",
            "3",
            "--min-p",
            "0.25",
            "--repeat-penalty",
            "1.5",
            "--repeat-last-n",
            "7",
            "--seed",
            "18446744073709551615",
            "-c",
            "99",
            "--copy",
            "--threads",
            "2",
            "--memory-budget",
            "1.5G",
            "--json",
            "-q",
            "Once",
        ])
        .unwrap();
        assert_eq!(args.prompt.as_deref(), Some("Once"));
        assert_eq!(args.place.device.as_deref(), Some("webgpu:1"));
        assert_eq!((args.place.context, args.place.threads), (Some(99), Some(2)));
        assert_eq!(args.place.memory_budget, Some(3 << 29));
        assert!(args.place.copy && args.json && args.quiet && args.max_tokens == 9);
        let want = Sampling {
            temperature: 0.0,
            top_k: 3,
            top_p: 0.5,
            min_p: 0.25,
            repetition_penalty: 1.5,
            repeat_last_n: 7,
            seed: 11,
        };
        assert_eq!(args.sampling(11), want);
    }

    #[test]
    fn a_file_gets_the_library_defaults() {
        let args = generate(&["-m", "m.gguf"]).unwrap();
        assert_eq!(args.sampling(0), Sampling::default());
        assert_eq!((args.max_tokens, args.prompt), (256, None));
    }

    #[test]
    fn minus_one_means_what_it_means_elsewhere() {
        let given =
            ["-m", "m.gguf", "--seed", "-1", "--repeat-last-n", "-1", "--top-k=-1", "-n", "-1"];
        let args = generate(&given).unwrap();
        assert_eq!(args.choice.fixed_seed(), None);
        assert_ne!(args.choice.seed(), args.choice.seed());
        let sampling = args.sampling(3);
        assert_eq!((sampling.repeat_last_n, sampling.top_k, sampling.seed), (usize::MAX, 0, 3));
        assert_eq!(args.max_tokens, usize::MAX);
    }

    #[cfg(feature = "embedded-model")]
    #[test]
    fn the_own_model_gets_the_values_of_its_card() {
        let got = generate(&["Once"]).unwrap().sampling(0);
        assert_eq!((got.temperature, got.min_p, got.repetition_penalty), (0.7, 0.05, 1.15));
        assert_eq!((got.top_k, got.top_p, got.repeat_last_n), (0, 1.0, 64));
    }

    #[cfg(not(feature = "embedded-model"))]
    #[test]
    fn without_an_own_model_a_file_must_be_named() {
        let error = generate(&["Once"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn wrong_values_are_usage_errors_that_say_what_is_right() {
        let rows: [(&[&str], &str); 15] = [
            (&["-n", "0"], "above 0"),
            (&["-n", "many"], "above 0"),
            (&["-t=-1"], "0 or more"),
            (&["-t", "-1"], "0 or more"),
            (&["-t", "-1", "Once"], "0 or more"),
            (&["--seed", "-2"], "from 0 to 18446744073709551615, or -1 for another one"),
            (&["--repeat-last-n", "-2"], "0 or more, or -1 for the whole context"),
            (&["--top-k", "-2"], "0 or more"),
            (&["-t", "NaN"], "0 or more"),
            (&["-t", "inf"], "0 or more"),
            (&["--top-p", "1.1"], "from 0 to 1"),
            (&["--min-p=-0.1"], "from 0 to 1"),
            (&["--repeat-penalty", "0"], "above 0"),
            (&["--memory-budget", "lots"], "512M"),
            (&["-c", "0"], "above 0"),
        ];
        for (args, words) in rows {
            let all: Vec<&str> = ["-m", "m.gguf"].iter().chain(args).copied().collect();
            let error = generate(&all).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{args:?}");
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{args:?}");
            assert!(error.to_string().contains(words), "{args:?}: {error}");
        }
        #[cfg(feature = "serve")]
        for seconds in ["0", "-5", "18446744073709551615"] {
            let all = ["warploom", "serve", "-m", "m.gguf", "--timeout", seconds];
            assert_eq!(Cli::read(all).unwrap_err().kind(), ErrorKind::ValueValidation);
        }
        let error = Cli::read(["warploom", "sing"]).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::InvalidSubcommand, 2));
        let error = Cli::read(["warploom", "bench", "--help"]).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::DisplayHelp, 0));
    }
}
