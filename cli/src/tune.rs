//! Runs `warploom tune`: searches for the fastest engines for a model.

use crate::Exit;
use crate::engine::{self, open_model};
use crate::output;
use crate::progress::{Progress, tell};
use crate::tune_args::{Class, TuneArgs};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use warploom::engine::DriverKey;
use warploom::graph::{self, Graph};
use warploom::plan::{Task, tasks};
use warploom::provider::DeviceProfile;
use warploom::runtime::{Runtime, TuneCache, TuneMode, TuneOptions, TuneReport, TuneResult};
use warploom_core::base::{DType, ShapeClass};
use warploom_llm::{
    BASE, CacheShape, DecoderInput, DecoderOutput, MAX_SEQUENCES, Model, PAST, Session, class_of,
    class_of_batch,
};

/// Maximum number of characters of a label in the table.
const LABEL: usize = 48;
/// Default number of positions of the KV cache, as in a session.
const CONTEXT: usize = 4096;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    let cache = TuneCache::of_user();
    if args.forget {
        return forget(args, &cache);
    }
    let place = args.place();
    let model = open_model(&place)?;
    // Stored results are used here even if WARPLOOM_TUNE disables them for plans.
    let builder = Runtime::builder().tune(TuneMode::Cached);
    let runtime = place.set(builder).build()?;
    if !args.json {
        tell(&runtime.startup_line());
    }
    let tasks = all_tasks(args, &model, &runtime)?;
    let options =
        TuneOptions { seconds: args.seconds, again: args.again, ..TuneOptions::default() };
    let report = {
        let template = "tuning {bar:30} {pos}/{len} tasks, {msg}";
        let progress = Progress::of(false, template);
        runtime.tune(&tasks, &options, &mut |at| {
            progress.set(at.done as u64, at.tasks as u64);
            progress.name(&format!("{}: candidate {}", at.label, at.candidates));
        })?
    };
    let device = DriverKey::of(runtime.device().profile());
    let mut out = output::stdout();
    if args.json {
        let object = object(runtime.device().profile(), &report, &cache);
        writeln!(out, "{object:#}")?;
    } else {
        write!(out, "{}", table(&report))?;
        if let Some(ignored) = &report.ignored {
            tell(&format!("stored results are not used: {ignored}"));
        }
        match (&report.not_kept, cache.path(&device)) {
            (None, Some(path)) => tell(&format!("kept in {}", path.display())),
            (why, _) => tell(&format!("not kept: {}", why.as_deref().unwrap_or("no folder"))),
        }
    }
    // Results are printed first: writing may fail, and the search took long.
    if let Some(path) = &args.output {
        let record =
            cache.read(&device)?.context("results are not stored, so they cannot be written")?;
        record.save(path)?;
        tell(&format!("{} tasks written to {}", record.tasks.len(), path.display()));
    }
    match report.stopped {
        Some(why) => bail!("the search stopped: {why}; the next one leaves out what stopped it"),
        None => Ok(Exit::Done),
    }
}

/// Returns the distinct tasks of all plans that a session with the given number of sequences makes
/// for the given shape classes; batched plans are those of the full batch.
fn all_tasks(args: &TuneArgs, model: &Model, runtime: &Runtime) -> anyhow::Result<Vec<Task>> {
    let profile = runtime.device().profile();
    let trained = model.config().context;
    let context = args.context.unwrap_or(trained.min(CONTEXT));
    if context == 0 || context > trained {
        bail!("a context of {context} positions, the model was trained for 1 to {trained}");
    }
    if args.sequences > MAX_SEQUENCES {
        bail!("{} sequences, a session has 1 to {MAX_SEQUENCES}", args.sequences);
    }
    let mode = args.compute.unwrap_or_else(|| Session::default_mode(profile));
    let dtype: DType = args.cache.unwrap_or(Session::default_cache(mode));
    let sequences = args.sequences;
    let cache = CacheShape::new(sequences, context, dtype);
    let graph = |input, output| -> anyhow::Result<Graph> {
        Ok(graph::computing_in(&model.graph_on(profile.kind, cache, input, output)?, mode)?)
    };
    // With several sequences, a plan covers every first cache row, as in a session.
    let placed = |class: ShapeClass| match sequences {
        1 => class,
        count => class.with(BASE, 0, ((count - 1) * context) as u64),
    };
    let mut plans = Vec::new();
    for class in &args.classes {
        let of_tokens = placed(class_of(class.tokens().min(context), context)?);
        let mut outputs = vec![DecoderOutput::Greedy, DecoderOutput::Logits];
        match class {
            Class::Decode => {
                let ahead = placed(ShapeClass::new().with(PAST, 0, context as u64));
                plans.push((graph(DecoderInput::RunAhead, DecoderOutput::Greedy)?, ahead));
            }
            _ => outputs.push(DecoderOutput::Nothing),
        }
        for output in outputs {
            plans.push((graph(DecoderInput::Tokens, output)?, of_tokens.clone()));
        }
        if *class == Class::Decode && sequences > 1 {
            let each = class_of_batch(sequences)?;
            for (input, output) in [
                (DecoderInput::Batch, DecoderOutput::Greedy),
                (DecoderInput::Batch, DecoderOutput::Logits),
                (DecoderInput::BatchRunAhead, DecoderOutput::Greedy),
            ] {
                plans.push((graph(input, output)?, each.clone()));
            }
        }
    }
    let mut all: Vec<Task> = Vec::new();
    for (graph, class) in plans {
        for task in tasks(&graph, &class, profile, &runtime.plan_options())? {
            if !all.iter().any(|known| known.key == task.key) {
                all.push(task);
            }
        }
    }
    // The largest share of a run comes first, in case time runs out.
    all.sort_by(|a, b| (b.seconds * b.count as f64).total_cmp(&(a.seconds * a.count as f64)));
    Ok(all)
}

fn forget(args: &TuneArgs, cache: &TuneCache) -> anyhow::Result<Exit> {
    let found = engine::detect(args.device.as_deref())?;
    let device = found.devices.into_iter().find(|device| device.selected);
    let profile = device.context("no device is selected")?.profile;
    let forgotten = cache.forget(&DriverKey::of(&profile))?;
    if args.json {
        let object =
            json!({ "schema": 1, "device": DriverKey::of(&profile), "forgotten": forgotten });
        writeln!(output::stdout(), "{object:#}")?;
    } else {
        let what = if forgotten { "forgotten" } else { "no stored results for" };
        tell(&format!("{what} {} {:?}", profile.id(), profile.name));
    }
    Ok(Exit::Done)
}

fn object(profile: &DeviceProfile, report: &TuneReport, cache: &TuneCache) -> Value {
    let kept = match report.not_kept {
        None => cache.path(&DriverKey::of(profile)),
        Some(_) => None,
    };
    json!({
        "schema": 1,
        "device": { "id": profile.id(), "profile": profile },
        "report": report,
        "kept_in": kept,
    })
}

/// Returns the table of tasks with their times before and after tuning, and the total.
fn table(report: &TuneReport) -> String {
    let mut text = String::new();
    let (mut before, mut after) = (0.0, 0.0);
    let rows = report.results.iter().map(|result| (result, speed(result)));
    let label = |result: &TuneResult| -> String { result.label.chars().take(LABEL).collect() };
    let width = report.results.iter().map(|r| label(r).chars().count()).max().unwrap_or(0);
    for (result, (was, is, choice)) in rows {
        let count = result.count as f64;
        (before, after) = (before + was * count, after + is * count);
        let times = format!("{}x", result.count);
        let us = |s: f64| format!("{:.1}", s * 1e6);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {times:>4}  {:>9} us -> {:>9} us  {choice}",
            label(result),
            us(was),
            us(is),
        );
        for dropped in result.dropped.iter().filter(|d| d.why.starts_with("wrong")) {
            let _ = writeln!(text, "    {} {}: {}", dropped.engine, dropped.knobs, dropped.why);
        }
    }
    if before > 0.0 {
        let share = 100.0 * (1.0 - after / before);
        let _ = writeln!(
            text,
            "together {:.1} us -> {:.1} us ({share:.1} % less)",
            before * 1e6,
            after * 1e6
        );
    }
    let _ = writeln!(
        text,
        "{} tasks measured with {} candidates, {} known before",
        report.results.len(),
        report.measured,
        report.known
    );
    if report.unmeasured > 0 {
        let _ = writeln!(
            text,
            "{} could not be measured before, and were not tried: --again does",
            report.unmeasured
        );
    }
    text
}

/// Returns a task's seconds before and after tuning, and the choice as text.
fn speed(result: &TuneResult) -> (f64, f64, String) {
    let Some(tuned) = &result.tuned else {
        let why = result.unmeasured.as_deref().unwrap_or_default();
        return (0.0, 0.0, format!("not measured: {why}"));
    };
    let same = tuned.engine == tuned.against && result.ratio >= 1.0;
    let choice = match same {
        true => format!("{}, as estimated", tuned.engine),
        false => format!("{} {}", tuned.engine, tuned.knobs),
    };
    (tuned.against_seconds, tuned.seconds, choice.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::engine::{EngineId, KnobValues, Tuned};
    use warploom::runtime::Dropped;

    #[test]
    fn the_table_shows_before_and_after() {
        let key = serde_json::from_value("0123".into()).unwrap();
        let id = |name: &str| EngineId::new(name.to_string());
        let tuned = Tuned {
            engine: id("a.b"),
            engine_version: 1,
            knobs: KnobValues::default().with("rows", 4),
            seconds: 10e-6,
            against: id("a.c"),
            against_seconds: 20e-6,
        };
        let won = TuneResult {
            key,
            label: "blk.0.ffn_down (linear)".into(),
            shapes: "f32[1, 2] -> f32[1, 2]".into(),
            count: 3,
            tuned: Some(tuned.clone()),
            unmeasured: None,
            ratio: 0.5,
            measured: 4,
            dropped: vec![Dropped {
                engine: id("a.d"),
                knobs: KnobValues::default(),
                why: "wrong: y: element 3".into(),
            }],
        };
        let same =
            Tuned { engine: id("a.c"), knobs: KnobValues::default(), seconds: 20e-6, ..tuned };
        let stays = TuneResult {
            label: "norm".into(),
            count: 1,
            tuned: Some(same),
            ratio: 1.0,
            dropped: Vec::new(),
            ..won.clone()
        };
        let lost = TuneResult {
            label: "head".into(),
            tuned: None,
            unmeasured: Some("out of memory".into()),
            ..stays.clone()
        };
        let report = TuneReport {
            known: 2,
            unmeasured: 1,
            measured: 9,
            results: vec![won, stays, lost],
            ..TuneReport::default()
        };
        let text = table(&report);
        for line in [
            "blk.0.ffn_down (linear)    3x       20.0 us ->      10.0 us  a.b rows=4",
            "    a.d : wrong: y: element 3",
            "norm                       1x       20.0 us ->      20.0 us  a.c, as estimated",
            "head                       1x        0.0 us ->       0.0 us  not measured: out of memory",
            "together 80.0 us -> 50.0 us (37.5 % less)",
            "3 tasks measured with 9 candidates, 2 known before",
            "1 could not be measured before, and were not tried: --again does",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
        }
        let profile = DeviceProfile::webgpu_floor("one");
        let object = object(&profile, &report, &TuneCache::nowhere());
        assert_eq!(object["report"]["results"][0]["tuned"]["knobs"]["rows"], 4);
        assert_eq!(object["kept_in"], Value::Null);
    }
}
