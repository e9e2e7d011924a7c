//! Measures the bandwidth of device memory.

use std::time::Duration;

use smallvec::smallvec;

use super::Runtime;
use super::offload::Prepared;
use crate::base::platform::Clock;
use crate::base::{DType, Dim, Shape, ShapeClass};
use crate::error::Result;
use crate::ir::{Graph, Op};
use crate::kernel::{Access, KernelSpec, SourceSpec};
use crate::plan::{Options, Plan};
use crate::provider::{
    Args, Binding, BufferRange, Command, DeviceKind, Dispatch, ParamBlock, PreparedId, Recording,
    Support, Usage, Word, support,
};

/// Time under load after which an idle GPU is at its full clock again.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_millis(300);
/// Copies per submit, so that waiting is a small share of the time.
const COPIES: usize = 16;
/// Workgroups of the copy kernel; each thread strides over the buffer.
const GROUPS: i64 = 16_384;

/// WGSL of the copy kernel: four words per thread and iteration, the fastest way to read on GPUs.
const COPY: &str = "
@group(0) @binding(0) var<uniform> count: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < count.x; i += groups.x * 256u) {
        y[i] = x[i];
    }
}
";

impl Runtime {
    /// Blocking version of [`Runtime::measure_bandwidth_async`].
    ///
    /// # Errors
    /// Same as [`Runtime::measure_bandwidth_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn measure_bandwidth(&self) -> Result<u64> {
        crate::base::platform::block_on(self.measure_bandwidth_async())
    }

    /// Measures the bandwidth of device memory in bytes per second: bytes read plus bytes written
    /// while a kernel copies a buffer much larger than the caches. Keeps the device busy for about
    /// a second.
    ///
    /// # Errors
    /// Out of memory, and any device error.
    pub async fn measure_bandwidth_async(&self) -> Result<u64> {
        let device = self.device();
        let profile = device.profile();
        let most = profile.max_binding_bytes.min(profile.max_buffer_bytes);
        let wanted = match profile.kind {
            DeviceKind::Discrete => 1 << 30,
            DeviceKind::Integrated => 256 << 20,
            DeviceKind::Software | DeviceKind::Cpu | DeviceKind::Null => 64 << 20,
        };
        let bytes = most.min(wanted) / 4096 * 4096;
        let recording = self.copy_recording(bytes)?;
        self.compile(&recording.kernels).await?;
        let buffers = [0, 1].map(|_| self.pool().take(bytes, Usage::Working));
        let [from, to] = buffers;
        let (from, to) = (from?, to?);
        // Every copy goes from the first slot to the second.
        let slots: Vec<Option<BufferRange>> = vec![Some(from.range()), Some(to.range())];
        let prepared = Prepared::new(device, &recording, &slots)?;
        let (count, time) = self.copies(prepared.id, MEASURE).await?;
        Ok((2.0 * bytes as f64 * count as f64 / time.as_secs_f64().max(1e-9)) as u64)
    }

    /// Records a copy of `bytes` bytes from slot 0 to slot 1: by a WGSL kernel if the device
    /// compiles WGSL, else by the plan of an update operation.
    fn copy_recording(&self, bytes: u64) -> Result<Recording> {
        let profile = self.device().profile();
        let spec = KernelSpec::Source(SourceSpec {
            name: "copy".into(),
            wgsl: COPY.into(),
            entry: "main".into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        // The CPU provider interprets WGSL, which does not measure memory bandwidth.
        if profile.kind != DeviceKind::Cpu && support(profile, &spec) == Support::Yes {
            let mut recording = Recording { label: "bandwidth".into(), ..Recording::default() };
            let kernel = recording.kernel(spec);
            let mut words = vec![Word::Bits(0); 4];
            words[0] = Word::dim(&Dim::from(bytes / 16))?;
            let params = recording.param_block(ParamBlock(words));
            let (from, to) = (recording.slot("from", bytes), recording.slot("to", bytes));
            let bind = |slot, access| Binding { slot, offset: 0, bytes, access };
            recording.commands.push(Command::Dispatch(Dispatch {
                kernel,
                params,
                bindings: smallvec![bind(from, Access::Read), bind(to, Access::ReadWrite)],
                grid: [Dim::new(GROUPS), Dim::new(1), Dim::new(1)],
                label: "copy".into(),
            }));
            return Ok(recording);
        }
        let mut graph = Graph::new("bandwidth");
        let shape = Shape::new([bytes / 4]);
        let from = graph.state("from", shape.clone(), DType::F32);
        let to = graph.state("to", shape, DType::F32);
        graph.add(Op::Update { at: Dim::new(0) }, &[to, from])?;
        let plan = Plan::new(&graph, &ShapeClass::new(), profile, &Options::new(self.registry()))?;
        Ok(plan.recording)
    }

    /// Repeats the copy for at least the duration `least`; returns the number of copies and the
    /// time that they took.
    async fn copies(&self, prepared: PreparedId, least: Duration) -> Result<(usize, Duration)> {
        let work = vec![(prepared, Args::default()); COPIES];
        let (mut count, mut warm) = (0, false);
        let mut start = Clock::now();
        loop {
            let ticket = self.device().submit(&work)?;
            self.batcher().wait(ticket).await?;
            count += COPIES;
            let elapsed = start.elapsed();
            // A browser build has no clock and does one round.
            if elapsed == Duration::ZERO || (warm && elapsed >= least) {
                return Ok((count, elapsed));
            }
            if !warm && elapsed >= WARM_UP {
                (count, warm, start) = (0, true, Clock::now());
            }
        }
    }
}
