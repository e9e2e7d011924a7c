//! Runs `warploom bench`: measures prefill and decode.

use crate::Exit;
use crate::args::BenchArgs;
use crate::engine::{Loaded, Measured};
use crate::progress::{Progress, tell};
use crate::{interrupt, output, units};
use serde_json::{Value, json};
use std::io::Write;
use warploom::plan::Report;
use warploom::provider::{DeviceKind, DeviceProfile};

/// Default numbers of tokens of the prompt and of the generated text.
const DEFAULT: (usize, usize) = (512, 128);
/// Number of runs whose medians `--kernels` reports.
const RUNS: usize = 20;

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let mut loaded = {
        let progress = Progress::new(false);
        Loaded::open_clocked(&args.place, args.sequences, &mut |done, total| {
            progress.set(done, total)
        })?
    };
    if !args.json {
        tell(loaded.startup_line());
    }
    let (prompt, tokens) = split(loaded.context(), args.prompt_tokens, args.tokens)?;
    let measured = loaded.bench(prompt, tokens)?;
    let subject = Subject {
        model: loaded.model_name().to_owned(),
        compute_mode: loaded.compute_mode().to_owned(),
        profile: loaded.profile().clone(),
    };
    let mut out = output::stdout();
    if args.json {
        let mut report = report(&subject, &measured);
        let kernels = each_kernel(args, &mut loaded, (prompt, tokens), |name, _, kernels| {
            report[name]["kernels"] = serde_json::to_value(&kernels.engines)?;
            Ok(())
        });
        // After an error, the results so far are printed too.
        if let Err(error) = &kernels {
            report["error"] = format!("{error:#}").into();
        }
        writeln!(out, "{report:#}")?;
        kernels?;
    } else {
        write!(out, "{}", table(&subject, &measured))?;
        each_kernel(args, &mut loaded, (prompt, tokens), |name, what, kernels| {
            write!(out, "\nkernels of {name}, {what}:\n{}", kernels.engines_text())?;
            Ok(())
        })?;
    }
    Ok(Exit::Done)
}

/// Times each kernel, if `--kernels` is set, for the first tokens of the prompt and for a token in
/// the middle of the generated text; `tell` receives the phase, a description and the report.
fn each_kernel(
    args: &BenchArgs,
    loaded: &mut Loaded,
    (prompt, tokens): (usize, usize),
    mut tell: impl FnMut(&str, &str, &Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !args.kernels {
        return Ok(());
    }
    let (piece, middle) = (prompt.min(DEFAULT.0), prompt + tokens / 2);
    let what = format!("{piece} tokens in one run");
    tell("prefill", &what, &loaded.kernels(piece, 0, RUNS)?)?;
    let what = format!("one token after {middle} others");
    tell("decode", &what, &loaded.kernels(1, middle, RUNS)?)
}

/// The model, compute mode and device of a measurement.
struct Subject {
    model: String,
    compute_mode: String,
    profile: DeviceProfile,
}

/// Returns the numbers of tokens of the prompt and of the text, which together fit in the context.
/// Only defaults are reduced.
///
/// # Errors
/// If the requested numbers do not fit.
fn split(
    context: usize,
    prompt: Option<usize>,
    tokens: Option<usize>,
) -> anyhow::Result<(usize, usize)> {
    let (p, t) = match (prompt, tokens) {
        (Some(p), Some(t)) => (p, t),
        (Some(p), None) => (p, DEFAULT.1.min(context.saturating_sub(p)).max(1)),
        (None, Some(t)) => (DEFAULT.0.min(context.saturating_sub(t)).max(1), t),
        (None, None) if context >= DEFAULT.0 + DEFAULT.1 => DEFAULT,
        (None, None) => {
            let t = DEFAULT.1.min(context / 4).max(1);
            (context.saturating_sub(t).max(1), t)
        }
    };
    match p.checked_add(t) {
        Some(sum) if sum <= context => Ok((p, t)),
        _ => anyhow::bail!(
            "{p} tokens of prompt and {t} of text do not fit a context of {context} positions"
        ),
    }
}

impl Measured {
    /// Returns the number of bytes read per token: the weights, and the KV cache in the middle of
    /// the decode phase.
    fn bytes_per_token(&self) -> u64 {
        self.weight_bytes_per_token.saturating_add(self.cache_bytes_per_token)
    }

    fn each(&self, n: u64) -> f64 {
        n as f64 / self.tokens.max(1) as f64
    }

    /// Returns the number of bytes read per second during decoding.
    fn bandwidth(&self) -> f64 {
        self.bytes_per_token() as f64 * units::rate(self.tokens as f64, self.decode_seconds)
    }

    /// Returns the bandwidth as a fraction of the device's memory bandwidth, if that is known.
    fn share(&self, profile: &DeviceProfile) -> Option<f64> {
        match profile.local_bandwidth {
            0 => None,
            roof => Some(self.bandwidth() / roof as f64),
        }
    }

    /// Returns the host's seconds per token; `None` on a CPU, where the host is the device.
    fn host_seconds(&self, profile: &DeviceProfile) -> Option<f64> {
        let host = (self.decode_seconds - self.waited_seconds).max(0.0);
        (profile.kind != DeviceKind::Cpu).then(|| host / self.tokens.max(1) as f64)
    }
}

fn table(subject: &Subject, m: &Measured) -> String {
    let profile = &subject.profile;
    let prefill = units::rate(m.prompt_tokens as f64, m.prefill_seconds);
    let decode = units::rate(m.tokens as f64, m.decode_seconds);
    let roof = match m.share(profile) {
        Some(share) => {
            format!("{:.1} % of {}/s", share * 100.0, units::bytes(profile.local_bandwidth))
        }
        None => "the device's bandwidth is not known".into(),
    };
    let host = match m.host_seconds(profile) {
        Some(host) => format!("{} a token", units::seconds(host)),
        None => "not measured separately: the CPU is the device".into(),
    };
    let idle = match m.idle_share {
        Some(share) => {
            format!("{:.1} % of decode: the device waits for the host", share * 100.0)
        }
        None => "not measured: no GPU, no device timestamps, or fewer than three tokens".into(),
    };
    let rows = [
        ("model", subject.model.clone()),
        ("device", format!("{} {}", profile.id(), profile.name)),
        ("compute mode", subject.compute_mode.clone()),
        (
            "prefill",
            format!(
                "{} tokens in {}: {prefill:.1} tokens/s",
                m.prompt_tokens,
                units::seconds(m.prefill_seconds)
            ),
        ),
        (
            "decode",
            format!(
                "{} tokens in {}: {decode:.1} tokens/s",
                m.tokens,
                units::seconds(m.decode_seconds)
            ),
        ),
        (
            "reads a token",
            format!(
                "{} of weights, {} of cache",
                units::bytes(m.weight_bytes_per_token),
                units::bytes(m.cache_bytes_per_token)
            ),
        ),
        ("bandwidth", format!("{}/s, {roof}", units::bytes(m.bandwidth() as u64))),
        (
            "each token",
            format!(
                "{:.1} dispatches, {:.2} submits, {:.2} waits, {:.2} allocations",
                m.each(m.dispatches),
                m.each(m.submits),
                m.each(m.waits),
                m.each(m.allocations)
            ),
        ),
        ("host time", host),
        ("idle", idle),
    ];
    let each = m.each.as_ref().map(|each| {
        let rate = units::rate(each.tokens as f64, each.seconds);
        let text = format!(
            "{} tokens in {}: {rate:.1} tokens/s, {:.2} times those of one",
            each.tokens,
            units::seconds(each.seconds),
            rate / decode.max(f64::MIN_POSITIVE)
        );
        (format!("{} at once", each.sequences), text)
    });
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(each);
    rows.map(|(name, value)| format!("{name:13}  {value}\n")).collect()
}

fn report(subject: &Subject, m: &Measured) -> Value {
    let profile = &subject.profile;
    json!({
        "model": subject.model,
        "device": { "id": profile.id(), "name": profile.name },
        "compute_mode": subject.compute_mode,
        "prefill": {
            "tokens": m.prompt_tokens,
            "seconds": m.prefill_seconds,
            "tokens_per_second": units::rate(m.prompt_tokens as f64, m.prefill_seconds),
        },
        "decode": {
            "tokens": m.tokens,
            "seconds": m.decode_seconds,
            "tokens_per_second": units::rate(m.tokens as f64, m.decode_seconds),
            "weight_bytes_per_token": m.weight_bytes_per_token,
            "cache_bytes_per_token": m.cache_bytes_per_token,
            "bytes_per_second": m.bandwidth(),
            "device_bytes_per_second": match profile.local_bandwidth {
                0 => Value::Null,
                roof => roof.into(),
            },
            "share_of_roof": m.share(profile),
            "dispatches_per_token": m.each(m.dispatches),
            "submits_per_token": m.each(m.submits),
            "waits_per_token": m.each(m.waits),
            "allocations_per_token": m.each(m.allocations),
            "host_seconds_per_token": m.host_seconds(profile),
            "device_idle_share": m.idle_share,
        },
        "decode_each": m.each.as_ref().map(|each| json!({
            "sequences": each.sequences,
            "tokens": each.tokens,
            "seconds": each.seconds,
            "tokens_per_second": units::rate(each.tokens as f64, each.seconds),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MeasuredEach;

    fn subject(bandwidth: u64, kind: DeviceKind) -> Subject {
        Subject {
            model: "m.gguf".into(),
            compute_mode: "F32".into(),
            profile: DeviceProfile::webgpu_floor("Test GPU").with(|p| {
                p.local_bandwidth = bandwidth;
                p.kind = kind;
            }),
        }
    }

    fn measured() -> Measured {
        Measured {
            prompt_tokens: 512,
            prefill_seconds: 0.5,
            tokens: 100,
            decode_seconds: 0.2,
            waited_seconds: 0.19,
            weight_bytes_per_token: 90_000_000,
            cache_bytes_per_token: 10_000_000,
            dispatches: 12_000,
            submits: 100,
            waits: 100,
            allocations: 0,
            idle_share: Some(0.05),
            each: None,
        }
    }

    #[test]
    fn the_table_says_how_far_from_the_roof() {
        let want = "\
model          m.gguf
device         webgpu:0 Test GPU
compute mode   F32
prefill        512 tokens in 500.0 ms: 1024.0 tokens/s
decode         100 tokens in 200.0 ms: 500.0 tokens/s
reads a token  90.0 MB of weights, 10.0 MB of cache
bandwidth      50.0 GB/s, 25.0 % of 200.0 GB/s
each token     120.0 dispatches, 1.00 submits, 1.00 waits, 0.00 allocations
host time      100 us a token
idle           5.0 % of decode: the device waits for the host
";
        let subject = subject(200_000_000_000, DeviceKind::Discrete);
        assert_eq!(table(&subject, &measured()), want);
    }

    #[test]
    fn several_sequences_are_set_against_one() {
        let each = Some(MeasuredEach { sequences: 8, tokens: 800, seconds: 0.4 });
        let (subject, measured) = (subject(0, DeviceKind::Cpu), Measured { each, ..measured() });
        let text = table(&subject, &measured);
        let want =
            "8 at once      800 tokens in 400.0 ms: 2000.0 tokens/s, 4.00 times those of one";
        assert!(text.contains(want), "{text}");
        assert_eq!(report(&subject, &measured)["decode_each"]["sequences"], 8);
    }

    #[test]
    fn what_is_not_known_is_said_and_never_a_number() {
        let subject = subject(0, DeviceKind::Cpu);
        let measured = Measured { idle_share: None, ..measured() };
        let text = table(&subject, &measured);
        assert!(text.contains("50.0 GB/s, the device's bandwidth is not known"), "{text}");
        assert!(text.contains("the CPU is the device"), "{text}");
        assert!(text.contains("no device timestamps"), "{text}");
        let got = report(&subject, &measured);
        let fields = ["device_bytes_per_second", "share_of_roof", "host_seconds_per_token"];
        for field in fields.into_iter().chain(["device_idle_share"]) {
            assert!(got["decode"].get(field).is_some_and(Value::is_null), "{field}");
        }
    }

    #[test]
    fn json_holds_the_rates() {
        let got = report(&subject(200_000_000_000, DeviceKind::Discrete), &measured());
        assert_eq!(got["prefill"]["tokens_per_second"], 1024.0);
        assert_eq!(got["decode"]["tokens_per_second"], 500.0);
        assert_eq!(got["decode"]["dispatches_per_token"], 120.0);
        assert_eq!(got["decode"]["submits_per_token"], 1.0);
        assert_eq!(got["decode"]["device_idle_share"], 0.05);
        assert!((got["decode"]["share_of_roof"].as_f64().unwrap() - 0.25).abs() < 1e-9);
        assert!((got["decode"]["host_seconds_per_token"].as_f64().unwrap() - 1e-4).abs() < 1e-9);
    }

    #[test]
    fn defaults_fit_the_context_and_wishes_are_kept_or_refused() {
        assert_eq!(split(4096, None, None).unwrap(), (512, 128));
        assert_eq!(split(512, None, None).unwrap(), (384, 128));
        assert_eq!(split(512, Some(500), None).unwrap(), (500, 12));
        assert_eq!(split(512, None, Some(400)).unwrap(), (112, 400));
        assert_eq!(split(512, Some(10), Some(20)).unwrap(), (10, 20));
        for (prompt, tokens) in [(Some(512), None), (None, Some(512)), (Some(usize::MAX), Some(1))]
        {
            let error = split(512, prompt, tokens).unwrap_err().to_string();
            assert!(error.contains("context of 512"), "{error}");
        }
    }
}
