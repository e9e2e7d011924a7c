//! EXPLAIN ANALYZE: runs a plan repeatedly on the device and times its steps.

use std::time::Duration;

use super::Runtime;
use super::device_tensors::DeviceTensors;
use super::instance::{Extra, Instance, single_commands};
use super::offload::Prepared;
use crate::base::SymbolValues;
use crate::base::platform::Clock;
use crate::error::{Error, Result};
use crate::plan::{Analysis, Plan, Spread, StepClock};
use crate::provider::{Args, BufferRange, Command, DeviceKind, Recording};

/// Measurement options.
#[derive(Clone, Copy, Debug)]
pub struct AnalyzeOptions {
    /// Number of measured runs; at least 1.
    pub runs: usize,
    /// Minimum duration of the warm-up, which raises a GPU's clock. There is at least one warm-up
    /// run.
    pub warm_up: Duration,
}

impl Default for AnalyzeOptions {
    fn default() -> AnalyzeOptions {
        AnalyzeOptions { runs: 20, warm_up: Duration::from_millis(500) }
    }
}

/// Maximum timed steps per submit: devices support a few thousand timestamps per submit.
const STEPS: usize = 2000;

/// A part of the recording, prepared for timing, with its number of steps.
struct Piece {
    prepared: Prepared,
    steps: usize,
}

impl Runtime {
    /// Blocking version of [`Runtime::analyze_async`].
    ///
    /// # Errors
    /// Same as [`Runtime::analyze_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn analyze(
        &self,
        plan: &Plan,
        resident: &mut DeviceTensors,
        symbols: &SymbolValues,
        inputs: &[Vec<u8>],
        options: &AnalyzeOptions,
    ) -> Result<Analysis> {
        let analysis = self.analyze_async(plan, resident, symbols, inputs, options);
        crate::base::platform::block_on(analysis)
    }

    /// Runs a plan on the device and times it. Whole runs are timed by the host's clock. Steps are
    /// timed by device timestamps or, if the device has none, one at a time by the host's clock.
    /// Weights and states are found by name in `resident`; inputs are in the order of
    /// [`Plan::inputs`]. Keeps the device busy for a few seconds.
    ///
    /// # Errors
    /// Invalid if symbols are outside the plan's shape class or an input has the wrong size;
    /// unsupported if the device executes nothing; any device error.
    pub async fn analyze_async(
        &self,
        plan: &Plan,
        resident: &mut DeviceTensors,
        symbols: &SymbolValues,
        inputs: &[Vec<u8>],
        options: &AnalyzeOptions,
    ) -> Result<Analysis> {
        let device = &**self.device();
        let profile = device.profile();
        if profile.kind == DeviceKind::Null {
            let id = profile.id();
            return Err(Error::unsupported(format!("{id} executes nothing to time")));
        }
        let bandwidth = self.measure_bandwidth_async().await?;
        let extra = Extra { guard: 0, poison: false };
        let (instance, ranges) = Instance::with(self, plan.clone(), resident, &extra).await?;
        let start = Clock::now();
        loop {
            let pending = instance.record(symbols.clone(), inputs.to_vec())?;
            self.batcher().read_async(pending).await?;
            let elapsed = start.elapsed();
            // A browser build has no clock and does one run.
            if elapsed >= options.warm_up || elapsed == Duration::ZERO {
                break;
            }
        }
        let runs = options.runs.max(1);
        let before = device.counters();
        let (mut whole, mut host) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let start = Clock::now();
            let pending = instance.record(symbols.clone(), inputs.to_vec())?;
            self.batcher().flush()?;
            host.push(start.elapsed().as_secs_f64());
            self.batcher().read_async(pending).await?;
            whole.push(start.elapsed().as_secs_f64());
        }
        let after = device.counters();
        let each = |total: u64| total / runs as u64;

        let slots: Vec<Option<BufferRange>> = ranges.into_iter().map(Some).collect();
        let args = Args { symbols: symbols.clone(), uploads: inputs.to_vec(), buffers: Vec::new() };
        let clock = if profile.has_timestamps { StepClock::Device } else { StepClock::Host };
        let recordings = match clock {
            StepClock::Device => timed(&plan.recording, STEPS),
            StepClock::Host => single_commands(&plan.recording).map(|(_, r)| r).collect(),
        };
        let mut pieces = Vec::new();
        for recording in &recordings {
            let prepared = Prepared::new(self.device(), recording, &slots)?;
            pieces.push(Piece { prepared, steps: recording.dispatches() });
        }
        let mut steps: Vec<Vec<f64>> = vec![Vec::new(); plan.recording.dispatches()];
        let mut spans = Vec::new();
        // The first run includes set-up costs and is discarded.
        for run in 0..=runs {
            spans = match clock {
                StepClock::Device => self.stamped(&pieces, &args).await?,
                StepClock::Host => self.one_by_one(&pieces, &args).await?,
            };
            for (step, (begin, end)) in steps.iter_mut().zip(&spans).filter(|_| run > 0) {
                step.push(end - begin);
            }
        }
        Ok(Analysis {
            device: profile.id(),
            clock,
            runs,
            bandwidth,
            steps: steps.into_iter().map(Spread::of).collect(),
            run: Spread::of(whole),
            host: Spread::of(host),
            dispatches: each(after.dispatches - before.dispatches),
            submits: each(after.submits - before.submits),
            waits: each(after.waits - before.waits),
            spans,
        })
    }
}

/// Splits the recording into parts of at most `most` dispatches, with a timestamp before each
/// dispatch and after the last.
fn timed(recording: &Recording, most: usize) -> Vec<Recording> {
    let mut pieces = vec![Vec::new()];
    let mut count = 0;
    for command in &recording.commands {
        let is_step = matches!(command, Command::Dispatch(_));
        if is_step && count == most {
            pieces.push(Vec::new());
            count = 0;
        }
        let Some(piece) = pieces.last_mut() else { continue };
        if is_step && count == 0 {
            piece.push(Command::Timestamp);
        }
        piece.push(command.clone());
        if is_step {
            piece.push(Command::Timestamp);
            count += 1;
        }
    }
    let of = |commands| Recording { commands, ..recording.clone() };
    pieces.into_iter().map(of).collect()
}

impl Runtime {
    /// Measures the start and end of each step by the device's clock, in seconds since the start of
    /// the first step.
    async fn stamped(&self, pieces: &[Piece], args: &Args) -> Result<Vec<(f64, f64)>> {
        let mut spans = Vec::new();
        let mut origin = None;
        for piece in pieces {
            let ticket = self.device().submit(&[(piece.prepared.id, args.clone())])?;
            let stamps = self.batcher().wait(ticket).await?.timestamps;
            if stamps.len() != piece.steps + usize::from(piece.steps > 0) {
                let (have, steps) = (stamps.len(), piece.steps);
                return Err(Error::device(format!("{have} timestamps of {steps} steps came back")));
            }
            let origin = *origin.get_or_insert(stamps.first().copied().unwrap_or(0));
            let seconds = |stamp: u64| stamp.saturating_sub(origin) as f64 * 1e-9;
            spans.extend(stamps.windows(2).map(|pair| (seconds(pair[0]), seconds(pair[1]))));
        }
        Ok(spans)
    }

    /// Measures the start and end of each step by the host's clock, around the step's submit and
    /// wait, in seconds since the first submit.
    async fn one_by_one(&self, pieces: &[Piece], args: &Args) -> Result<Vec<(f64, f64)>> {
        let mut spans = Vec::new();
        let clock = Clock::now();
        for piece in pieces {
            let begin = clock.elapsed().as_secs_f64();
            let ticket = self.device().submit(&[(piece.prepared.id, args.clone())])?;
            self.batcher().wait(ticket).await?;
            if piece.steps > 0 {
                spans.push((begin, clock.elapsed().as_secs_f64()));
            }
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Dim;
    use crate::provider::{Dispatch, SlotRange};

    #[test]
    fn every_step_lies_between_two_timestamps() {
        let dispatch = Command::Dispatch(Dispatch {
            kernel: 0,
            params: 0,
            bindings: Default::default(),
            grid: [Dim::new(1), Dim::new(1), Dim::new(1)],
            label: "step".into(),
        });
        let range = SlotRange { slot: 0, offset: Dim::new(0), bytes: Dim::new(4) };
        let mut recording = Recording { commands: vec![dispatch; 5], ..Recording::default() };
        recording.commands.insert(0, Command::Clear { range: range.clone() });
        recording.commands.push(Command::Download { from: range });
        let text = |recording: &Recording| -> String {
            let letter = |command: &Command| match command {
                Command::Dispatch(_) => 'd',
                Command::Timestamp => 't',
                Command::Clear { .. } => 'c',
                _ => 'o',
            };
            recording.commands.iter().map(letter).collect()
        };
        let pieces: Vec<String> = timed(&recording, 2).iter().map(text).collect();
        assert_eq!(pieces, ["ctdtdt", "tdtdt", "tdto"]);
    }
}
