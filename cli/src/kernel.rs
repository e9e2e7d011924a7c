//! Runs `warploom kernel`: creates and checks packs.

use crate::Exit;
use crate::kernel_args::{CheckArgs, KernelArgs, KernelCommand, NewArgs};
use crate::kernel_bench;
use crate::kernel_show;
use crate::output;
use crate::progress::tell;
use anyhow::{Context, bail};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use warploom::kernel::pack::{MANIFEST, Pack};
use warploom::runtime::{Detection, Runtime};
use warploom_testkit::pack::{self, Outcome, Row};

pub(crate) fn run(args: &KernelArgs) -> anyhow::Result<Exit> {
    match &args.command {
        KernelCommand::New(args) => new(args),
        KernelCommand::Check(args) => check(args),
        KernelCommand::Bench(args) => kernel_bench::run(args),
        KernelCommand::Show(args) => kernel_show::run(args),
    }
}

/// Manifest of a new pack, which computes `out = a * x + y`.
const NEW_MANIFEST: &str = include_str!("kernel_new/pack.toml");
/// Shader of a new pack.
const NEW_SHADER: &str = include_str!("kernel_new/kernel.wgsl");

fn new(args: &NewArgs) -> anyhow::Result<Exit> {
    let folder = &args.folder;
    let name = folder.file_name().and_then(|name| name.to_str());
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let Some(name) = name.filter(|name| name.chars().all(fine) && name.len() <= 64) else {
        bail!(
            "{}: the last part must be a name of 1 to 64 characters A-Z a-z 0-9 _ - .",
            folder.display()
        );
    };
    if folder.exists() {
        bail!("{} already exists", folder.display());
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (file, text) in [(MANIFEST.to_string(), NEW_MANIFEST), (format!("{name}.wgsl"), NEW_SHADER)]
    {
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    tell(&format!("{name} is in {0}; next: warploom kernel check {0}", folder.display()));
    Ok(Exit::Done)
}

/// The JSON output of `kernel check`.
#[derive(Serialize)]
struct Checked<'a> {
    pack: &'a Path,
    right: bool,
    /// Why the pack could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    rows: &'a [Row],
}

fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    let read = Pack::load(&args.folder).and_then(|pack| Ok((pack::cases(&pack)?, pack)));
    let mut error = None;
    let mut out = output::stdout();
    match read {
        Ok((cases, pack)) => {
            let runtimes = runtimes(&args.device)?;
            for case in &cases {
                let (row, job) = pack::in_interpreter(&pack, case);
                tell_row(&mut out, args.json, &row)?;
                rows.push(row);
                // A kernel that fails in the interpreter does not run on devices: it could hang a
                // GPU.
                for runtime in job.iter().flat_map(|_| &runtimes) {
                    let Some(job) = &job else { continue };
                    let row = pack::on_device(job, runtime);
                    tell_row(&mut out, args.json, &row)?;
                    rows.push(row);
                }
            }
            if let Some(operation) = pack.operation() {
                let cases = pack::cases_of(operation);
                let row = pack::operation_in_interpreter(&pack, &cases);
                let right = matches!(row.outcome, Outcome::Right { .. });
                tell_row(&mut out, args.json, &row)?;
                rows.push(row);
                for runtime in runtimes.iter().filter(|_| right) {
                    let row = pack::operation_on_device(&pack, &cases, runtime)?;
                    tell_row(&mut out, args.json, &row)?;
                    rows.push(row);
                }
            }
        }
        // With the causes of the error.
        Err(e) => error = Some(format!("{:#}", anyhow::Error::from(e))),
    }
    let wrong = rows.iter().filter(|row| matches!(row.outcome, Outcome::Wrong { .. })).count();
    let right = wrong == 0 && error.is_none();
    if args.json {
        let checked = Checked { pack: &args.folder, right, error: error.clone(), rows: &rows };
        writeln!(out, "{}", serde_json::to_string_pretty(&checked)?)?;
    }
    match error {
        Some(error) => bail!("{error}"),
        None if !right => bail!("{wrong} of {} checks are wrong", rows.len()),
        None => Ok(Exit::Done),
    }
}

fn tell_row(out: &mut impl Write, json: bool, row: &Row) -> anyhow::Result<()> {
    if json {
        return Ok(());
    }
    let outcome = match &row.outcome {
        Outcome::Right { elements, max_error } if *max_error > 0.0 => {
            format!("right: {elements} numbers, the largest error is {max_error:.2e}")
        }
        Outcome::Right { elements, .. } => format!("right: {elements} numbers"),
        Outcome::Wrong { what } => format!("WRONG: {what}"),
        Outcome::Unsupported { why } => format!("not here: {why}"),
    };
    Ok(writeln!(out, "{:<12} {:<12} {outcome}", row.case, row.place)?)
}

/// Opens the named devices, or every selectable one if none is named.
fn runtimes(names: &[String]) -> anyhow::Result<Vec<Runtime>> {
    let all = || -> anyhow::Result<Vec<String>> {
        let detection = Detection::detect("auto")?;
        let devices = detection.devices.iter().filter(|device| device.rank.is_some());
        Ok(devices.map(|device| device.profile.id()).collect())
    };
    let names = if names.is_empty() { all()? } else { names.to_vec() };
    let open = |name: &String| Ok(Runtime::builder().device(name.clone()).build()?);
    names.iter().map(open).collect()
}
