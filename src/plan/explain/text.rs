//! The text form of a report.

use std::fmt::Write;

use super::reroll::{Fold, fold, masked};
use super::units::{bytes, count, seconds, share};
use super::{Report, StepReport};
use crate::engine::Verdict;

/// Options for the text of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// Whether every step is listed; if not, repetitions, such as the layers of a decoder, appear
    /// once.
    pub all: bool,
    /// Whether to draw a map of each arena buffer.
    pub arena: bool,
    /// Whether to list why each engine was chosen, and the rejected ones.
    pub why: bool,
}

impl Report {
    /// Formats the report as text.
    pub fn text(&self, options: &TextOptions) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.head(&mut text);
        let _ = self.table(options, &mut text);
        let _ = self.totals_text(&mut text);
        if self.analysis.is_some() {
            let _ = writeln!(text, "\nby engine:\n{}", self.engines_text());
        }
        let _ = self.memory_text(options, &mut text);
        if options.why {
            let _ = self.why(&mut text);
        }
        text
    }

    /// Formats a table with a line per engine, the most expensive first.
    pub fn engines_text(&self) -> String {
        let of = if self.analysis.is_some() { "of copy" } else { "of roof" };
        let heads = ["engine", "steps", "time", "share", "B/s", "flop/s", of];
        let mut table = Table { heads: heads.to_vec(), rows: Vec::new() };
        for engine in &self.engines {
            table.rows.push(Ok(vec![
                engine.engine.clone(),
                engine.steps.to_string(),
                seconds(engine.seconds),
                share(engine.share),
                count(engine.bytes_per_s),
                count(engine.flops_per_s),
                share(engine.roof),
            ]));
        }
        table.text()
    }

    /// Formats the outline; see [`Plan::outline`](crate::plan::Plan::outline).
    pub(super) fn outline(&self) -> String {
        let line =
            |s: &StepReport| format!("{} | {} | {} | {}", s.label, s.engine, s.kernel, grid(s));
        let keys: Vec<String> =
            self.steps.iter().map(|step| masked_label(step, line(step))).collect();
        let mut text = format!("{} {} on {}\n", self.graph, self.class, self.device.name);
        text.push_str(&format!("{} dispatches\n", self.steps.len()));
        for Fold { start, len, times } in fold(&keys) {
            let indent = if times > 1 { "  " } else { "" };
            if times > 1 {
                text.push_str(&format!("{times} times:\n"));
            }
            for step in &self.steps[start..start + len] {
                text.push_str(&format!("{indent}{}\n", line(step)));
            }
        }
        text
    }

    fn head(&self, f: &mut String) -> std::fmt::Result {
        let device = &self.device;
        writeln!(f, "plan {:?} {} for {} {:?}", self.graph, self.class, device.id, device.name)?;
        let off = if self.off.is_empty() { "none".into() } else { self.off.join(", ") };
        writeln!(f, "passes: {}; off: {off}", self.passes.join(", "))?;
        if self.deterministic {
            writeln!(f, "deterministic: bits depend only on the inputs")?;
        }
        writeln!(
            f,
            "estimates: {}/s of memory, {}flop/s, at the upper ends of the class",
            bytes(device.bytes_per_s),
            count(device.flops_per_s)
        )?;
        if let Some(analysis) = &self.analysis {
            writeln!(
                f,
                "measured: {} runs on {}; {}; a copy moves {}/s",
                analysis.runs,
                analysis.device,
                analysis.clock.describe(),
                bytes(analysis.bandwidth as f64)
            )?;
        }
        writeln!(f)
    }

    fn table(&self, options: &TextOptions, f: &mut String) -> std::fmt::Result {
        let keys: Vec<String> = self
            .steps
            .iter()
            .map(|s| masked_label(s, format!("{} {} {} {}", s.engine, s.kernel, grid(s), s.shapes)))
            .collect();
        let folds = match options.all {
            true => vec![Fold { start: 0, len: self.steps.len(), times: 1 }],
            false => fold(&keys),
        };
        let measured = self.analysis.is_some();
        let mut table = Table::of_steps(measured);
        for Fold { start, len, times } in folds {
            if times > 1 {
                let all = &self.steps[start..start + len * times];
                table.note(self.repeated(all, len, times));
            }
            for step in &self.steps[start..start + len] {
                table.step(step, measured);
            }
            if times > 1 {
                table.note(String::new());
            }
        }
        f.push_str(&table.text());
        writeln!(f)
    }

    /// Formats the heading of the steps `all`, which are `times` repetitions of `len` steps.
    fn repeated(&self, all: &[StepReport], len: usize, times: usize) -> String {
        let (first, last) = (all[0].number, all[all.len() - 1].number);
        let estimated: f64 = all.iter().map(|step| step.seconds).sum();
        let mut text = format!(
            "-- steps {first} to {last}: {times} times {len}, {} estimated",
            seconds(estimated)
        );
        if self.analysis.is_some() {
            let measured = all.iter().filter_map(|step| step.measured.as_ref());
            let sum: f64 = measured.map(|m| m.median).sum();
            text.push_str(&format!(", {} measured", seconds(sum)));
        }
        text.push_str("; the first of them:");
        text
    }

    fn totals_text(&self, f: &mut String) -> std::fmt::Result {
        let t = &self.totals;
        writeln!(
            f,
            "run: {} dispatches of {} kernels, {} submit, {} wait, {} barriers; {} up, {} down",
            t.dispatches,
            t.kernels,
            t.submits,
            t.waits,
            t.barriers,
            bytes(t.upload_bytes as f64),
            bytes(t.download_bytes as f64)
        )?;
        writeln!(
            f,
            "     {} moved, {}flop, {} estimated",
            bytes(t.bytes),
            count(t.flops),
            seconds(t.seconds)
        )?;
        let Some(analysis) = &self.analysis else { return Ok(()) };
        let (run, host) = (&analysis.run, &analysis.host);
        let steps: f64 = analysis.steps.iter().map(|step| step.median).sum();
        writeln!(
            f,
            "measured: {} a run ({} to {}), {} of it until submitted{}; steps {} together; \
             {} dispatches, {} submits, {} waits a run",
            seconds(run.median),
            seconds(run.min),
            seconds(run.max),
            seconds(host.median),
            if analysis.device.starts_with("cpu:") { " (the CPU works in it)" } else { "" },
            seconds(steps),
            analysis.dispatches,
            analysis.submits,
            analysis.waits
        )
    }

    fn memory_text(&self, options: &TextOptions, f: &mut String) -> std::fmt::Result {
        let m = &self.memory;
        writeln!(
            f,
            "memory: weights {}, states {}, inputs {}, constants {}",
            bytes(m.weight_bytes as f64),
            bytes(m.state_bytes as f64),
            bytes(m.input_bytes as f64),
            bytes(m.constant_bytes as f64)
        )?;
        writeln!(
            f,
            "arena: {} in {} buffers; at most {} live at once",
            bytes(m.arena_bytes as f64),
            m.arena.len(),
            bytes(m.peak_bytes as f64)
        )?;
        for buffer in m.arena.iter().filter(|_| options.arena) {
            let (name, size) = (&buffer.name, bytes(buffer.bytes as f64));
            writeln!(f, "\n{name}: {size}, {} tensors", buffer.tensors.len())?;
            f.push_str(&buffer.map(self.steps.len()));
        }
        Ok(())
    }

    /// Lists each chosen engine with the reason and the other candidates; equal entries appear
    /// once.
    fn why(&self, f: &mut String) -> std::fmt::Result {
        writeln!(f, "\nwhy:")?;
        let mut groups: Vec<(String, &str, usize)> = Vec::new();
        for choice in &self.choices {
            let mut reason = String::new();
            let engine = choice.engine.as_ref().map_or("a copy", |id| id.as_str());
            writeln!(reason, "{engine}: {}", choice.why)?;
            for candidate in &choice.candidates {
                match &candidate.verdict {
                    Verdict::Seconds(_) if Some(&candidate.engine) == choice.engine.as_ref() => {}
                    Verdict::Seconds(s) => {
                        writeln!(reason, "    or  {}: {}", candidate.engine, seconds(*s))?;
                    }
                    Verdict::Refused(why) => {
                        writeln!(reason, "    not {}: {why}", candidate.engine)?;
                    }
                }
            }
            let label = masked(&choice.label);
            let known = groups.iter_mut().find(|(r, l, _)| *r == reason && masked(l) == label);
            match known {
                Some((_, _, times)) => *times += 1,
                None => groups.push((reason, &choice.label, 1)),
            }
        }
        for (reason, label, times) in groups {
            let times = if times > 1 { format!(", {times} of its kind") } else { String::new() };
            write!(f, "  {label}{times}\n    {reason}")?;
        }
        Ok(())
    }
}

/// Returns the key that steps are compared by: their line, with the numbers of the label masked.
fn masked_label(step: &StepReport, rest: String) -> String {
    let rest = rest.strip_prefix(&step.label).unwrap_or(&rest);
    format!("{} {rest}", masked(&step.label))
}

/// Formats the workgroups at the upper ends of the class: `12`, `12 x 4`, `12 x 4 x 2`.
fn grid(step: &StepReport) -> String {
    match step.workgroups {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x} x {y}"),
        [x, y, z] => format!("{x} x {y} x {z}"),
    }
}

/// A table with aligned columns. A row is its cells, or a line of text between other rows (`Err`).
struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Result<Vec<String>, String>>,
}

/// Headings of the left-aligned columns; all others are right-aligned.
const LEFT: [&str; 5] = ["step", "engine", "grid", "kernel", "shapes"];
/// Width in characters beyond which a cell does not widen its column.
const WIDEST: usize = 44;

impl Table {
    fn of_steps(measured: bool) -> Table {
        let measured: &[&str] = match measured {
            true => &["median", "min", "max", "B/s", "flop/s", "of copy"],
            false => &["of roof"],
        };
        let first = ["#", "step", "engine", "bytes", "flop", "estimate"];
        let heads = [&first[..], measured, &["grid", "kernel", "shapes"]].concat();
        Table { heads, rows: Vec::new() }
    }

    fn note(&mut self, line: String) {
        self.rows.push(Err(line));
    }

    fn step(&mut self, step: &StepReport, measured: bool) {
        let mut row = vec![
            step.number.to_string(),
            step.label.clone(),
            step.engine.clone(),
            bytes(step.bytes),
            count(step.flops),
            seconds(step.seconds),
        ];
        match (&step.measured, measured) {
            (Some(m), true) => row.extend([
                seconds(m.median),
                seconds(m.min),
                seconds(m.max),
                count(m.bytes_per_s),
                count(m.flops_per_s),
                share(m.roof),
            ]),
            (None, true) => row.extend(vec!["-".into(); 6]),
            (_, false) => row.push(share(step.roof)),
        }
        row.extend([grid(step), step.kernel.clone(), step.shapes.clone()]);
        self.rows.push(Ok(row));
    }

    fn text(&self) -> String {
        let heads = &self.heads;
        let width = |i: usize| {
            let cells = self.rows.iter().flatten().map(|row| row[i].chars().count());
            let widest = cells.filter(|w| *w <= WIDEST).max().unwrap_or(0);
            widest.max(heads[i].len())
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .zip(heads)
                .map(|((cell, width), head)| match LEFT.contains(head) {
                    true => format!("{cell:width$}"),
                    false => format!("{cell:>width$}"),
                })
                .collect();
            format!("{}\n", padded.join("  ").trim_end())
        };
        let mut text = line(&heads.iter().map(ToString::to_string).collect::<Vec<_>>());
        for row in &self.rows {
            match row {
                Ok(cells) => text.push_str(&line(cells)),
                Err(note) => text.push_str(&format!("{note}\n")),
            }
        }
        text
    }
}
