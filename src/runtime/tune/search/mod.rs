//! The search: tunes the tasks in order, each within its share of the time, and stores the results
//! after each.

mod bench_memory;
mod compare;
mod journal;
mod successive_halving;
mod synthetic_data;
mod task_search;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::base::{ShapeClass, platform};
use crate::engine::{DriverKey, EngineId, Tuned};
use crate::error::{Error, Result};
use crate::ir::Graph;
use crate::plan::{Options, Task, tasks};
use crate::provider::DeviceKind;
use crate::runtime::Runtime;
use crate::runtime::tune::TuneMode;
use crate::runtime::tune::cache::{Suspect, TuneRecord, TunedTask, UnmeasuredTask};
use crate::runtime::tune::options::{TuneOptions, TuneProgress, TuneReport, TuneResult};
use bench_memory::BenchMemory;
use journal::Journal;
use successive_halving::Fault;
use task_search::Attempt;

/// Fraction of a task's time that is spent on exploring candidates. The rest is for the final
/// comparison.
const SEARCHING: f64 = 0.7;
/// Time limit in seconds of a search before the first run of a plan.
const AT_FIRST_USE: f64 = 30.0;

impl Runtime {
    /// Searches for the fastest engine for each task that has no measurement. Plans made from now
    /// on use the results, which are stored in the runtime's cache after each task. Blocks for
    /// about [`TuneOptions::seconds`].
    ///
    /// # Errors
    /// Same as [`TuneOptions::check`]; unsupported if the device executes nothing. Failures of
    /// candidates and a lost device are in the report.
    pub fn tune(
        &self,
        tasks: &[Task],
        options: &TuneOptions,
        progress: &mut dyn FnMut(&TuneProgress),
    ) -> Result<TuneReport> {
        options.check()?;
        let profile = self.device().profile();
        if profile.kind == DeviceKind::Null {
            let id = profile.id();
            return Err(Error::unsupported(format!("{id} executes nothing to time")));
        }
        Search::new(self, options).run(tasks, progress)
    }

    /// Returns whether [`Runtime::tune_at_first_use`] searches at all.
    pub fn searches_at_first_use(&self) -> bool {
        self.tuning().mode == TuneMode::Search
    }

    /// Tunes the tasks of this graph's plan if `WARPLOOM_TUNE` or the builder enables it. A session
    /// calls it for its own plans.
    ///
    /// # Errors
    /// Same as [`Runtime::tune`] and [`tasks`], and device lost if the device is lost in the
    /// search.
    pub fn tune_at_first_use(
        &self,
        graph: &Graph,
        class: &ShapeClass,
        options: &Options,
    ) -> Result<()> {
        if !self.searches_at_first_use() {
            return Ok(());
        }
        let tasks = tasks(graph, class, self.device().profile(), options)?;
        let options = TuneOptions { seconds: AT_FIRST_USE, ..TuneOptions::default() };
        let report = self.tune(&tasks, &options, &mut |at| {
            tracing::debug!("tuning {} of {}: {}", at.done + 1, at.tasks, at.label);
        })?;
        tracing::info!("tuned {} tasks, {} were known", report.results.len(), report.known);
        match report.stopped {
            Some(why) => Err(Error::device_lost(format!("while tuning: {why}"))),
            None => Ok(()),
        }
    }
}

/// A search in progress.
struct Search<'a> {
    runtime: &'a Runtime,
    options: &'a TuneOptions,
    begin: Instant,
    journal: Option<Journal>,
    /// Measurements of earlier searches and this one.
    record: TuneRecord,
    /// Candidates that were still compiling at their time limit, on abandoned threads.
    left: Vec<Suspect>,
    /// Results that are not on disk yet.
    unsaved: TuneRecord,
    report: TuneReport,
}

impl<'a> Search<'a> {
    fn new(runtime: &'a Runtime, options: &'a TuneOptions) -> Search<'a> {
        let device = DriverKey::of(runtime.device().profile());
        let mut search = Search {
            runtime,
            options,
            begin: Instant::now(),
            journal: None,
            record: TuneRecord::new(device.clone()),
            left: Vec::new(),
            unsaved: TuneRecord::new(device.clone()),
            report: TuneReport::default(),
        };
        let tuning = runtime.tuning();
        let cache = &tuning.cache;
        match cache.read(&device) {
            Ok(found) => search.record = found.unwrap_or(search.record),
            Err(error) => search.report.ignored = Some(error.to_string()),
        }
        if let Some(path) = cache.path(&device) {
            let dead = Journal::casualties(&path).unwrap_or_default();
            if !dead.is_empty() {
                let mut more = TuneRecord::new(device);
                more.avoid = dead;
                search.keep(more);
            }
            match Journal::beside(&path) {
                Ok(journal) => search.journal = Some(journal),
                Err(error) => search.report.no_journal = Some(error.to_string()),
            }
        }
        search
    }

    fn run(
        mut self,
        tasks: &[Task],
        progress: &mut dyn FnMut(&TuneProgress),
    ) -> Result<TuneReport> {
        let mut choices = (*self.runtime.tuned()).clone();
        for (done, task) in tasks.iter().enumerate() {
            // From the user's own record or one shipped with an application.
            let known = choices.choices.get(&task.key).is_some_and(|tuned| self.is_current(tuned));
            let engines = self.versions(task);
            let unmeasured = !known && self.runtime.tuning().is_unmeasured(&task.key, &engines);
            if (known || unmeasured) && !self.options.again {
                self.report.known += usize::from(known);
                self.report.unmeasured += usize::from(unmeasured);
                continue;
            }
            let left = self.options.seconds - self.begin.elapsed().as_secs_f64();
            // A day is as good as no limit.
            let share = (left / (tasks.len() - done) as f64).clamp(0.0, 86_400.0);
            let share = Duration::from_secs_f64(share);
            let mut tell = |candidates| {
                let label = &task.label;
                progress(&TuneProgress { done, tasks: tasks.len(), label, candidates });
            };
            match self.task(task, share, &mut tell) {
                Ok((result, lasting)) => {
                    if let Some(tuned) = result.tuned.clone() {
                        // Another search may have set choices meanwhile.
                        choices = (*self.runtime.tuned()).clone();
                        choices.choices.insert(task.key.clone(), tuned.clone());
                        self.runtime.set_tuned(choices.clone());
                    }
                    if lasting {
                        self.keep(self.lesson(&result, engines));
                    }
                    self.report.measured += result.measured;
                    self.report.results.push(result);
                }
                Err(error) => {
                    self.report.stopped = Some(error.to_string());
                    break;
                }
            }
        }
        Ok(self.report)
    }

    /// Returns whether the engine of a choice still has the measured version.
    fn is_current(&self, tuned: &Tuned) -> bool {
        let engine = self.runtime.registry().get(&tuned.engine);
        engine.is_some_and(|engine| engine.version() == tuned.engine_version)
    }

    /// Returns the engines that execute a task, with their versions.
    fn versions(&self, task: &Task) -> BTreeMap<EngineId, u32> {
        let registry = self.runtime.registry();
        let version = |id: &EngineId| registry.get(id).map(|engine| (id.clone(), engine.version()));
        task.engines.iter().filter_map(version).collect()
    }

    /// Returns the result of a task as a record to store.
    fn lesson(&self, result: &TuneResult, engines: BTreeMap<EngineId, u32>) -> TuneRecord {
        let mut found = TuneRecord::new(self.record.device.clone());
        let (key, date) = (result.key.clone(), platform::date());
        let (label, shapes) = (result.label.clone(), result.shapes.clone());
        if let Some(tuned) = result.tuned.clone() {
            found.tasks.insert(key, TunedTask { label, shapes, date, tuned });
        } else if let Some(why) = result.unmeasured.clone() {
            let unmeasured = UnmeasuredTask { label, shapes, date, why, engines };
            self.runtime.tuning().set_unmeasured(key.clone(), unmeasured.clone());
            found.unmeasured.insert(key, unmeasured);
        }
        found
    }

    /// Records the probable causes of a lost device, so that they are not tried again: candidates
    /// that are still compiling on abandoned threads, or else `suspect`.
    fn blame(&mut self, suspect: Suspect) {
        let mut more = TuneRecord::new(self.record.device.clone());
        more.avoid = std::mem::take(&mut self.left);
        if more.avoid.is_empty() {
            more.avoid.push(suspect);
        }
        self.keep(more);
    }

    /// Adds `found` to the known results, in memory and on disk.
    fn keep(&mut self, found: TuneRecord) {
        self.record.merge(found.clone());
        // Includes results that could not be written before, for example on a full disk.
        self.unsaved.merge(found);
        let tuning = self.runtime.tuning();
        let (cache, device) = (&tuning.cache, &self.record.device);
        let kept = match cache.path(device) {
            None => Err("there is no folder, or it is off".to_string()),
            Some(_) => cache.add(self.unsaved.clone()).map_err(|error| error.to_string()),
        };
        if kept.is_ok() {
            self.unsaved = TuneRecord::new(device.clone());
        }
        self.report.not_kept = kept.err();
    }

    /// Searches one task; returns the result and whether it is reproducible. Out of memory is not:
    /// more may be free another time.
    ///
    /// # Errors
    /// The error, if the device is lost.
    fn task(
        &mut self,
        task: &Task,
        share: Duration,
        tell: &mut dyn FnMut(usize),
    ) -> Result<(TuneResult, bool)> {
        let result = TuneResult {
            key: task.key.clone(),
            label: task.label.clone(),
            shapes: task.shapes.clone(),
            count: task.count,
            tuned: None,
            unmeasured: None,
            ratio: 1.0,
            measured: 0,
            dropped: Vec::new(),
        };
        let without = |result, why: String| TuneResult { unmeasured: Some(why), ..result };
        // Data of both signs is tried first; positive data if the result is not finite, as for a
        // logarithm.
        for positive in [false, true] {
            let bed = match BenchMemory::new(self.runtime, task, self.options, positive) {
                Ok(bed) => bed,
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) => {
                    return Ok((without(result, error.to_string()), !error.is_out_of_memory()));
                }
            };
            let mut attempt = Attempt {
                search: self,
                task,
                bed,
                positive,
                until: [share.mul_f64(SEARCHING), share].map(|share| Instant::now() + share),
                result: result.clone(),
                expected: Vec::new(),
                tried: Vec::new(),
                tell,
            };
            match attempt.run() {
                Ok(true) => return Ok((attempt.result, true)),
                Ok(false) => {}
                Err(Fault::Out(why)) => {
                    let lasting = !attempt.bed.was_short();
                    return Ok((without(attempt.result, why), lasting));
                }
                Err(Fault::Stop(error)) => return Err(error),
            }
        }
        let why = "its result is infinite or NaN for the test inputs";
        Ok((without(result, why.into()), true))
    }
}
