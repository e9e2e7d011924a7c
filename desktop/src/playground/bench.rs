//! The thread that checks and times packs.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

use eframe::egui::Context;
use warploom::provider::DeviceKind;
use warploom::{Error, Runtime};
use warploom_core::base::platform::panic_text;
use warploom_testkit::pack::{self, Outcome, Row, Timing};

use crate::packs::Texts;

/// Measured runs of a kernel.
const RUNS: usize = 10;

/// Where a text is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// Name of the file, if the message names one.
    pub file: Option<String>,
    /// Line in that file, from 1 on.
    pub line: Option<usize>,
}

/// The check of a text.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Number of the text.
    pub number: u64,
    /// The first error.
    pub problem: Option<Problem>,
    /// The cases that ran in the interpreter.
    pub rows: Vec<Row>,
}

impl Checked {
    /// Returns whether nothing is wrong.
    pub fn is_right(&self) -> bool {
        self.problem.is_none()
    }
}

/// A run on a device.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Id of the device.
    pub device: String,
    /// The times, or why there are none.
    pub result: std::result::Result<Timing, String>,
}

/// A result of the thread.
pub(super) enum Result {
    Checked(Checked),
    Timed(u64, Timed),
    /// A run on all of its devices ended.
    Ran(u64),
}

enum Job {
    Check(u64, Texts),
    Run(u64, Texts, Vec<String>),
}

/// The window's end of the thread, which ends when this is dropped.
pub(super) struct Bench {
    jobs: Sender<Job>,
    results: Receiver<Result>,
}

impl Bench {
    pub(super) fn start(ctx: Context) -> std::io::Result<Bench> {
        let (jobs, received) = channel();
        let (sent, results) = channel();
        let work = move || {
            let mut room = Room { sent, ctx, runtimes: HashMap::new() };
            while let Ok(mut job) = received.recv() {
                // Of several texts only the last one counts.
                while let Ok(later) = received.try_recv() {
                    job = later;
                }
                room.execute(job);
            }
        };
        std::thread::Builder::new().name("warploom playground".into()).spawn(work)?;
        Ok(Bench { jobs, results })
    }

    pub(super) fn check(&self, number: u64, texts: Texts) {
        // The thread lasts as long as this sender.
        let _ = self.jobs.send(Job::Check(number, texts));
    }

    pub(super) fn run(&self, number: u64, texts: Texts, devices: Vec<String>) {
        let _ = self.jobs.send(Job::Run(number, texts, devices));
    }

    pub(super) fn result(&self) -> Option<Result> {
        self.results.try_recv().ok()
    }
}

struct Room {
    sent: Sender<Result>,
    ctx: Context,
    /// Open devices by id.
    runtimes: HashMap<String, Runtime>,
}

impl Room {
    fn send(&self, result: Result) {
        // Without a window no one is interested.
        let _ = self.sent.send(result);
        self.ctx.request_repaint();
    }

    fn execute(&mut self, job: Job) {
        match job {
            Job::Check(number, texts) => {
                let checked = catch_unwind(AssertUnwindSafe(|| check(number, &texts)));
                let checked = checked.unwrap_or_else(|panic| Checked {
                    number,
                    problem: Some(problem(panic_text(&*panic), &texts)),
                    rows: Vec::new(),
                });
                self.send(Result::Checked(checked));
            }
            Job::Run(number, texts, devices) => {
                for device in devices {
                    let timed = catch_unwind(AssertUnwindSafe(|| self.time(&texts, &device)));
                    let result = match timed {
                        Ok(Ok(timing)) => Ok(timing),
                        Ok(Err(error)) => Err(error.to_string()),
                        Err(panic) => Err(panic_text(&*panic).to_owned()),
                    };
                    if result.is_err() {
                        // It may be lost.
                        self.runtimes.remove(&device);
                    }
                    self.send(Result::Timed(number, Timed { device, result }));
                }
                self.send(Result::Ran(number));
            }
        }
    }

    /// Compares a pack on a device with the interpreter, in all its cases, and times it.
    fn time(&mut self, texts: &Texts, device: &str) -> warploom::Result<Timing> {
        let runtime = match self.runtimes.get(device) {
            Some(runtime) => runtime.clone(),
            None => {
                let runtime = Runtime::builder().device(device).build()?;
                self.runtimes.insert(device.to_owned(), runtime.clone());
                runtime
            }
        };
        let pack = texts.load()?;
        let cases = pack::cases(&pack)?;
        for case in &cases {
            let (row, job) = pack::in_interpreter(&pack, case);
            let row = job.map_or(row, |job| pack::on_device(&job, &runtime));
            match row.outcome {
                Outcome::Right { .. } => {}
                Outcome::Wrong { what } => {
                    return Err(Error::invalid(format!("{}: wrong: {what}", row.case)));
                }
                Outcome::Unsupported { why } => return Err(Error::unsupported(why)),
            }
        }
        let first = cases.into_iter().next();
        let mut timed =
            first.ok_or_else(|| Error::invalid("there is no case, whose sizes are timed"))?;
        timed.outputs.clear();
        let known = pack.values().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let sizes = texts.sizes.iter().filter(|(name, _)| known.iter().any(|other| other == name));
        // The CPU runs packs in the interpreter, which is slow.
        let sizes = sizes.filter(|_| runtime.device().profile().kind != DeviceKind::Cpu);
        timed.values.extend(sizes.map(|(name, value)| ((*name).to_owned(), *value)));
        let job = loop {
            match pack::unchecked(&pack, &timed) {
                Ok(job) => break job,
                // A list of the case's own size does not fit the larger one.
                Err(error) => {
                    let text = error.to_string();
                    let name =
                        timed.inputs.keys().find(|name| text.contains(&format!("input {name}")));
                    match name.cloned() {
                        Some(name) => timed.inputs.remove(&name),
                        None => return Err(error),
                    };
                }
            }
        };
        pack::time(&job, &runtime, RUNS)
    }
}

/// Checks a text: loads the pack, and runs its cases in the interpreter.
fn check(number: u64, texts: &Texts) -> Checked {
    let cases = texts.load().and_then(|pack| Ok((pack::cases(&pack)?, pack)));
    let (cases, pack) = match cases {
        Ok(loaded) => loaded,
        Err(error) => {
            let problem = Some(problem(&error.to_string(), texts));
            return Checked { number, problem, rows: Vec::new() };
        }
    };
    let rows: Vec<Row> = cases.iter().map(|case| pack::in_interpreter(&pack, case).0).collect();
    let wrong = rows.iter().find_map(|row| match &row.outcome {
        Outcome::Wrong { what } => Some(problem(what, texts)),
        _ => None,
    });
    Checked { number, problem: wrong, rows }
}

/// Finds the file and the line in a message such as `life.wgsl:12:5: ..`.
fn problem(message: &str, texts: &Texts) -> Problem {
    let reference = texts.reference.as_ref().map(|(name, _)| name.as_str());
    let files = [Some(texts.shader.0.as_str()), reference, Some("pack.toml")];
    let found = files.into_iter().flatten().find_map(|file| {
        let at = message.find(&format!("{file}:"))? + file.len() + 1;
        let digits: String = message[at..].chars().take_while(char::is_ascii_digit).collect();
        Some((file.to_owned(), digits.parse().ok()))
    });
    let (file, line) = found.map_or((None, None), |(file, line)| (Some(file), line));
    Problem { message: message.to_owned(), file, line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs;

    #[test]
    fn an_error_is_found_at_its_line() {
        let mut texts = Texts::of(&packs::LIFE);
        let checked = check(1, &texts);
        assert!(checked.is_right() && checked.rows.len() == 3, "{checked:?}");
        let wrong = "neighbours == 3u || (neighbours";
        let line = texts.shader.1.lines().position(|line| line.contains(wrong)).unwrap() + 1;
        texts.shader.1 = texts.shader.1.replace("neighbours == 3u ||", "neighbors == 3u ||");
        let problem = check(2, &texts).problem.unwrap();
        assert_eq!((problem.file.as_deref(), problem.line), (Some("life.wgsl"), Some(line)));
        assert!(problem.message.contains("neighbors"), "{problem:?}");
    }

    #[test]
    fn the_interpreter_finds_what_compiles_but_is_wrong() {
        let mut texts = Texts::of(&packs::LIFE);
        texts.shader.1 = texts.shader.1.replace("% params.width]", "% params.width + 1u]");
        let problem = check(1, &texts).problem.unwrap();
        let line = problem.line.map(|line| texts.shader.1.lines().nth(line - 1).unwrap());
        assert!(line.is_some_and(|line| line.contains("+ 1u]")), "{problem:?}");
        let mut texts = Texts::of(&packs::BLUR);
        texts.manifest = texts.manifest.replace("radius = 2", "radius = \"two\"");
        assert_eq!(check(1, &texts).problem.unwrap().file.as_deref(), Some("pack.toml"));
    }
}
