//! Ways of executing a task against each other, all rounds of all: for benchmarks and tables.

use std::time::Duration;

use super::bed::{Bed, agree};
use super::race::Fault;
use crate::engine::{EngineId, KnobValues};
use crate::error::{Error, Result};
use crate::plan::Task;
use crate::provider::DeviceKind;
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
        let profile = self.device().profile();
        if profile.kind == DeviceKind::Null {
            let id = profile.id();
            return Err(Error::unsupported(format!("{id} executes nothing that could be timed")));
        }
        let told = |fault: Fault| match fault {
            Fault::Out(why) => Error::device(format!("{}: {why}", task.label)),
            Fault::Stop(error) => error,
        };
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
}
