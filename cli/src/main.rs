//! The `warploom` command.
//!
//! Standard output holds the result and nothing else: text, a table, or one JSON object. Messages
//! go to standard error. With `--json` a failure is an object too, with the reason in `error`. The
//! exit code is 0 if the command is done, 1 if it failed, 2 for a usage error, and 130 if it was
//! interrupted.

mod analyze;
mod args;
mod bench;
mod chat;
mod chat_args;
mod chat_commands;
mod dashes;
mod devices;
mod doctor;
mod doctor_args;
mod download;
mod download_args;
mod embed;
mod embed_args;
mod engine;
mod explain;
mod explain_args;
mod generate;
#[cfg(test)]
mod help_tests;
mod inspect;
mod inspect_args;
mod interrupt;
mod kernel;
mod kernel_args;
mod kernel_bench;
mod kernel_show;
mod numbers;
mod output;
mod perplexity;
mod perplexity_args;
mod progress;
mod prompt;
mod quantize;
mod quantize_args;
mod rerank;
mod rerank_args;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod serve_args;
mod timing_device;
mod tune;
mod tune_args;
mod units;

use args::{Cli, Command};
use kernel_args::KernelCommand;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done,
    Interrupted,
}

fn main() -> ExitCode {
    // `error.exit` ends the process: 2 for usage errors, 0 for help.
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run(&cli.command) {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Interrupted) => ExitCode::from(130),
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(object) = failure(&cli.command, &format!("{error:#}")) {
                // Write errors are ignored: the exit code and standard error report the failure.
                let _ = writeln!(output::stdout(), "{object}");
            }
            progress::tell(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<Exit> {
    progress::init_tracing()?;
    match command {
        Command::Devices(args) => devices::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Download(args) => download::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Perplexity(args) => perplexity::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Rerank(args) => rerank::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Kernel(args) => kernel::run(args),
        Command::Quantize(args) => quantize::run(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args),
    }
}

/// Returns the failure of a command as a JSON object, if `--json` is set and the command has not
/// written one itself.
fn failure(command: &Command, text: &str) -> Option<Value> {
    let json = match command {
        // Chat writes one object per event.
        Command::Chat(args) => {
            return args.json.then(|| json!({ "event": "error", "message": text }));
        }
        Command::Devices(args) => args.json,
        Command::Doctor(args) => args.json,
        Command::Generate(args) => args.json,
        Command::Download(args) => args.json,
        Command::Bench(args) => args.json,
        Command::Perplexity(args) => args.json,
        Command::Embed(args) => args.json,
        Command::Rerank(args) => args.json,
        Command::Inspect(args) => args.json,
        Command::Explain(args) => args.json,
        Command::Tune(args) => args.json,
        Command::Quantize(args) => args.json,
        Command::Kernel(args) => match &args.command {
            KernelCommand::Check(args) => args.json,
            KernelCommand::Bench(args) => args.json,
            KernelCommand::Show(args) => args.json,
            KernelCommand::New(_) => false,
        },
        #[cfg(feature = "serve")]
        Command::Serve(_) => false,
    };
    (json && !output::is_written()).then(|| json!({ "error": text }))
}
