//! How fast the device's memory is, by measurement.

use std::time::Duration;

use super::Runtime;
use super::instance::Instance;
use super::resident::Resident;
use crate::base::platform::Clock;
use crate::base::{DType, Dim, Shape, ShapeClass, SymbolValues};
use crate::error::Result;
use crate::ir::{Graph, Op};
use crate::plan::{Options, Plan};
use crate::provider::DeviceKind;

/// A GPU that idles lowers its clock, and it takes so long under load to bring it back.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_millis(300);
/// Copies of one submit, so that waiting is a small part.
const COPIES: usize = 16;

impl Runtime {
    /// Bytes a second that the device reads and writes together when it copies a buffer much
    /// larger than its caches. Keeps the device busy for about a second.
    ///
    /// # Errors
    /// Out of memory, and what the device says.
    pub async fn measure_bandwidth(&self) -> Result<u64> {
        let profile = self.device().profile();
        let most = profile.max_binding_bytes.min(profile.max_buffer_bytes);
        let wanted = match profile.kind {
            DeviceKind::Discrete => 1 << 30,
            DeviceKind::Integrated => 256 << 20,
            DeviceKind::Software | DeviceKind::Cpu | DeviceKind::Null => 64 << 20,
        };
        let bytes = most.min(wanted) / 4096 * 4096;
        let mut graph = Graph::new("bandwidth");
        let shape = Shape::new([bytes / 4]);
        let from = graph.state("from", shape.clone(), DType::F32);
        let to = graph.state("to", shape, DType::F32);
        graph.add(Op::Update { at: Dim::new(0) }, &[to, from])?;
        let plan = Plan::new(&graph, &ShapeClass::new(), profile, &Options::new(self.registry()))?;
        let mut resident = Resident::new();
        for name in ["from", "to"] {
            resident.state(self.pool(), &**self.device(), name, bytes)?;
        }
        let instance = Instance::new(self, plan, &resident).await?;
        copies(&instance, WARM_UP).await?;
        let (count, time) = copies(&instance, MEASURE).await?;
        Ok((2.0 * bytes as f64 * count as f64 / time.as_secs_f64().max(1e-9)) as u64)
    }
}

/// Copies for at least so long: how many, and how long it took.
async fn copies(instance: &Instance, least: Duration) -> Result<(usize, Duration)> {
    let start = Clock::now();
    let mut count = 0;
    // A browser build has no clock: one batch then.
    while count == 0 || (start.elapsed() < least && start.elapsed() > Duration::ZERO) {
        for _ in 1..COPIES {
            // Reading the last one waits for them all.
            drop(instance.record(SymbolValues::new(), Vec::new())?);
        }
        instance.read(SymbolValues::new(), Vec::new()).await?;
        count += COPIES;
    }
    Ok((count, start.elapsed()))
}
