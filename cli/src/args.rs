//! The command line: commands and the options that several share.

use crate::chat_args::ChatArgs;
use crate::dashes::text;
use crate::doctor_args::DoctorArgs;
use crate::download_args::DownloadArgs;
use crate::embed_args::EmbedArgs;
use crate::explain_args::ExplainArgs;
use crate::inspect_args::InspectArgs;
use crate::kernel_args::KernelArgs;
use crate::numbers::{Seed, another_seed, last_n, seed, tokens, top_k};
use crate::perplexity_args::PerplexityArgs;
use crate::quantize_args::QuantizeArgs;
use crate::rerank_args::RerankArgs;
#[cfg(feature = "serve")]
use crate::serve_args::ServeArgs;
use crate::tune_args::TuneArgs;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use warploom::runtime::RuntimeBuilder;
use warploom_core::base::DType;
use warploom_llm::sampler::Sampling;

/// Run language models on any GPU or on the CPU, and inspect devices.
#[derive(Debug, Parser)]
#[command(name = "warploom", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses a command line. A negative number after an option that takes a value is always parsed
    /// as that value, so that an error names the option and its range.
    ///
    /// # Errors
    /// Usage errors. As in clap, a request for help or the version is also an error.
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
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let marked = crate::dashes::marked(&command, args.clone());
        let matches = command
            .try_get_matches_from_mut(marked)
            .map_err(|error| crate::dashes::with_tip(&command, &args, error))?;
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

Exit codes: 0 done, 1 failed, 2 usage error, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List devices, and show which one is selected and why
    Devices(DevicesArgs),
    /// Test every engine on a device against a reference implementation; disable those that fail
    Doctor(DoctorArgs),
    /// Generate text from a prompt
    Generate(GenerateArgs),
    /// Chat with a model
    Chat(ChatArgs),
    /// Download a model from Hugging Face to the local Hugging Face cache, and print its path
    Download(DownloadArgs),
    /// Describe a model file, and the memory that running it needs
    Inspect(InspectArgs),
    /// Measure prefill and decode speed in tokens per second, and the share of memory bandwidth
    /// used
    Bench(BenchArgs),
    /// Measure how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Print vectors of texts, or how close the texts are
    Embed(Box<EmbedArgs>),
    /// Order texts by how well they answer a query
    Rerank(Box<RerankArgs>),
    /// Show how a model or graph runs on a device; with --analyze, also how long each step takes
    Explain(Box<ExplainArgs>),
    /// Find the fastest engines for a model on a device by measurement; later plans use them
    Tune(Box<TuneArgs>),
    /// Create, check and time kernel packs (custom operations in WGSL); show built-in kernels
    Kernel(KernelArgs),
    /// Quantise F16, BF16 or F32 weights into a new, smaller GGUF file
    Quantize(QuantizeArgs),
    /// Serve OpenAI's and Anthropic's HTTP APIs, generating several answers at once
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom devices
  warploom devices --device webgpu:1   # is this device found?
  warploom devices --json
  warploom devices --device webgpu:0 --save-profile mine.json   # for `explain --profile`")]
pub(crate) struct DevicesArgs {
    /// Device to select: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1
    /// (default: WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the selected device's profile to a file, with its measured memory bandwidth
    #[arg(long, value_name = "FILE")]
    pub(crate) save_profile: Option<PathBuf>,
}

/// Options that select the model, the device and the precision.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// GGUF file, Hugging Face folder, or a model's name on Hugging Face: org/name or
    /// org/name:Q4_K_M (default: the small model embedded in the command)
    #[arg(short, long, value_name = "FILE|NAME")]
    #[cfg_attr(not(feature = "embedded-model"), arg(required = true))]
    pub(crate) model: Option<PathBuf>,
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Context length in tokens (default: the model's, at most 4096)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) context: Option<usize>,
    /// Precision of matrix products with weights: f32 (exact); int8 (faster: 8-bit activations if
    /// the weights are quantised, otherwise same as f16); f16 (uses f16 tensor cores for prompts)
    /// [default: int8; f32 on software GPUs]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Element type of the KV cache: f32 (exact) or f16 (half the memory)
    /// [default: f32 with --compute f32, else f16]
    #[arg(long, value_name = "TYPE", value_parser = cache_type)]
    pub(crate) cache: Option<DType>,
    /// Make results bit-identical on a device, regardless of batch, thread count or run; slower
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Read the model file into memory instead of mapping it, in case the file changes while in use
    #[arg(long)]
    pub(crate) copy: bool,
    /// CPU threads (default: WARPLOOM_THREADS, then one per core)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Limit on device memory in bytes; accepts suffixes K, M and G (default:
    /// WARPLOOM_MEMORY_BUDGET, then the device's memory)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_budget: Option<u64>,
}

/// Options that select an encoder, the device and the precision.
#[derive(Clone, Debug, Args)]
pub(crate) struct EncoderPlace {
    /// GGUF file, Hugging Face folder, or a model's name on Hugging Face: org/name or
    /// org/name:Q8_0
    #[arg(short, long, value_name = "FILE|NAME")]
    pub(crate) model: PathBuf,
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Precision of matrix products with weights: f32 (exact), int8 or f16 (faster)
    /// [default: f32]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Read the model file into memory instead of mapping it, in case the file changes while in use
    #[arg(long)]
    pub(crate) copy: bool,
    /// CPU threads (default: WARPLOOM_THREADS, then one per core)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Limit on device memory in bytes; accepts suffixes K, M and G (default:
    /// WARPLOOM_MEMORY_BUDGET, then the device's memory)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_budget: Option<u64>,
}

impl EncoderPlace {
    /// Returns the same options of a language model, without those of its cache.
    pub(crate) fn place(&self) -> Place {
        Place {
            model: Some(self.model.clone()),
            device: self.device.clone(),
            context: None,
            compute: self.compute,
            cache: None,
            deterministic: false,
            copy: self.copy,
            threads: self.threads,
            memory_budget: self.memory_budget,
        }
    }
}

impl Place {
    /// Applies the options that are given to a builder; environment variables determine the others.
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
  warploom generate --temperature 0 --max-tokens 64 \"The sun is\"      # greedy
  warploom generate --seed 7 --json \"A mouse\"
  echo \"Long ago\" | warploom generate
  echo \"Long ago\" | warploom generate -        # waits without a time limit
  warploom generate \"- milk\"                  # a dash and a space; before `-word` put --
  warploom generate -m model.gguf $'<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n'

Text goes to standard output, everything else to standard error. If tokens are sampled, a summary at
the end shows the seed. Ctrl-C stops and keeps the text so far.")]
pub(crate) struct GenerateArgs {
    /// Prompt to continue; `-` reads standard input (default: standard input if it is not a
    /// terminal and sends text within 10 seconds, else an empty prompt)
    #[arg(value_name = "PROMPT", value_parser = text)]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Maximum number of tokens to generate, -1 to fill the context
    #[arg(short = 'n', long, value_name = "N", default_value = "256", value_parser = tokens)]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the text
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Sampling options.
#[derive(Clone, Debug, Args)]
pub(crate) struct Choice {
    /// Sampling temperature; 0 is greedy [default: 0.8; embedded model 0.7]
    #[arg(short, long, value_name = "T", value_parser = not_negative)]
    pub(crate) temperature: Option<f32>,
    /// Top-p: sample from the most likely tokens that together reach this probability
    /// [default: 0.95; embedded model 1]
    #[arg(long, value_name = "P", value_parser = share)]
    pub(crate) top_p: Option<f32>,
    /// Top-k: sample from this many most likely tokens, 0 for all [default: 40; embedded model 0]
    #[arg(long, value_name = "N", value_parser = top_k)]
    pub(crate) top_k: Option<usize>,
    /// Min-p: minimum probability, relative to the most likely token [default: 0.05]
    #[arg(long, value_name = "P", value_parser = share)]
    pub(crate) min_p: Option<f32>,
    /// Repetition penalty for recent tokens, including those of the prompt; 1 for none [default: 1;
    /// embedded model 1.15]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub(crate) repeat_penalty: Option<f32>,
    /// Window of the repetition penalty in tokens, -1 for the whole context
    #[arg(long, value_name = "N", default_value = "64", value_parser = last_n)]
    pub(crate) repeat_last_n: usize,
    /// Random seed; -1 for a random one (default: -1)
    #[arg(short, long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<Seed>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom bench
  warploom bench --model model.gguf --prompt-tokens 1024 --tokens 256
  warploom bench --sequences 8 --prompt-tokens 64     # also 8 sequences at once
  warploom bench --kernels                            # time by kernel
  warploom bench --device cpu --json")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Prompt length in tokens (default: 512, fewer if the context is short)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) prompt_tokens: Option<usize>,
    /// Number of tokens to generate after the prompt (default: 128, fewer if the context is short)
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one)]
    pub(crate) tokens: Option<usize>,
    /// Also benchmark batched decoding with N sequences
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    pub(crate) sequences: usize,
    /// Also time each kernel, for the first 512 tokens of the prompt and for one decoded token, and
    /// show its share of the time and its bandwidth as a fraction of a memory copy's
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl GenerateArgs {
    /// Returns the sampling settings of the command line, with this seed.
    pub(crate) fn sampling(&self, seed: u64) -> Sampling {
        self.choice.sampling(&self.place, seed)
    }
}

impl Choice {
    /// Returns the sampling settings, with this seed. Options that are not given have the library's
    /// defaults for a named model, and those of its model card for the embedded model.
    pub(crate) fn sampling(&self, place: &Place, seed: u64) -> Sampling {
        let base = match place.model {
            Some(_) => Sampling::default(),
            None => Sampling::default()
                .temperature(0.7)
                .top_k(0)
                .top_p(1.0)
                .min_p(0.05)
                .repetition_penalty(1.15),
        };
        Sampling::default()
            .temperature(self.temperature.unwrap_or(base.temperature))
            .top_k(self.top_k.unwrap_or(base.top_k))
            .top_p(self.top_p.unwrap_or(base.top_p))
            .min_p(self.min_p.unwrap_or(base.min_p))
            .repetition_penalty(self.repeat_penalty.unwrap_or(base.repetition_penalty))
            .repeat_last_n(self.repeat_last_n)
            .seed(seed)
    }

    /// Returns the given seed or, if there is none, a new random one on each call.
    pub(crate) fn seed(&self) -> u64 {
        self.fixed_seed().unwrap_or_else(another_seed)
    }

    /// Returns the given seed, or `None` if it is absent or -1.
    pub(crate) fn fixed_seed(&self) -> Option<u64> {
        self.seed.and_then(Seed::fixed)
    }
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be an integer above 0".into())
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
    let bytes = warploom_core::config::parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "must be a number of bytes, such as 512M or 1.5G".into())
}

pub(crate) fn bytes_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { bytes(text) }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
