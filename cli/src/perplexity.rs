//! Runs `warploom perplexity`: measures how well a model predicts a text.

use crate::Exit;
use crate::engine::Loaded;
use crate::perplexity_args::PerplexityArgs;
use crate::progress::{Progress, tell};
use crate::{interrupt, output, units};
use anyhow::Context;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;
use warploom_llm::{Perplexity, PerplexityOptions, Sampling};

pub(crate) fn run(args: &PerplexityArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let text = read(&args.text)?;
    let mut loaded = {
        let progress = Progress::new(false);
        let show = &mut |done, total| progress.set(done, total);
        Loaded::open(&args.place, |_| None, &Sampling::default(), show)?
    };
    if !args.json {
        tell(loaded.startup_line());
    }
    // From here on a signal ends the work cleanly.
    interrupt::writing();
    let options = PerplexityOptions::default().window(args.window).skip(args.skip);
    let start = Instant::now();
    let mut whole = 0;
    let measured = {
        let template = "measuring {bar:30} {human_pos}/{human_len} tokens, {msg}, {eta} left";
        let progress = Progress::of(false, template);
        loaded.perplexity(&text, args.special, &options, &mut |done, total| {
            whole = total;
            progress.set(done.tokens as u64, total as u64);
            progress.name(&format!("perplexity {:.3}", done.value()));
            if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?
    };
    if measured.tokens < whole {
        tell(&format!("interrupted after {} of {whole} tokens", measured.tokens));
        return Ok(Exit::Interrupted);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{:#}", object(&loaded, args, &measured, seconds))?;
    } else {
        write!(out, "{}", table(&loaded, &measured, seconds))?;
    }
    Ok(Exit::Done)
}

/// Reads the text from a file, or from standard input for `-`.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("standard input")?;
    } else {
        bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        anyhow::anyhow!("{}: not UTF-8 at byte {at}", path.display())
    })
}

fn object(loaded: &Loaded, args: &PerplexityArgs, m: &Perplexity, seconds: f64) -> Value {
    let profile = loaded.profile();
    json!({
        "schema": 1,
        "model": loaded.model_name(),
        "device": { "id": profile.id(), "name": profile.name },
        "compute_mode": loaded.compute_mode(),
        "text": args.text,
        "window": args.window,
        "skip": args.skip,
        "special": args.special,
        "tokens": m.tokens,
        "windows": m.windows,
        "mean_nll": m.mean(),
        "mean_nll_error": m.mean_error(),
        "perplexity": m.value(),
        "perplexity_error": m.error(),
        "seconds": seconds,
    })
}

fn table(loaded: &Loaded, m: &Perplexity, seconds: f64) -> String {
    let profile = loaded.profile();
    let rows = [
        ("model", loaded.model_name().to_owned()),
        ("device", format!("{} {}", profile.id(), profile.name)),
        ("compute mode", loaded.compute_mode().to_owned()),
        ("tokens", format!("{} in {} windows", m.tokens, m.windows)),
        (
            "time",
            format!(
                "{}: {:.1} tokens/s",
                units::seconds(seconds),
                units::rate(m.tokens as f64, seconds)
            ),
        ),
        ("nats a token", format!("{:.5} +/- {:.5}", m.mean(), m.mean_error())),
        ("perplexity", format!("{:.4} +/- {:.4}", m.value(), m.error())),
    ];
    rows.iter().map(|(name, value)| format!("{name:13}  {value}\n")).collect()
}
