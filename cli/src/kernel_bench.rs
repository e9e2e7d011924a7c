//! Runs `warploom kernel bench`: checks every variant of a pack, then times it.

use crate::Exit;
use crate::kernel_args::KernelBenchArgs;
use crate::progress::tell;
use crate::{output, units};
use anyhow::bail;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use warploom::kernel::pack::{Case, MANIFEST, Pack};
use warploom::runtime::Runtime;
use warploom::tensor::tuned_name;
use warploom_testkit::pack::{self, Outcome, Timing};

/// Maximum number of variants, to bound the run time.
const MAX_VARIANTS: usize = 256;

/// One choice of values for a pack's tuning constants, and the time of the kernel with them.
#[derive(Serialize)]
struct Variant {
    constants: BTreeMap<String, f64>,
    /// Why it was not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timing: Option<Timing>,
}

/// The JSON output of `kernel bench`.
#[derive(Serialize)]
struct Bench {
    pack: String,
    device: String,
    values: BTreeMap<String, f64>,
    variants: Vec<Variant>,
    /// Index of the fastest variant.
    best: usize,
}

pub(crate) fn run(args: &KernelBenchArgs) -> anyhow::Result<Exit> {
    let mut pack = Pack::load(&args.folder)?;
    let cases = pack::cases(&pack)?;
    let Some(mut timed) = cases.first().cloned() else {
        bail!("{}: there is no [[case]] in {MANIFEST}, whose sizes are timed", pack.name());
    };
    timed.name = "timed".into();
    // Expected outputs and input lists fit only the case's own sizes.
    timed.outputs.clear();
    if !args.settings.is_empty() {
        timed.inputs.clear();
    }
    timed.values.extend(args.settings.iter().cloned());
    let builder = Runtime::builder();
    let builder = args.device.iter().fold(builder, |builder, device| builder.device(device));
    let runtime = builder.build()?;
    tell(&runtime.startup_line());
    let mut variants = Vec::new();
    for constants in combinations(&pack)? {
        let named: Vec<(&str, f64)> = constants.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let (wrong, timing) = match variant(&pack, &named, &cases, &timed, &runtime, args.runs) {
            Ok(timing) => (None, Some(timing)),
            Err(error) => (Some(format!("{error:#}")), None),
        };
        variants.push(Variant { constants, wrong, timing });
    }
    let times = variants.iter().enumerate();
    let times = times.filter_map(|(i, variant)| Some((i, variant.timing?.total_s)));
    let Some((best, _)) = times.min_by(|a, b| a.1.total_cmp(&b.1)) else {
        let why = variants.iter().find_map(|variant| variant.wrong.clone());
        bail!("nothing could be timed: {}", why.unwrap_or_default());
    };
    let profile = runtime.device().profile();
    if args.save && !pack.tune().is_empty() {
        pack.keep_tuned(&tuned_name(profile), &variants[best].constants)?;
        tell(&format!("kept for {}", tuned_name(profile)));
    }
    let device = profile.id();
    let name = pack.name().to_string();
    let bench = Bench { pack: name, device, values: timed.values, variants, best };
    let mut out = output::stdout();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&bench)?)?,
        false => table(&mut out, &bench)?,
    }
    Ok(Exit::Done)
}

/// Checks a variant with every case of the pack, and times it if all pass.
fn variant(
    pack: &Pack,
    constants: &[(&str, f64)],
    cases: &[Case],
    timed: &Case,
    runtime: &Runtime,
    runs: usize,
) -> anyhow::Result<Timing> {
    let pack = pack.with_constants(constants)?;
    for case in cases {
        let (row, job) = pack::in_interpreter(&pack, case);
        let row = match &job {
            Some(job) => pack::on_device(job, runtime),
            None => row,
        };
        match row.outcome {
            Outcome::Right { .. } => {}
            Outcome::Wrong { what } => bail!("{} on {}: {what}", row.case, row.place),
            Outcome::Unsupported { why } => bail!("{why}"),
        }
    }
    Ok(pack::time(&pack::unchecked(&pack, timed)?, runtime, runs)?)
}

/// Returns every combination of values of the tuning constants; a single empty one if the pack has
/// no tuning constants.
fn combinations(pack: &Pack) -> anyhow::Result<Vec<BTreeMap<String, f64>>> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in pack.tune() {
        let with = |before: &BTreeMap<String, f64>, value: f64| {
            let mut after = before.clone();
            after.insert(name.clone(), value);
            after
        };
        all = all.iter().flat_map(|one| values.iter().map(|value| with(one, *value))).collect();
        if all.len() > MAX_VARIANTS {
            bail!("the manifest tunes more than {MAX_VARIANTS} variants");
        }
    }
    Ok(all)
}

fn table(out: &mut impl Write, bench: &Bench) -> anyhow::Result<()> {
    for (i, variant) in bench.variants.iter().enumerate() {
        let constants: Vec<String> =
            variant.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let name = if constants.is_empty() { "as it is".into() } else { constants.join(" ") };
        match (variant.timing, &variant.wrong) {
            (Some(time), _) => {
                let rate = units::rate(time.bytes as f64, time.kernel_s) / 1e9;
                let share = 100.0 * units::rate(rate * 1e9, time.copy_bandwidth as f64);
                let best = if i == bench.best { "  best" } else { "" };
                writeln!(
                    out,
                    "{name:<24} kernel {:>8}  all {:>8}  {rate:>8.2} GB/s, {share:.0}% of a \
                     copy's{best}",
                    units::seconds(time.kernel_s),
                    units::seconds(time.total_s)
                )?;
            }
            (None, wrong) => {
                let wrong = wrong.as_deref().unwrap_or_default();
                writeln!(out, "{name:<24} not timed: {wrong}")?;
            }
        }
    }
    Ok(())
}
