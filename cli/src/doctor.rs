//! Runs `warploom doctor`: tests engines and stores the findings.

use crate::Exit;
use crate::doctor_args::DoctorArgs;
use crate::engine;
use crate::output;
use crate::progress::{Progress, tell};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use warploom::engine::{DriverKey, ERRATA, errata};
use warploom::runtime::{Findings, Notebook, Runtime};
use warploom_testkit::doctor::{Examination, Finding, Limits, examine};

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let notebook = Notebook::of_user();
    if args.forget {
        return forget(args, &notebook);
    }
    let mut builder = Runtime::builder().trusting(true);
    if let Some(device) = &args.device {
        builder = builder.device(device);
    }
    let runtime = builder.build()?;
    if !args.json {
        tell(&runtime.startup_line());
    }
    let (seconds, first_seconds) = (args.seconds, args.first_seconds);
    let limits = Limits { seconds, first_seconds, cases: args.cases };
    let found = {
        let template = "examining {bar:30} {pos}/{len} engines, {msg}";
        let progress = Progress::of(false, template);
        let cases = warploom_testkit::cases();
        examine(&runtime, &cases, &limits, &mut |met, total, engine| {
            progress.set(met as u64, total as u64);
            progress.name(engine.as_str());
        })?
    };
    let before = notebook.read(&found.device).unwrap_or_else(|error| {
        tell(&format!("stored results are ignored: {error}"));
        None
    });
    let findings = found.findings(before.as_ref());
    let mended = mended(before.as_ref(), &findings);
    let kept = if args.no_save || notebook.path(&found.device).is_none() {
        None
    } else {
        Some(notebook.write(&findings)?)
    };
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{:#}", object(&runtime, &found, &findings, &mended, kept.as_deref()))?;
    } else {
        write!(out, "{}", table(&runtime, &found, args.all))?;
        for engine in &mended {
            writeln!(out, "{engine} failed before and now passes")?;
        }
        if let Some(path) = &kept {
            tell(&format!("saved to {}", path.display()));
        }
    }
    match found.engines.iter().filter(|e| e.finding.complaint().is_some()).count() {
        0 => Ok(Exit::Done),
        wrong => bail!("{wrong} of {} engines are wrong on this device", found.engines.len()),
    }
}

fn forget(args: &DoctorArgs, notebook: &Notebook) -> anyhow::Result<Exit> {
    let found = engine::detect(args.device.as_deref())?;
    let device = found.devices.into_iter().find(|device| device.selected);
    let profile = device.context("no device is selected")?.profile;
    let forgotten = notebook.forget(&DriverKey::of(&profile))?;
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

/// Returns the engines that failed before and do not fail now.
fn mended<'a>(before: Option<&'a Findings>, now: &Findings) -> Vec<&'a str> {
    let before = before.map(|before| before.wrong.as_slice()).unwrap_or_default();
    let still = |engine| now.wrong.iter().any(|wrong| wrong.engine == engine);
    let gone = before.iter().filter(|wrong| !still(wrong.engine.clone()));
    gone.map(|wrong| wrong.engine.as_str()).collect()
}

fn object(
    runtime: &Runtime,
    found: &Examination,
    findings: &Findings,
    mended: &[&str],
    kept: Option<&Path>,
) -> Value {
    let profile = runtime.device().profile();
    let errata: Vec<Value> = errata(ERRATA, profile, runtime.registry())
        .iter()
        .map(|block| json!({ "engine": block.engine, "reason": block.reason }))
        .collect();
    json!({
        "schema": 1,
        "version": findings.version,
        "date": findings.date,
        "device": { "id": profile.id(), "profile": profile },
        "seconds": found.seconds,
        "complete": found.left_out.is_empty(),
        "left_out": found.left_out,
        "right": found.engines.iter().all(|e| e.finding.complaint().is_none()),
        "engines": found.engines,
        "blocked": findings.wrong,
        "mended": mended,
        "errata": errata,
        "remembered_in": kept,
    })
}

/// Returns the report as text: a line for each failed engine or, with `all`, for every engine, then
/// counts.
fn table(runtime: &Runtime, found: &Examination, all: bool) -> String {
    let mut text = String::new();
    let profile = runtime.device().profile();
    let os = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let rows = [
        ("device", format!("{} {}", profile.id(), profile.name)),
        ("vendor", profile.vendor.clone()),
        ("driver", profile.driver.clone()),
        ("warploom", format!("{} on {os}", env!("CARGO_PKG_VERSION"))),
    ];
    // Writing to a string cannot fail.
    for (name, value) in rows {
        let _ = writeln!(text, "{name:9} {value}");
    }
    let _ = writeln!(text);
    let (mut right, mut cases, mut numbers, mut unknown) = (0, 0, 0, 0);
    let width = found.engines.iter().map(|e| e.engine.as_str().len()).max().unwrap_or(0);
    for examined in &found.engines {
        let engine = examined.engine.as_str();
        let line = match &examined.finding {
            Finding::Right { cases: more, elements, worst_share } => {
                right += 1;
                cases += more;
                numbers += elements;
                format!(
                    "right    {more} cases, {elements} numbers, errors to {:.0}% of the limit",
                    worst_share * 100.0
                )
            }
            Finding::NotExamined { why } => {
                unknown += 1;
                format!("not met  {why}")
            }
            Finding::Wrong { other_engines, .. } => {
                let complaint = examined.finding.complaint().unwrap_or_default();
                let others: Vec<&str> =
                    other_engines.iter().map(|engine| engine.as_str()).collect();
                let others = match others.is_empty() {
                    true => String::new(),
                    false => format!("; in a plan with {}", others.join(", ")),
                };
                format!("WRONG    {complaint}{others}")
            }
            Finding::Failed { .. } => {
                format!("FAILED   {}", examined.finding.complaint().unwrap_or_default())
            }
        };
        if all || examined.finding.complaint().is_some() {
            let _ = writeln!(text, "{engine:width$}  {line}");
        }
    }
    let left_out = found.left_out.len();
    let wrong = found.engines.len() - right - unknown;
    let _ = writeln!(
        text,
        "{right} engines are right in {cases} cases ({numbers} numbers), {wrong} wrong, {} \
         not for this device or met by no case; {:.1} s",
        unknown - left_out,
        found.seconds
    );
    if left_out > 0 {
        let of = right + wrong + left_out;
        let _ = writeln!(
            text,
            "IN PART  {left_out} of {of} engines had no case before the time was up, which \
             --first-seconds sets; --all lists them"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::engine::EngineId;
    use warploom_testkit::doctor::Examined;

    #[test]
    fn the_table_has_what_a_bug_report_needs() {
        let runtime = Runtime::builder().device("null").build().unwrap();
        let engine =
            |name: &str, finding| Examined { engine: EngineId::new(name.to_string()), finding };
        let wrong = Finding::Wrong {
            case: "rope/one".into(),
            tensor: "y".into(),
            index: Some(3),
            expected: Some(1.5),
            got: Some(f64::NAN),
            what: "element 3 [3] of [8]: expected 1.5, got NaN".into(),
            other_engines: vec![EngineId::new("fused.copy")],
        };
        let failed = Finding::Failed { case: "norm/two".into(), what: "does not compile".into() };
        let right = Finding::Right { cases: 2, elements: 70, worst_share: 0.254 };
        let why = "the device has no subgroups".to_string();
        let found = Examination {
            device: DriverKey::of(runtime.device().profile()),
            engines: vec![
                engine("a.rope", wrong),
                engine("a.norm.wide", failed),
                engine("a.sum", right),
                engine("a.max", Finding::NotExamined { why }),
            ],
            left_out: Vec::new(),
            seconds: 1.25,
        };
        let text = table(&runtime, &found, false);
        for line in [
            "a.rope       WRONG    rope/one: \"y\": element 3 [3] of [8]: expected 1.5, got NaN; in a plan with fused.copy",
            "a.norm.wide  FAILED   norm/two: does not compile",
            "1 engines are right in 2 cases (70 numbers), 2 wrong, 1 not for this device or met by no case; 1.2 s",
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }
        assert!(text.starts_with("device    null:0") && !text.contains("a.sum"), "{text}");
        let all = table(&runtime, &found, true);
        assert!(
            all.contains("a.sum        right    2 cases, 70 numbers, errors to 25% of the limit")
        );
        assert!(all.contains("a.max        not met  the device has no subgroups"), "{all}");

        let part = Examination { left_out: vec![EngineId::new("a.max")], ..found.clone() };
        let text = table(&runtime, &part, false);
        for line in [
            "1 engines are right in 2 cases (70 numbers), 2 wrong, 0 not for this device or met by no case; 1.2 s",
            "IN PART  1 of 4 engines had no case before the time was up, which --first-seconds sets; --all lists them",
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }

        let findings = found.findings(None);
        let object = object(&runtime, &found, &findings, &[], None);
        assert_eq!((&object["right"], &object["engines"][0]["index"]), (&false.into(), &3.into()));
        assert_eq!(object["engines"][0]["finding"], "wrong");
        assert_eq!(object["complete"], true);
        assert_eq!(object["blocked"].as_array().unwrap().len(), 2);
        let mended_now = Findings::new(found.device.clone(), findings.wrong[1..].to_vec());
        assert_eq!(mended(Some(&findings), &mended_now), ["a.rope"]);
    }
}
