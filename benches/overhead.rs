//! Host cost of replaying prepared work through wgpu, and the gain of batching.
//!
//! First, on wgpu's noop backend: the host time per dispatch, including submit and wait. The goal
//! is at most 1 us. Then, on the best device: chains of dependent tiny operations, each submitted
//! and awaited separately (eager), all in one submit (lazy), and as one recording (planned).
//!
//! Every chain is verified on the real device before it is timed. `cargo bench --bench overhead`
//! prints medians; without `--bench` each time is measured once, as a test.

use std::sync::Arc;
use std::time::Instant;

use warploom::Error;
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::provider::{
    Args, Binding, BufferRange, Command, Device, DeviceKind, Dispatch, OpenOptions, ParamBlock,
    PreparedId, Provider, Recording, SlotRange, Usage, Word,
};
use warploom::webgpu;
use warploom_core::base::platform::block_on;
use warploom_core::base::{Dim, Symbol, SymbolValues};

type Result<T> = std::result::Result<T, Error>;

/// Number of floats in each buffer.
const ELEMENTS: u64 = 64;
const N: Symbol = Symbol::new("n");
/// Maximum host time of a dispatch, in us.
const GOAL: f64 = 1.0;

/// `y[i] = x[i] + add`, for `i < n`; one workgroup of 64 threads.
const ADD: &str = "
    struct P { n: u32, add: f32, a: u32, b: u32 }
    @group(0) @binding(0) var<uniform> p: P;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < p.n) { y[id.x] = x[id.x] + p.add; }
    }";

fn kernel() -> KernelSpec {
    KernelSpec::Source(SourceSpec {
        name: "add".into(),
        wgsl: ADD.into(),
        entry: "main".into(),
        bindings: vec![Access::Read, Access::ReadWrite],
        param_words: 4,
        constants: Default::default(),
        twins: Vec::new(),
    })
}

/// The kind of sizes in a chain.
#[derive(Clone, Copy, PartialEq)]
enum Sizes {
    Fixed,
    /// The number of elements and the grid are symbols, as in a language model's step.
    Symbols,
}

/// A recording of `length` dispatches that alternate between two buffers. Each adds 1 + i % 7, with
/// i counted from `start`.
fn chain(start: usize, length: usize, sizes: Sizes, download: bool) -> Result<Recording> {
    let bytes = 4 * ELEMENTS;
    let mut work = Recording { label: "chain".into(), ..Default::default() };
    let slots = [work.slot("a", bytes), work.slot("b", bytes)];
    let kernel = work.kernel(kernel());
    let n = match sizes {
        Sizes::Fixed => Dim::new(ELEMENTS as i64),
        Sizes::Symbols => Dim::symbol(N),
    };
    for i in start..start + length {
        let block = ParamBlock(vec![Word::dim(&n)?, Word::f32(1.0 + (i % 7) as f32)]);
        let bind = |slot, access| Binding { slot, offset: 0, bytes, access };
        let dispatch = Dispatch {
            kernel,
            params: work.param_block(block),
            bindings: [
                bind(slots[i % 2], Access::Read),
                bind(slots[(i + 1) % 2], Access::ReadWrite),
            ]
            .into_iter()
            .collect(),
            grid: [n.ceil_div(&Dim::new(64)), Dim::new(1), Dim::new(1)],
            label: format!("add {i}"),
        };
        work.commands.push(Command::Dispatch(dispatch));
    }
    if download {
        let slot = slots[(start + length) % 2];
        let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::new(bytes as i64) };
        work.commands.push(Command::Download { from });
    }
    Ok(work)
}

/// The value of every element after a chain that begins with zeros.
fn expected(length: usize) -> f32 {
    (0..length).map(|i| 1.0 + (i % 7) as f32).sum()
}

fn args() -> Args {
    Args { symbols: SymbolValues::new().with(N, ELEMENTS), ..Args::default() }
}

struct Bench {
    device: Arc<dyn Device>,
    buffers: [BufferRange; 2],
    /// Number of measurements of each time; the median is printed.
    runs: usize,
}

impl Bench {
    fn new(device: Arc<dyn Device>, runs: usize) -> Result<Bench> {
        block_on(device.compile(&kernel()))?;
        let bytes = 4 * ELEMENTS;
        let alloc = || -> Result<BufferRange> {
            Ok(BufferRange { buffer: device.alloc(bytes, Usage::Working)?, offset: 0, bytes })
        };
        let buffers = [alloc()?, alloc()?];
        Ok(Bench { device, buffers, runs })
    }

    fn prepare(&self, work: &Recording) -> Result<PreparedId> {
        self.device.prepare(work, &self.buffers.map(Some))
    }

    /// Fills the first buffer with zeros.
    fn reset(&self) -> Result<()> {
        self.device.write(self.buffers[0], &[0; 4 * ELEMENTS as usize])
    }

    /// Submits the whole list once and waits; returns the downloads.
    fn lazy(&self, list: &[(PreparedId, Args)]) -> Result<Vec<Vec<u8>>> {
        let ticket = self.device.submit(list)?;
        Ok(block_on(self.device.wait(ticket))?.downloads)
    }

    /// Submits and awaits each item separately; returns the downloads of the last.
    fn eager(&self, list: &[(PreparedId, Args)]) -> Result<Vec<Vec<u8>>> {
        let mut last = Vec::new();
        for item in list {
            last = self.lazy(std::slice::from_ref(item))?;
        }
        Ok(last)
    }

    /// The median time of a call, in us.
    fn time(&self, mut call: impl FnMut() -> Result<Vec<Vec<u8>>>) -> Result<f64> {
        let mut times = Vec::with_capacity(self.runs);
        for _ in 0..self.runs {
            let start = Instant::now();
            call()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

fn verify(downloads: &[Vec<u8>], length: usize, what: &str) -> Result<()> {
    let want = expected(length).to_le_bytes();
    let right = |bytes: &Vec<u8>| {
        bytes.len() == 4 * ELEMENTS as usize && bytes.chunks(4).all(|word| word == want)
    };
    match downloads.last() {
        Some(bytes) if right(bytes) => Ok(()),
        _ => Err(Error::device(format!("{what} of {length}: not {} everywhere", expected(length)))),
    }
}

/// A chain with each dispatch as separate prepared work; the last downloads the result.
fn single_steps(bench: &Bench, length: usize, sizes: Sizes) -> Result<Vec<(PreparedId, Args)>> {
    (0..length)
        .map(|i| Ok((bench.prepare(&chain(i, 1, sizes, i + 1 == length)?)?, args())))
        .collect()
}

/// Measures the host time per dispatch on wgpu's noop backend; returns whether the goal is met.
fn host_cost(real: &Bench, runs: usize) -> Result<bool> {
    const LENGTH: usize = 1000;
    let noop = Bench::new(webgpu::noop_device(&OpenOptions::default()), runs)?;
    println!(
        "host time for each dispatch, {LENGTH} in a submit, nothing executed (goal {GOAL} us)"
    );
    let mut met = true;
    for (name, sizes, split) in [
        ("one recording, sizes fixed", Sizes::Fixed, false),
        ("one recording, sizes from symbols", Sizes::Symbols, false),
        ("a recording for each dispatch", Sizes::Fixed, true),
    ] {
        let list = |bench: &Bench| -> Result<Vec<(PreparedId, Args)>> {
            if split {
                return single_steps(bench, LENGTH, sizes);
            }
            Ok(vec![(bench.prepare(&chain(0, LENGTH, sizes, true)?)?, args())])
        };
        real.reset()?;
        verify(&real.lazy(&list(real)?)?, LENGTH, name)?;
        let list = list(&noop)?;
        let before = noop.device.counters().dispatches;
        let us = noop.time(|| noop.lazy(&list))? / LENGTH as f64;
        let done = noop.device.counters().dispatches - before;
        if done != (LENGTH * runs) as u64 {
            return Err(Error::device(format!("{name}: {done} dispatches were counted")));
        }
        // Recordings of one dispatch, as the batcher gathers them without a plan, are not compared
        // with the goal.
        met &= split || us <= GOAL;
        println!("  {name:<36} {us:>7.3} us");
    }
    let one = [(noop.prepare(&chain(0, 1, Sizes::Fixed, true)?)?, args())];
    let us = noop.time(|| noop.lazy(&one))?;
    println!("  {:<36} {us:>7.3} us", "one dispatch with its submit and wait");
    Ok(met)
}

fn batching(bench: &Bench) -> Result<()> {
    let profile = bench.device.profile();
    println!("dependent tiny operations on {} {:?}", profile.id(), profile.name);
    println!(
        "  {:>10} {:>14} {:>14} {:>14} {:>8}",
        "operations", "eager us", "lazy us", "planned us", "ratio"
    );
    for length in [10, 100, 200] {
        let steps = single_steps(bench, length, Sizes::Fixed)?;
        let planned = [(bench.prepare(&chain(0, length, Sizes::Fixed, true)?)?, args())];
        for (name, downloads) in [
            ("eager", bench.reset().and_then(|()| bench.eager(&steps))?),
            ("lazy", bench.reset().and_then(|()| bench.lazy(&steps))?),
            ("planned", bench.reset().and_then(|()| bench.lazy(&planned))?),
        ] {
            verify(&downloads, length, name)?;
        }
        let eager = bench.time(|| bench.eager(&steps))?;
        let lazy = bench.time(|| bench.lazy(&steps))?;
        let one = bench.time(|| bench.lazy(&planned))?;
        println!("  {length:>10} {eager:>14.1} {lazy:>14.1} {one:>14.1} {:>7.1}x", eager / lazy);
    }
    Ok(())
}

/// Opens the first device that is not a software device, or else the first.
fn best_device() -> Result<Arc<dyn Device>> {
    let provider = webgpu::Provider::new();
    let list = block_on(provider.list())?;
    let hardware = list.iter().position(|profile| profile.kind != DeviceKind::Software);
    if list.is_empty() {
        return Err(Error::unsupported("wgpu found no adapter"));
    }
    block_on(provider.open(hardware.unwrap_or(0), OpenOptions::default()))
}

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let runs = if timed { 51 } else { 1 };
    let bench = Bench::new(best_device()?, runs)?;
    let met = host_cost(&bench, runs)?;
    batching(&bench)?;
    if timed && !met {
        return Err(Error::device(format!("the host's share is above {GOAL} us a dispatch")));
    }
    Ok(())
}
