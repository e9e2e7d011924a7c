//! Ways of executing a task against each other, or one on two devices, all rounds of all: for benchmarks and tables.

use std::time::Duration;

use super::bed::{Bed, agree, written};
use super::fill::is_finite;
use super::race::Fault;
use crate::engine::{EngineId, KnobValues};
use crate::error::{Error, Result};
use crate::plan::Task;
use crate::provider::{DeviceKind, Support, support};
use crate::runtime::Runtime;
use crate::runtime::tune::options::{Timing, TuneOptions};

impl Runtime {
    /// Times ways of executing a task in turn, round after round: none is out early. Each runs once
    /// before and is held to the numbers of the first. Of the options count `warm_up`,
    /// `rotate_bytes` and the limits.
    ///
    /// # Errors
    /// Invalid, as [`TuneOptions::check`]; unsupported, on a device that executes nothing; what the
    /// first way or the device does wrong.
    pub fn compare(
        &self,
        task: &Task,
        ways: &[(EngineId, KnobValues)],
        rounds: usize,
        options: &TuneOptions,
    ) -> Result<Vec<Timing>> {
        options.check()?;
        executes(self)?;
        let told = |fault| told(task, fault);
        let bed = Bed::new(self, task, options, false)?;
        let (mut runners, mut timings, mut expected) = (Vec::new(), Vec::new(), None);
        for (engine, knobs) in ways {
            let trial = task.trial(self.registry(), engine, knobs)?;
            let (runner, got) = bed.check(trial, false, options.hang_limit).map_err(told)?;
            let expected = expected.get_or_insert_with(|| got.clone());
            let wrong = agree(task, expected, &got).err();
            timings.push(Timing { rounds: Vec::new(), wrong });
            runners.push(runner);
        }
        if let Some(first) = runners.first() {
            bed.warm(first, options.warm_up.max(Duration::from_millis(1))).map_err(told)?;
        }
        for round in 0..rounds {
            for i in 0..runners.len() {
                let i = (i + round) % runners.len();
                timings[i].rounds.push(bed.time(&runners[i]).map_err(told)?);
            }
        }
        Ok(timings)
    }

    /// Times one way of executing a task on this device and on another one in turn, round after round: the same
    /// kernels with the same knobs, those that this device would run. Each runs once before, and what the other
    /// writes is held to what this one does. Of the options count `warm_up`, `rotate_bytes` and the limits.
    ///
    /// # Errors
    /// Invalid, as [`TuneOptions::check`], and where the numbers at hand make none, which could not be compared;
    /// unsupported, with the reason, for a kernel that the other device cannot run, and on one that executes
    /// nothing; what either device does wrong.
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
        let told = |fault| told(task, fault);
        let trial = task.trial(self.registry(), engine, knobs)?;
        let (recording, _) = trial.recording(&task.contents, (1, 1), false);
        let profile = other.device().profile();
        for spec in &recording.kernels {
            if let Support::No(reason) = support(profile, spec) {
                return Err(Error::unsupported(format!("{}: {reason}", profile.id())));
            }
        }
        // Numbers of both signs first; where they make no numbers, as of a logarithm, positive ones.
        for positive in [false, true] {
            let mut timings = [const { Timing { rounds: Vec::new(), wrong: None } }; 2];
            let beds = [
                Bed::new(self, task, options, positive)?,
                Bed::new(other, task, options, positive)?,
            ];
            let check = |bed: &Bed<'_>| bed.check(trial.clone(), positive, options.hang_limit);
            let (own, expected) = check(&beds[0]).map_err(told)?;
            let types = written(&task.contents);
            let finite = |point: &Vec<Vec<u8>>| {
                point.iter().zip(&types).all(|(bytes, (_, dtype))| is_finite(*dtype, bytes))
            };
            if !expected.iter().all(finite) {
                continue;
            }
            let (there, got) = check(&beds[1]).map_err(told)?;
            timings[1].wrong = agree(task, &expected, &got).err();
            let runners = [own, there];
            for (bed, runner) in beds.iter().zip(&runners) {
                bed.warm(runner, options.warm_up.max(Duration::from_millis(1))).map_err(told)?;
            }
            for round in 0..rounds {
                for i in [round % 2, (round + 1) % 2] {
                    timings[i].rounds.push(beds[i].time(&runners[i]).map_err(told)?);
                }
            }
            return Ok(timings);
        }
        Err(Error::invalid(format!(
            "{}: its result is infinite or NaN on numbers at hand",
            task.label
        )))
    }
}

/// # Errors
/// Unsupported, for a device that executes nothing.
fn executes(runtime: &Runtime) -> Result<()> {
    let profile = runtime.device().profile();
    match profile.kind {
        DeviceKind::Null => {
            let id = profile.id();
            Err(Error::unsupported(format!("{id} executes nothing that could be timed")))
        }
        _ => Ok(()),
    }
}

fn told(task: &Task, fault: Fault) -> Error {
    match fault {
        Fault::Out(why) => Error::device(format!("{}: {why}", task.label)),
        Fault::Stop(error) => error,
    }
}
