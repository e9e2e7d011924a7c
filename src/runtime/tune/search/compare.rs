//! Compares several candidates of a task, or one candidate on two devices, over all rounds, for
//! benchmarks and tables.

use std::time::Duration;

use super::bench_memory::{BenchMemory, agree, written};
use super::successive_halving::Fault;
use super::synthetic_data::is_finite;
use crate::engine::{EngineId, KnobValues};
use crate::error::{Error, Result};
use crate::plan::Task;
use crate::provider::{DeviceKind, Support, support};
use crate::runtime::Runtime;
use crate::runtime::tune::options::{Timing, TuneOptions};

impl Runtime {
    /// Times candidates of a task alternately, over all rounds, without early elimination. Each
    /// runs once first, and its result is checked against the first candidate's. Of the options
    /// only `warm_up`, `rotate_bytes` and the time limits apply.
    ///
    /// # Errors
    /// Same as [`TuneOptions::check`]; unsupported if the device executes nothing; any error of a
    /// candidate or the device.
    pub fn compare(
        &self,
        task: &Task,
        ways: &[(EngineId, KnobValues)],
        rounds: usize,
        options: &TuneOptions,
    ) -> Result<Vec<Timing>> {
        options.check()?;
        executes(self)?;
        let failed = |fault| task_error(task, fault);
        let bed = BenchMemory::new(self, task, options, false)?;
        let (mut runners, mut timings, mut expected) = (Vec::new(), Vec::new(), None);
        for (engine, knobs) in ways {
            let trial = task.trial(self.registry(), engine, knobs)?;
            let (runner, got) = bed.check(trial, false, options.hang_limit).map_err(failed)?;
            let expected = expected.get_or_insert_with(|| got.clone());
            let wrong = agree(task, expected, &got).err();
            timings.push(Timing { rounds: Vec::new(), wrong });
            runners.push(runner);
        }
        if let Some(first) = runners.first() {
            bed.warm(first, options.warm_up.max(Duration::from_millis(1))).map_err(failed)?;
        }
        for round in 0..rounds {
            for i in 0..runners.len() {
                let i = (i + round) % runners.len();
                timings[i].rounds.push(bed.time(&runners[i]).map_err(failed)?);
            }
        }
        Ok(timings)
    }

    /// Times one candidate of a task on this device and on `other` alternately, over all rounds.
    /// Both run the kernels and knobs that this device would run. Each runs once first, and the
    /// other device's result is checked against this one's. Of the options only `warm_up`,
    /// `rotate_bytes` and the time limits apply.
    ///
    /// # Errors
    /// Same as [`TuneOptions::check`]; invalid if the synthetic data yields no finite result to
    /// compare; unsupported, with the reason, if the other device cannot run a kernel or if a
    /// device executes nothing; any error of either device.
    pub fn compare_on(
        &self,
        other: &Runtime,
        task: &Task,
        (engine, knobs): &(EngineId, KnobValues),
        rounds: usize,
        options: &TuneOptions,
    ) -> Result<[Timing; 2]> {
        options.check()?;
        executes(self)?;
        executes(other)?;
        let failed = |fault| task_error(task, fault);
        let trial = task.trial(self.registry(), engine, knobs)?;
        let (recording, _) = trial.recording(&task.contents, (1, 1), false);
        let profile = other.device().profile();
        for spec in &recording.kernels {
            if let Support::No(reason) = support(profile, spec) {
                return Err(Error::unsupported(format!("{}: {reason}", profile.id())));
            }
        }
        // Data of both signs is tried first; positive data if the result is not finite, as for a
        // logarithm.
        for positive in [false, true] {
            let mut timings = [const { Timing { rounds: Vec::new(), wrong: None } }; 2];
            let beds = [
                BenchMemory::new(self, task, options, positive)?,
                BenchMemory::new(other, task, options, positive)?,
            ];
            let check =
                |bed: &BenchMemory<'_>| bed.check(trial.clone(), positive, options.hang_limit);
            let (own, expected) = check(&beds[0]).map_err(failed)?;
            let types = written(&task.contents);
            let finite = |point: &Vec<Vec<u8>>| {
                point.iter().zip(&types).all(|(bytes, (_, dtype))| is_finite(*dtype, bytes))
            };
            if !expected.iter().all(finite) {
                continue;
            }
            let (there, got) = check(&beds[1]).map_err(failed)?;
            timings[1].wrong = agree(task, &expected, &got).err();
            let runners = [own, there];
            for (bed, runner) in beds.iter().zip(&runners) {
                bed.warm(runner, options.warm_up.max(Duration::from_millis(1))).map_err(failed)?;
            }
            for round in 0..rounds {
                for i in [round % 2, (round + 1) % 2] {
                    timings[i].rounds.push(beds[i].time(&runners[i]).map_err(failed)?);
                }
            }
            return Ok(timings);
        }
        Err(Error::invalid(format!(
            "{}: its result is infinite or NaN for the test inputs",
            task.label
        )))
    }
}

/// Checks that the device executes work.
///
/// # Errors
/// Unsupported if the device executes nothing.
fn executes(runtime: &Runtime) -> Result<()> {
    let profile = runtime.device().profile();
    match profile.kind {
        DeviceKind::Null => {
            let id = profile.id();
            Err(Error::unsupported(format!("{id} executes nothing to time")))
        }
        _ => Ok(()),
    }
}

fn task_error(task: &Task, fault: Fault) -> Error {
    match fault {
        Fault::Out(why) => Error::device(format!("{}: {why}", task.label)),
        Fault::Stop(error) => error,
    }
}
