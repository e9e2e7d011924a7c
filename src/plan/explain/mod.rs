//! Reports about a plan, as text and as JSON.
//!
//! A [`Report`] holds everything known about a plan, and both forms are rendered from it.
//! [`Report::measured`] adds measurements.

mod engines;
mod memory;
mod reroll;
mod text;
mod units;

use std::collections::BTreeSet;

use serde::Serialize;

pub use engines::EngineReport;
pub use memory::{ArenaBuffer, Memory, Placed};
pub use text::TextOptions;

use super::analysis::Analysis;
use super::{NodeChoice, PASSES, Plan};
use crate::engine::Peaks;
use crate::kernel::Access;
use crate::provider::{Command, DeviceKind, Dispatch, SlotRange};

/// Version of the JSON form. Within a version, fields are only added.
const SCHEMA: u32 = 1;

/// Everything known about a plan. Its JSON form has the names and units of these fields: bytes,
/// seconds, counts, and fractions from 0 to 1; sizes are at the upper ends of the shape class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of the JSON form.
    pub schema: u32,
    /// Name of the graph.
    pub graph: String,
    /// The ranges of symbols: `{past=0..512, seq=1}`.
    pub class: String,
    /// The device that the plan was made for.
    pub device: Target,
    /// Passes that ran, in order.
    pub passes: Vec<String>,
    /// Passes that were disabled.
    pub off: Vec<String>,
    /// Whether results are batch invariant; see [`super::Options::deterministic`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// Every kernel launch, in order.
    pub steps: Vec<StepReport>,
    /// Steps by engine, the most expensive first.
    pub engines: Vec<EngineReport>,
    /// Totals of one run.
    pub totals: Totals,
    /// The memory map.
    pub memory: Memory,
    /// The engine chosen for each group, and why.
    pub choices: Vec<NodeChoice>,
    /// Measurements, if [`Report::measured`] has added them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Analysis>,
}

/// The device that a plan was made for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The device, as `provider:index`.
    pub id: String,
    /// Name of the device.
    pub name: String,
    /// The kind of device.
    pub kind: DeviceKind,
    /// Memory bandwidth in bytes per second: from the profile if known, otherwise a rough default
    /// for the device kind.
    pub bytes_per_s: f64,
    /// Floating-point operations per second: calibrated, otherwise a rough default for the device
    /// kind.
    pub flops_per_s: f64,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Index of the step in the plan.
    pub number: usize,
    /// Label of the group that it executes.
    pub label: String,
    /// The engine that emitted it.
    pub engine: String,
    /// The kernel, with defines and constants.
    pub kernel: String,
    /// Operands and result of the group, as formats with shapes.
    pub shapes: String,
    /// Workgroups in x, y and z, as expressions.
    pub grid: [String; 3],
    /// The grid at the upper ends of the class.
    pub workgroups: [u64; 3],
    /// Estimated bytes that it reads and writes.
    pub bytes: f64,
    /// Estimated floating-point operations.
    pub flops: f64,
    /// Estimated seconds.
    pub seconds: f64,
    /// Estimated fraction of the device's roofline: of peak bandwidth or of peak arithmetic,
    /// whichever is closer to its limit.
    pub roof: f64,
    /// Whether it needs a barrier: it touches a buffer that an earlier step since the last barrier
    /// touched, and one of the two writes.
    pub barrier: bool,
    /// Measurement of the step, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<StepMeasure>,
}

/// Measurement of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepMeasure {
    /// Median seconds.
    pub median: f64,
    /// Minimum seconds.
    pub min: f64,
    /// Maximum seconds.
    pub max: f64,
    /// Bytes per second, at the median.
    pub bytes_per_s: f64,
    /// Floating-point operations per second, at the median.
    pub flops_per_s: f64,
    /// `bytes_per_s` as a fraction of the bandwidth that a copy reaches on the device.
    pub roof: f64,
}

/// Totals of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Kernel launches.
    pub dispatches: usize,
    /// Distinct kernels.
    pub kernels: usize,
    /// Submits, if nothing else is submitted together with the run.
    pub submits: usize,
    /// Waits for the device, if the outputs are read.
    pub waits: usize,
    /// Steps that need a barrier.
    pub barriers: usize,
    /// Bytes from host to device.
    pub upload_bytes: u64,
    /// Bytes from device to host.
    pub download_bytes: u64,
    /// Estimated bytes that the steps read and write.
    pub bytes: f64,
    /// Estimated floating-point operations.
    pub flops: f64,
    /// Estimated seconds.
    pub seconds: f64,
}

impl Plan {
    /// Returns the full report of the plan.
    pub fn report(&self) -> Report {
        let peaks = Peaks::of(&self.profile);
        let steps = self.step_reports(&peaks);
        let totals = self.totals(&steps);
        let ran = |name: &str| self.passes.iter().any(|pass| pass == name);
        Report {
            schema: SCHEMA,
            graph: self.name.clone(),
            class: self.class.to_string(),
            device: Target {
                id: self.profile.id(),
                name: self.profile.name.clone(),
                kind: self.profile.kind,
                bytes_per_s: peaks.bytes_per_s,
                flops_per_s: peaks.flops_per_s,
            },
            passes: self.passes.clone(),
            deterministic: self.deterministic,
            off: PASSES.iter().map(|p| p.name.to_string()).filter(|name| !ran(name)).collect(),
            engines: engines::of(&steps, None),
            steps,
            totals,
            memory: memory::of(self),
            choices: self.choices.clone(),
            analysis: None,
        }
    }

    /// Returns the plan as text: passes, steps with estimates, totals, memory, and why each engine
    /// was chosen.
    pub fn explain(&self) -> String {
        self.report().text(&TextOptions { why: true, ..TextOptions::default() })
    }

    /// Returns the plan as JSON: a [`Report`] with the names of its fields.
    pub fn explain_json(&self) -> serde_json::Value {
        self.report().json()
    }

    /// Returns the label, engine, kernel and workgroups (at the upper ends of the shape class) of
    /// each step without estimates, for comparing plans. Repetitions, such as the layers of a
    /// decoder, appear once.
    pub fn outline(&self) -> String {
        self.report().outline()
    }

    pub(super) fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.recording.commands.iter().filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        })
    }

    fn step_reports(&self, peaks: &Peaks) -> Vec<StepReport> {
        let barriers = self.barriers();
        let steps = self.steps.iter().zip(barriers).enumerate();
        let report = steps.map(|(number, (step, barrier))| {
            let (cost, seconds) = (&step.estimate.cost, step.estimate.seconds);
            StepReport {
                number,
                label: step.label.clone(),
                engine: step.engine.to_string(),
                kernel: step.kernel.to_string(),
                shapes: step.estimate.shapes.clone(),
                grid: step.grid.each_ref().map(ToString::to_string),
                workgroups: step.grid.each_ref().map(|dim| self.class.upper(dim).unwrap_or(0)),
                bytes: cost.bytes,
                flops: cost.flops,
                seconds,
                roof: per(peaks.floor(cost), seconds),
                barrier,
                measured: None,
            }
        });
        report.collect()
    }

    /// Returns, for each step, whether it needs a barrier, as GPU interfaces track whole buffers.
    fn barriers(&self) -> Vec<bool> {
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        self.dispatches()
            .map(|dispatch| {
                let waits = dispatch.bindings.iter().any(|b| {
                    written.contains(&b.slot)
                        || (b.access == Access::ReadWrite && read.contains(&b.slot))
                });
                if waits {
                    read.clear();
                    written.clear();
                }
                for binding in &dispatch.bindings {
                    match binding.access {
                        Access::Read => read.insert(binding.slot),
                        Access::ReadWrite => written.insert(binding.slot),
                    };
                }
                waits
            })
            .collect()
    }

    fn totals(&self, steps: &[StepReport]) -> Totals {
        let upper = |range: &SlotRange| self.class.upper(&range.bytes).unwrap_or(0);
        let mut totals = Totals {
            dispatches: steps.len(),
            kernels: self.recording.kernels.len(),
            submits: 1,
            waits: 1,
            barriers: steps.iter().filter(|step| step.barrier).count(),
            bytes: steps.iter().map(|step| step.bytes).sum(),
            flops: steps.iter().map(|step| step.flops).sum(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
            ..Totals::default()
        };
        for command in &self.recording.commands {
            match command {
                Command::Upload { to, .. } => totals.upload_bytes += upper(to),
                Command::Download { from } => totals.download_bytes += upper(from),
                _ => {}
            }
        }
        totals
    }
}

impl Report {
    /// Adds the measurements of the plan on a device.
    pub fn measured(mut self, analysis: Analysis) -> Report {
        for (step, spread) in self.steps.iter_mut().zip(&analysis.steps) {
            let bytes_per_s = per(step.bytes, spread.median);
            step.measured = Some(StepMeasure {
                median: spread.median,
                min: spread.min,
                max: spread.max,
                bytes_per_s,
                flops_per_s: per(step.flops, spread.median),
                roof: per(bytes_per_s, analysis.bandwidth as f64),
            });
        }
        self.engines = engines::of(&self.steps, Some(analysis.bandwidth as f64));
        self.analysis = Some(analysis);
        self
    }

    /// Returns the report as JSON, with the names of the fields.
    pub fn json(&self) -> serde_json::Value {
        // Maps have string keys and numbers are finite, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Divides; returns 0 if the divisor is not positive.
fn per(amount: f64, by: f64) -> f64 {
    if by > 0.0 { amount / by } else { 0.0 }
}
