//! Runs `warploom generate`: prints the text that continues a prompt.

use crate::Exit;
use crate::args::GenerateArgs;
use crate::engine::{Loaded, Request, Written};
use crate::progress::{Progress, tell};
use crate::{interrupt, numbers, output, prompt, units};
use anyhow::Context;
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::Instant;
use warploom_llm::sampler::Sampling;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{Finish, Model};

/// Maximum length in bytes of a prompt that is tokenised in advance.
const MOST_COUNTED: usize = 64 << 10;

pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let prompt = prompt::read(args.prompt.as_deref(), args.quiet)?;
    let sampling = args.sampling(args.choice.seed());
    let start = Instant::now();
    let mut loaded = {
        let progress = Progress::new(args.quiet);
        let first = |model: &Model| tokens_of(model, &prompt);
        let show = &mut |done, total| progress.set(done, total);
        Loaded::open(&args.place, first, &sampling, show)?
    };
    let load_seconds = start.elapsed().as_secs_f64();
    if !args.quiet {
        tell(loaded.startup_line());
        tell(&format!("compute mode {}", loaded.compute_mode()));
    }
    let mut out = Output::new(args.json);
    if !args.quiet && !args.json && out.is_terminal() && std::io::stderr().is_terminal() {
        // A terminal shows the prompt before the text; a pipe gets only the new text.
        let _ = write!(std::io::stderr(), "{prompt}");
    }
    interrupt::writing();
    let request = Request { max_tokens: args.max_tokens, sampling: sampling.clone() };
    let written = loaded.generate(&prompt, &request, &mut |text| match out.write(text) {
        ControlFlow::Continue(()) if interrupt::asked() => ControlFlow::Break(()),
        flow => flow,
    })?;
    if args.json {
        let report = report(&loaded, &prompt, &sampling, &written, load_seconds);
        out.object(&report)?;
    } else {
        out.end()?;
        if !args.quiet {
            tell(&summary(&written, load_seconds, &sampling));
        }
    }
    Ok(if interrupt::asked() { Exit::Interrupted } else { Exit::Done })
}

/// Returns the number of tokens of a short prompt, for prewarming, or `None` for a long one, which
/// would take too long to tokenise twice.
fn tokens_of(model: &Model, prompt: &str) -> Option<usize> {
    let options = EncodeOptions::default().add_bos(true).parse_special(true);
    let short = Some(prompt).filter(|prompt| prompt.len() <= MOST_COUNTED)?;
    Some(model.tokenizer().encode(short, options).ok()?.len())
}

/// Standard output for generated text; keeps its first error.
struct Output {
    json: bool,
    /// The error that ended the output.
    failed: Option<std::io::Error>,
}

impl Output {
    fn new(json: bool) -> Output {
        Output { json, failed: None }
    }

    fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Writes text and flushes; breaks after an error. With `json` it writes nothing.
    fn write(&mut self, text: &str) -> ControlFlow<()> {
        if self.json {
            return ControlFlow::Continue(());
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the text with a line break. A pipe closed by its reader, such as `head`, is not an
    /// error.
    fn end(&mut self) -> anyhow::Result<()> {
        let _ = self.write("\n");
        match self.failed.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("writing to standard output")
            }
            _ => Ok(()),
        }
    }

    fn object(&mut self, value: &Value) -> anyhow::Result<()> {
        writeln!(output::stdout(), "{value:#}").context("writing to standard output")
    }
}

/// Returns a one-line summary: times, token counts, why the text ended, and the seed.
fn summary(written: &Written, load_seconds: f64, sampling: &Sampling) -> String {
    let why = match written.ended {
        Finish::Stop => "the model ended the text",
        Finish::Length => "the token limit was reached",
        Finish::Context => "the context is full",
        other => other.name(),
    };
    let seed = match sampling.temperature {
        0.0 => String::new(),
        _ => format!("; seed {}", sampling.seed),
    };
    format!(
        "loaded in {}; prompt {} tokens, {:.1} tokens/s; {} tokens, {:.1} tokens/s; {why}{seed}",
        units::seconds(load_seconds),
        written.prompt_tokens,
        written.prefill_rate(),
        written.tokens.len(),
        written.decode_rate(),
    )
}

/// Returns the JSON object that `--json` prints.
fn report(
    loaded: &Loaded,
    prompt: &str,
    sampling: &Sampling,
    written: &Written,
    load_seconds: f64,
) -> Value {
    let mut report = json!({
        "model": loaded.model_name(),
        "device": { "id": loaded.profile().id(), "name": loaded.profile().name },
        "startup_line": loaded.startup_line(),
        "compute_mode": loaded.compute_mode(),
        "prompt": prompt,
    });
    if let (Value::Object(report), Value::Object(result)) =
        (&mut report, result(sampling, written, load_seconds))
    {
        report.extend(result);
    }
    report
}

/// Returns the sampling settings as a JSON object.
pub(crate) fn sampled(sampling: &Sampling) -> Value {
    json!({
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": numbers::shown(sampling.repeat_last_n),
        "seed": sampling.seed,
    })
}

/// Returns the fields of the JSON object about the generated text.
fn result(sampling: &Sampling, written: &Written, load_seconds: f64) -> Value {
    json!({
        "text": written.text,
        "prompt_tokens": written.prompt_tokens,
        "tokens": written.tokens.len(),
        "token_ids": written.tokens,
        "finish": written.ended.name(),
        "sampling": sampled(sampling),
        "timings": {
            "load_seconds": load_seconds,
            "first_token_seconds": written.first_token_seconds,
            "prefill_tokens_per_second": written.prefill_rate(),
            "decode_seconds": written.decode_seconds,
            "decode_tokens_per_second": written.decode_rate(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        Written {
            text: " there was\u{1f600}".into(),
            tokens: vec![5, 6, 7],
            prompt_tokens: 10,
            ended: Finish::Length,
            first_token_seconds: 0.5,
            decode_seconds: 0.25,
        }
    }

    #[test]
    fn the_summary_tells_rates_seed_and_why_it_ended() {
        let sampling = Sampling::default().seed(7);
        let want = "loaded in 1.50 s; prompt 10 tokens, 20.0 tokens/s; 3 tokens, 8.0 tokens/s; \
                    the token limit was reached; seed 7";
        assert_eq!(summary(&written(), 1.5, &sampling), want);
        let greedy = summary(&written(), 1.5, &Sampling::greedy());
        assert!(!greedy.contains("seed"), "{greedy}");
    }

    #[test]
    fn the_object_has_text_counts_timings_and_seed() {
        let got = result(&Sampling::default().seed(7), &written(), 1.5);
        assert_eq!(got["text"], " there was\u{1f600}");
        assert_eq!((&got["tokens"], &got["prompt_tokens"]), (&json!(3), &json!(10)));
        assert_eq!(got["token_ids"], json!([5, 6, 7]));
        assert_eq!((&got["finish"], &got["sampling"]["seed"]), (&json!("length"), &json!(7)));
        assert_eq!(got["timings"]["load_seconds"], 1.5);
        assert_eq!(got["timings"]["prefill_tokens_per_second"], 20.0);
        assert_eq!(got["timings"]["decode_tokens_per_second"], 8.0);
    }
}
