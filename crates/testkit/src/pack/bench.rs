//! Times a pack's kernel on a device.

use std::time::Duration;

use serde::Serialize;

use super::device::graph_of;
use super::{Job, elements};
use warploom::plan::Plan;
use warploom::runtime::{AnalyzeOptions, DeviceTensors, Runtime};
use warploom::{Error, Result};
use warploom_core::base::{ShapeClass, SymbolValues};

/// Measured times of a pack's kernel, and the data from which its bandwidth is computed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Median time of the kernel itself, in seconds.
    pub kernel_s: f64,
    /// Median time of all launches of the operation, including clears and copies, in seconds.
    pub total_s: f64,
    /// Size of operands and results in bytes.
    pub bytes: u64,
    /// Copy bandwidth of the device, read plus written, in bytes per second.
    pub copy_bandwidth: u64,
}

/// Blocking version of [`time_async`].
///
/// # Errors
/// Same as [`time_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn time(job: &Job, runtime: &Runtime, runs: usize) -> Result<Timing> {
    warploom_core::base::platform::block_on(time_async(job, runtime, runs))
}

/// Times a job over `runs` runs, after a warm-up.
///
/// # Errors
/// Any planning or device error.
pub async fn time_async(job: &Job, runtime: &Runtime, runs: usize) -> Result<Timing> {
    let (graph, bindings) = graph_of(job)?;
    let device = runtime.device().profile();
    let plan = Plan::new(&graph, &ShapeClass::new(), device, &runtime.plan_options())?;
    let inputs = plan.inputs.iter().map(|input| {
        let lost = || Error::invalid(format!("nothing is bound to {:?}", input.name));
        bindings.get(&input.name).cloned().ok_or_else(lost)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let options = AnalyzeOptions { runs, warm_up: Duration::from_millis(200) };
    let none = SymbolValues::new();
    let analysis =
        runtime.analyze_async(&plan, &mut DeviceTensors::new(), &none, &inputs, &options).await?;
    let custom = &job.custom;
    let mut bytes = 0;
    for (shape, dtype) in custom.inputs.iter().chain(&custom.outputs) {
        bytes += elements(shape)? * dtype.bytes();
    }
    let kernels = plan.steps.iter().zip(&analysis.steps);
    let own = kernels.filter(|(step, _)| step.kernel.name() == custom.name);
    Ok(Timing {
        kernel_s: own.map(|(_, spread)| spread.median).sum(),
        total_s: analysis.steps.iter().map(|spread| spread.median).sum(),
        bytes,
        copy_bandwidth: analysis.bandwidth,
    })
}
