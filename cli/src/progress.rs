//! Messages and progress bars on standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write as _};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes a line to standard error; write errors are ignored.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A progress bar on standard error, shown only on a terminal.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Creates a bar for loading a model, hidden if `quiet` or if standard error is not a terminal.
    pub(crate) fn new(quiet: bool) -> Progress {
        Progress::of(quiet, "loading {bar:30} {decimal_bytes}/{decimal_total_bytes}")
    }

    /// Same as [`Progress::new`], with a template of `indicatif`.
    pub(crate) fn of(quiet: bool, template: &str) -> Progress {
        if quiet || !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress(Some(bar))
    }

    /// Sets the template's `msg`.
    pub(crate) fn name(&self, name: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(name.to_owned());
        }
    }

    /// Writes a line above the bar.
    pub(crate) fn above(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }

    /// Shows `done` of `total`, in the unit of the template.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(total);
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Prints the library's trace events to standard error: warnings, or all at the level of
/// `WARPLOOM_DEBUG`.
pub(crate) fn init_tracing() -> anyhow::Result<()> {
    use tracing_subscriber::filter::LevelFilter;
    let Some(text) = warploom_core::config::var(&warploom_core::config::DEBUG) else {
        let warnings = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::WARN)
            .with_writer(std::io::stderr)
            .event_format(Plain);
        return warnings.try_init().map_err(|e| anyhow::anyhow!("cannot show warnings: {e}"));
    };
    let level = match text.parse() {
        Ok(0u8) => return Ok(()),
        Ok(1) => LevelFilter::INFO,
        Ok(2..=4) => LevelFilter::DEBUG,
        Ok(5) => LevelFilter::TRACE,
        _ => anyhow::bail!("WARPLOOM_DEBUG={text:?} is not a number from 0 to 5"),
    };
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time();
    subscriber.try_init().map_err(|e| anyhow::anyhow!("WARPLOOM_DEBUG: {e}"))
}

/// Writes an event as the command writes its own lines: `warning: text`.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        to.write_str(match *event.metadata().level() {
            tracing::Level::ERROR => "error: ",
            _ => "warning: ",
        })?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
