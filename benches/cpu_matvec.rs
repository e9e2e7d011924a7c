//! GEMV and GEMM of packed weights on the CPU: checked against decoded weights in f64, then timed.
//!
//! `cargo bench --bench cpu_matvec` prints, for each format, instruction set and number of threads,
//! GB/s of weights for one row of x (decode) and GFLOP/s for many rows (prefill), from the best of
//! several rounds. `cargo bench --bench cpu_matvec -- q4_1` selects a format, `-- q4_1 avx512` also
//! an instruction set.
//!
//! Rounds cycle through 64 MB of matrices per format, so that weights are read from memory and not
//! from a cache. A round is one submit of about 2 MB: so short that the best rounds are undisturbed
//! even on a busy machine. The read bandwidth of one thread is printed first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use warploom::kernel::catalogue::family_name;
use warploom::kernel::{Access, AssetSpec, KernelSpec};
use warploom::provider::{
    Args, Binding, BufferRange, Command, Device, Dispatch, OpenOptions, ParamBlock, PreparedId,
    Recording, SlotRange, Usage, Word,
};
use warploom_core::base::platform::block_on;
use warploom_core::base::{Dim, Format};
use warploom_cpu::Provider;

/// Bytes of weights in one measurement.
const WEIGHTS: usize = 64 << 20;
/// Bytes of weights in one round.
const ROUND: usize = 2 << 20;
/// Columns and rows of a matrix: the down projection of SmolLM2-135M.
const K: usize = 1536;
const N: usize = 576;

/// The system's allocator with a count of allocations: a submit in the steady state makes none.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |names: &[&str], name: &str| {
        let chosen: Vec<_> = filters.iter().filter(|f| names.contains(&f.as_str())).collect();
        chosen.is_empty() || chosen.iter().any(|f| *f == name)
    };
    let formats: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    let sets = Provider::instruction_sets();
    let cores = Provider::profile().compute_units as usize;
    println!(
        "{} ({cores} cores), reads {:.1} GB/s a thread",
        Provider::profile().name,
        read_speed()
    );
    println!(
        "{:<6} {:<8} {:>7} {:>12} {:>14} {:>14}",
        "format", "set", "threads", "m=1 GB/s", "m=8 GFLOP/s", "m=128 GFLOP/s"
    );
    for format in Format::ALL.into_iter().filter(|f| wanted(&formats, f.name())) {
        if format == Format::F32 {
            gemm(1);
            gemm(cores);
        }
        for set in sets.iter().filter(|set| wanted(&sets, set)) {
            let mut threads = vec![1, cores];
            threads.dedup();
            for threads in threads {
                measure(format, set, threads);
            }
        }
    }
}

/// The read bandwidth of one thread that sums 64 MB, in GB/s.
fn read_speed() -> f64 {
    let data = vec![1u64; 8 << 20];
    let time = best(|_| {
        let sums = data.chunks_exact(8).fold([0u64; 8], |mut sums, chunk| {
            sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum = sum.wrapping_add(*v));
            sums
        });
        assert_eq!(std::hint::black_box(sums).iter().sum::<u64>(), 8 << 20);
    });
    64.0 * 1.048_576e-3 / time.as_secs_f64()
}

fn best(mut work: impl FnMut(usize)) -> Duration {
    let mut best = Duration::MAX;
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(400) {
        let round = Instant::now();
        work(rounds);
        best = best.min(round.elapsed());
        rounds += 1;
    }
    best
}

fn measure(format: Format, set: &str, threads: usize) {
    let options = OpenOptions { threads: Some(threads), ..OpenOptions::default() };
    let device = Provider::device_with(set, &options).expect("an instruction set of this machine");
    let matrix = format.bytes((K * N) as u64).expect("whole blocks") as usize;
    let count = (ROUND / matrix).max(1);
    let gigabytes = (count * matrix) as f64 * 1e-9;
    let gigaflops = (2 * K * N * count) as f64 * 1e-9;
    let one = Bench::new(&device, format, "matvec_*", 1, count).time();
    let eight = Bench::new(&device, format, "matvec_*", 8, count).time();
    let many = Bench::new(&device, format, "matmul_*", 128, 1).time() * count as u32;
    println!(
        "{:<6} {set:<8} {threads:>7} {:>12.1} {:>14.1} {:>14.1}",
        format.name(),
        gigabytes / one.as_secs_f64(),
        8.0 * gigaflops / eight.as_secs_f64(),
        128.0 * gigaflops / many.as_secs_f64(),
    );
}

/// Times the same product of floats by `matmul_batched`, which calls the `gemm` crate, for
/// comparison.
fn gemm(threads: usize) {
    let options = OpenOptions { threads: Some(threads), ..OpenOptions::default() };
    let device = Provider::device(&options);
    let (m, count) = (128, 1);
    let time = Bench::new(&device, Format::F32, "matmul_batched", m, count).time();
    let gigaflops = (2 * m * K * N * count) as f64 * 1e-9 / time.as_secs_f64();
    println!("{:<6} {:<8} {threads:>7} {:>12} {:>14} {gigaflops:>14.1}", "f32", "gemm", "", "");
}

struct Bench {
    device: Arc<dyn Device>,
    id: PreparedId,
    /// Arguments of each round; each binds different matrices.
    rounds: Vec<Args>,
}

impl Bench {
    /// Prepares rounds of `count` products, each with its own matrix, and checks the last product
    /// of a round.
    fn new(
        device: &Arc<dyn Device>,
        format: Format,
        family: &str,
        m: usize,
        count: usize,
    ) -> Bench {
        let spec = KernelSpec::Asset(AssetSpec::new(family_name(family, format)));
        block_on(device.compile(&spec)).expect("a kernel of the catalogue");
        let noise = |i: usize| ((i * 2_654_435_761) >> 7 & 0xffff) as f32 / 32_768.0 - 1.0;
        let w: Vec<f32> = (0..K * N).map(noise).collect();
        let w = warploom_core::quant::encode(format, &w).expect("finite weights");
        let x: Vec<f32> = (0..m * K).map(|i| noise(i + 7)).collect();
        let x_bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        let alloc = |bytes: &[u8]| {
            let bytes_all = bytes.len().next_multiple_of(4) as u64;
            let buffer = device.alloc(bytes_all, Usage::Weights).expect("memory");
            let range = BufferRange { buffer, offset: 0, bytes: bytes_all };
            device.write(range, bytes).expect("a write");
            range
        };
        let mut work = Recording { label: "bench".into(), ..Recording::default() };
        let kernel = work.kernel(spec);
        let batched = family == "matmul_batched";
        let words = match batched {
            // y = x times the transpose of w: columns of b are rows of w.
            true => vec![1, m, N, K, 0, 0, K, 1, 0, 0, 1, K, 0],
            false => vec![m, N, K, 0, K, 0, N],
        };
        let words = words.into_iter().map(|v| Word::Bits(v as u32)).collect();
        let params = work.param_block(ParamBlock(words));
        let slots = [alloc(&x_bytes), alloc(&vec![0; m * N * 4])];
        work.slot("x", slots[0].bytes);
        work.slot("y", slots[1].bytes);
        let matrix = w.len().next_multiple_of(4) as u64;
        for i in 0..count {
            work.slot(format!("w{i}"), matrix);
        }
        let round = |_| Args {
            buffers: (0..count).map(|i| (2 + i as u32, alloc(&w))).collect(),
            ..Args::default()
        };
        let rounds: Vec<Args> = (0..WEIGHTS / count / w.len()).map(round).collect();
        let bind = |slot: usize, access| Binding {
            slot: slot as u32,
            offset: 0,
            bytes: slots.get(slot).map_or(matrix, |range| range.bytes),
            access,
        };
        for matrix in 0..count {
            let (w, x) = (bind(2 + matrix, Access::Read), bind(0, Access::Read));
            let y = bind(1, Access::ReadWrite);
            let bindings = if batched { [x, w, y] } else { [w, x, y] };
            let one = || Dim::new(1);
            work.commands.push(Command::Dispatch(Dispatch {
                kernel,
                params,
                bindings: bindings.into_iter().collect(),
                grid: [one(), one(), one()],
                label: format!("product {matrix}"),
            }));
        }
        let slots = slots.map(Some);
        let timed = device.prepare(&work, &slots).expect("a good recording");
        let bytes = Dim::from((m * N * 4) as u64);
        let from = SlotRange { slot: 1, offset: Dim::new(0), bytes };
        work.commands.push(Command::Download { from });
        let checked = device.prepare(&work, &slots).expect("a good recording");
        let bench = Bench { device: Arc::clone(device), id: checked, rounds };
        bench.check(format, &w, &x, m);
        let bench = Bench { id: timed, ..bench };
        bench.run(0);
        let args = [(bench.id, bench.rounds[0].clone())];
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        bench.device.submit(&args).expect("a submit");
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        // The `gemm` crate packs into memory that it allocates for each product.
        assert!(allocations == 0 || batched, "a submit in the steady state allocated");
        bench
    }

    fn run(&self, round: usize) -> Vec<Vec<u8>> {
        let args = self.rounds[round % self.rounds.len()].clone();
        let ticket = self.device.submit(&[(self.id, args)]).expect("a submit");
        block_on(self.device.wait(ticket)).expect("no failure").downloads
    }

    /// Panics if a result differs from the product in f64 by more than rounding explains.
    fn check(&self, format: Format, w: &[u8], x: &[f32], m: usize) {
        let mut values = vec![0.0; K * N];
        warploom_core::quant::decode(format, w, &mut values).expect("whole blocks");
        let downloads = self.run(0);
        let y = downloads[0].chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]));
        for (at, y) in y.enumerate() {
            let (i, r) = (at / N, at % N);
            let terms = values[r * K..][..K].iter().zip(&x[i * K..]);
            let (mut sum, mut size) = (0f64, 0f64);
            for (w, x) in terms {
                sum += f64::from(*w) * f64::from(*x);
                size += (f64::from(*w) * f64::from(*x)).abs();
            }
            let error = (f64::from(y) - sum).abs();
            assert!(error <= 1e-6 * size && i < m, "{format} y[{i}, {r}] = {y}, not {sum}");
        }
    }

    fn time(&self) -> Duration {
        best(|round| drop(self.run(round)))
    }
}
