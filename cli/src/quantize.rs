//! Runs `warploom quantize`: writes a model with packed weights.

use crate::Exit;
use crate::progress::{Progress, tell};
use crate::quantize_args::QuantizeArgs;
use crate::{interrupt, output, units};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;
use warploom_llm::quantize::{QuantizeOptions, QuantizeReport, TensorReport, quantize};

/// Relative error of a tensor above which the table ends with a warning.
const LARGE: f64 = 0.25;

pub(crate) fn run(args: &QuantizeArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    // From here on a signal ends the work cleanly.
    interrupt::writing();
    let options = QuantizeOptions::new(args.format).replace(args.force).threads(args.threads);
    let start = Instant::now();
    let report = {
        let template = "quantising {bar:30} {human_pos}/{human_len} weights, {eta} left";
        let progress = Progress::of(args.quiet, template);
        quantize(&args.input, &args.output, &options, &mut |done, total| {
            progress.set(done, total);
            if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    let report = report.map_err(|error| match error.to_string() {
        text if text.ends_with("already exists") => {
            anyhow::anyhow!("{text}; --force replaces it")
        }
        _ => error.into(),
    })?;
    let Some(report) = report else {
        tell("interrupted: nothing was written");
        return Ok(Exit::Interrupted);
    };
    let seconds = start.elapsed().as_secs_f64();
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{:#}", object(args, &report, seconds))?;
    } else if !args.quiet {
        write!(out, "{}", table(args, &report, seconds))?;
    }
    Ok(Exit::Done)
}

/// Returns the RMS error of a tensor relative to the RMS of its values.
fn share(tensor: &TensorReport) -> f64 {
    if tensor.rms > 0.0 { tensor.rmse / tensor.rms } else { 0.0 }
}

fn object(args: &QuantizeArgs, report: &QuantizeReport, seconds: f64) -> Value {
    let tensors: Vec<Value> = report
        .tensors
        .iter()
        .map(|t| {
            json!({
                "name": t.name, "shape": t.shape, "from": t.from.name(), "to": t.to.name(),
                "rmse": t.rmse, "rms": t.rms, "relative": share(t), "max_error": t.max_error,
                "note": t.note,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "input": args.input, "output": args.output, "type": args.format.name(),
        "bytes_before": report.bytes_before, "bytes_after": report.bytes_after,
        "seconds": seconds, "tensors": tensors,
    })
}

fn table(args: &QuantizeArgs, report: &QuantizeReport, seconds: f64) -> String {
    let width = report.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:width$}  {:>14}  {:>15}  {:>9}  {:>7}  {:>9}\n",
        "tensor", "shape", "format", "rmse", "of rms", "max"
    );
    // Writing to a string cannot fail.
    for t in &report.tensors {
        let shape = t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let format = match t.from == t.to {
            true => t.to.to_string(),
            false => format!("{} -> {}", t.from, t.to),
        };
        let _ = write!(text, "{:width$}  {shape:>14}  {format:>15}  ", t.name);
        let _ = match t.rmse > 0.0 {
            true => {
                let share = 100.0 * share(t);
                write!(text, "{:>9.2e}  {share:>6.2}%  {:>9.2e}", t.rmse, t.max_error)
            }
            false => write!(text, "{:>9}", "exact"),
        };
        let _ = match &t.note {
            Some(note) => writeln!(text, "  {note}"),
            None => writeln!(text),
        };
    }
    let _ = writeln!(
        text,
        "{}: {} from {} in {}",
        args.output.display(),
        units::bytes(report.bytes_after),
        units::bytes(report.bytes_before),
        units::seconds(seconds)
    );
    if let Some(worst) = report
        .tensors
        .iter()
        .max_by(|a, b| share(a).total_cmp(&share(b)))
        .filter(|t| share(t) > LARGE)
    {
        let _ = writeln!(
            text,
            "warning: {} moved by {:.0}% of its numbers' size: {} does not suit these weights",
            worst.name,
            100.0 * share(worst),
            worst.to
        );
    }
    text
}
