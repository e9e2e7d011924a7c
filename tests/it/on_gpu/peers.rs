//! Copies between devices without the host: in order, correct, and counted. On two GPUs through
//! CUDA if the machine has them, else on one opened twice, and everywhere on CPU devices that
//! support direct copies.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::kernel::Access::ReadWrite;
use warploom::kernel::KernelSpec;
use warploom::plan::{PartitionedPlan, Placement, Plan, Selector};
use warploom::provider::{
    Args, BufferId, BufferRange, Completion, Counters, Device, DeviceProfile, OpenOptions,
    PreparedId, Provider, Recording, Resource, Ticket, Usage, Word,
};
use warploom::runtime::{
    DeviceTensors, PartitionedInstance, RunOptions, Runtime, SyncMode, run_graph, run_partitioned,
};
use warploom::{Result, cpu};
use warploom_core::base::platform::{BoxFuture, block_on};
use warploom_core::base::{DType, Dim, Shape, ShapeClass, SymbolValues};
use warploom_native::cuda;
use warploom_testkit::{Outcome, RandomLimits, random_case, run_case};

use crate::partitioned::placement;
use crate::webgpu_host::*;
use crate::{Need, skip, tell};

/// The CPU as a device that accepts copies from devices of its kind.
struct Linked {
    inner: Arc<dyn Device>,
    copied: AtomicU64,
}

fn plain() -> Arc<dyn Device> {
    block_on(cpu::Provider.open(0, OpenOptions::default())).unwrap()
}

fn linked() -> Arc<dyn Device> {
    Arc::new(Linked { inner: plain(), copied: AtomicU64::new(0) })
}

/// The contents of a range.
fn read(device: &dyn Device, range: BufferRange) -> Result<Vec<u8>> {
    let mut work = Recording { label: "read".into(), ..Default::default() };
    // From the buffer's first byte, since slots need aligned offsets.
    let bytes = range.offset + range.bytes;
    let slot = work.slot("data", bytes);
    download(&mut work, part(slot, range.offset as i64, range.bytes as i64));
    let id = device.prepare(&work, &[Some(BufferRange { offset: 0, bytes, ..range })])?;
    let ticket = device.submit(&[(id, Args::default())])?;
    let done = block_on(device.wait(ticket));
    device.free(Resource::Prepared(id));
    Ok(done?.downloads.remove(0))
}

impl Device for Linked {
    fn profile(&self) -> &DeviceProfile {
        self.inner.profile()
    }
    fn compile<'a>(&'a self, spec: &'a KernelSpec) -> BoxFuture<'a, Result<()>> {
        self.inner.compile(spec)
    }
    fn alloc(&self, bytes: u64, usage: Usage) -> Result<BufferId> {
        self.inner.alloc(bytes, usage)
    }
    fn write(&self, to: BufferRange, bytes: &[u8]) -> Result<()> {
        self.inner.write(to, bytes)
    }
    fn copy_from(&self, to: BufferRange, source: &dyn Device, from: BufferRange) -> Result<()> {
        let any: &dyn Any = source;
        let Some(source) = any.downcast_ref::<Linked>() else {
            return self.inner.copy_from(to, source, from);
        };
        let bytes = read(&*source.inner, from)?;
        self.inner.write(to, &bytes)?;
        self.copied.fetch_add(to.bytes, Ordering::Relaxed);
        Ok(())
    }
    fn prepare(&self, work: &Recording, slots: &[Option<BufferRange>]) -> Result<PreparedId> {
        self.inner.prepare(work, slots)
    }
    fn submit(&self, work: &[(PreparedId, Args)]) -> Result<Ticket> {
        self.inner.submit(work)
    }
    fn wait(&self, ticket: Ticket) -> BoxFuture<'_, Result<Completion>> {
        self.inner.wait(ticket)
    }
    fn free(&self, what: Resource) {
        self.inner.free(what);
    }
    fn counters(&self) -> Counters {
        Counters { peer_bytes: self.copied.load(Ordering::Relaxed), ..self.inner.counters() }
    }
}

/// Two CUDA devices, or the only one twice, with two streams and two memory pools.
fn cuda_pair() -> Option<[Arc<dyn Device>; 2]> {
    let provider = cuda::Provider::new();
    let found = block_on(provider.list()).unwrap_or_default();
    let names: Vec<String> = found.iter().map(DeviceProfile::id).collect();
    let second = match names.len() {
        0 => {
            skip(Need::Cuda, "there is no CUDA device");
            return None;
        }
        1 => 0,
        _ => 1,
    };
    tell(&format!("peers: on cuda:0 and cuda:{second} of {names:?}"));
    Some([0, second].map(|i| block_on(provider.open(i, OpenOptions::default())).unwrap()))
}

/// `y = y + 1` this many times over a whole buffer; then a download, if requested.
fn counting(words: u64, times: u32, download_it: bool) -> Recording {
    let mut work = Recording { label: "count".into(), ..Default::default() };
    let y = work.slot("y", 4 * words);
    for _ in 0..times {
        let mut block = params(Word::Bits(words as u32), 1.0, 1.0);
        block.0.push(Word::Bits(0));
        let groups = Dim::new(words.div_ceil(64) as i64);
        dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], groups);
    }
    if download_it {
        download(&mut work, part(y, 0, 4 * words as i64));
    }
    work
}

/// A copy sees all earlier submits of both devices, and no later ones.
fn copies_are_in_order(a: &dyn Device, b: &dyn Device, repeats: u64) {
    const TIMES: u32 = 8;
    let mut copied = 0;
    let before = b.counters();
    for device in [a, b] {
        block_on(device.compile(&affine_in_place())).unwrap();
    }
    for i in 0..repeats {
        // From a word to a few MB, with room before and after.
        let words = 1 + (i * i * 97) % 150_001;
        let (lead, all) = (i % 5, words + 16 + i % 3);
        let zeros = vec![0.0; all as usize];
        let (x, y) = (floats(a, &zeros), floats(b, &zeros));
        let count = counting(all, TIMES, false);
        let count_and_read = counting(all, 1, true);
        let on_a = a.prepare(&count, &[Some(x)]).unwrap();
        let on_b = b.prepare(&count, &[Some(y)]).unwrap();
        let then_a = a.prepare(&count_and_read, &[Some(x)]).unwrap();
        let then_b = b.prepare(&count_and_read, &[Some(y)]).unwrap();
        let run = |device: &dyn Device, id| device.submit(&[(id, Args::default())]).unwrap();
        // b: 8, then the copy over it, then 1 more. a: 8, then the copy from it, then 17 more.
        run(b, on_b);
        run(a, on_a);
        let bytes = 4 * words;
        let from = BufferRange { buffer: x.buffer, offset: 4 * lead, bytes };
        let to = BufferRange { buffer: y.buffer, offset: 16, bytes };
        run(a, on_a);
        b.copy_from(to, a, from).unwrap();
        copied += bytes;
        run(a, on_a);
        let (last_a, last_b) = (run(a, then_a), run(b, then_b));
        // Memory freed now is released after the copy.
        a.free(Resource::Buffer(x.buffer));
        let got = to_floats(&block_on(b.wait(last_b)).unwrap().downloads[0]);
        for (at, value) in (0..).zip(&got) {
            let want = if (4..4 + words).contains(&at) { 17.0 } else { 9.0 };
            assert_eq!(*value, want, "repeat {i}, word {at} of {all}, {words} copied");
        }
        let got = to_floats(&block_on(a.wait(last_a)).unwrap().downloads[0]);
        assert!(got.iter().all(|value| *value == 25.0), "repeat {i}: the source");
        b.free(Resource::Buffer(y.buffer));
        for (device, ids) in [(a, [on_a, then_a]), (b, [on_b, then_b])] {
            for id in ids {
                device.free(Resource::Prepared(id));
            }
        }
    }
    let after = b.counters();
    assert_eq!(after.peer_bytes - before.peer_bytes, copied);
}

/// A copy that does not fit is refused, and nothing is written.
fn wrong_copies_are_errors(a: &dyn Device, b: &dyn Device) {
    let (x, y) = (floats(a, &[1.0; 64]), floats(b, &[2.0; 64]));
    let wrong = [
        (BufferRange { bytes: 128, ..y }, x),
        (y, BufferRange { bytes: 512, ..x }),
        (BufferRange { offset: 4, ..y }, x),
        (y, BufferRange { offset: u64::MAX - 3, ..x }),
    ];
    for (to, from) in wrong {
        let error = b.copy_from(to, a, from).unwrap_err();
        assert!(error.is_invalid(), "{to:?} {from:?}: {error}");
    }
    let foreign = plain();
    let z = floats(&*foreign, &[3.0; 64]);
    let error = b.copy_from(y, &*foreign, z).unwrap_err();
    assert!(
        error.is_unsupported() && error.to_string().contains("no copies from cpu:0"),
        "{error}"
    );
    a.free(Resource::Buffer(x.buffer));
    assert!(b.copy_from(y, a, x).unwrap_err().is_invalid());
    assert_eq!(to_floats(&read(b, y).unwrap()), [2.0; 64]);
    b.free(Resource::Buffer(y.buffer));
    foreign.free(Resource::Buffer(z.buffer));
}

/// `|(-x - x) x| - x` of integers, each operation on a different device than the previous one; the
/// result is exact on any device.
fn chain(rows: i64, columns: i64) -> (Graph, Vec<(Selector, usize)>) {
    let mut g = Graph::new("there and back");
    let x = g.input("x", Shape::new([rows, columns]), DType::F32);
    let mut of = x;
    let mut placement = Vec::new();
    let ops = [
        Op::Unary(UnaryOp::Neg),
        Op::Binary(BinaryOp::Sub),
        Op::Binary(BinaryOp::Mul),
        Op::Unary(UnaryOp::Abs),
        Op::Binary(BinaryOp::Sub),
    ];
    for (i, op) in ops.into_iter().enumerate() {
        let inputs = if matches!(op, Op::Unary(_)) { vec![of] } else { vec![of, x] };
        of = g.add(op, &inputs).unwrap();
        g.label(of, format!("step {i}"));
        placement.push((Selector::Label(format!("step {i}")), (i + 1) % 2));
    }
    g.output("y", of).unwrap();
    (g, placement)
}

fn instance(runtimes: &[Runtime], graph: &Graph, place: &Placement) -> PartitionedInstance {
    let profiles: Vec<_> = runtimes.iter().map(|r| r.device().profile().clone()).collect();
    let class = ShapeClass::exact(&SymbolValues::new());
    let options = runtimes[0].plan_options();
    let plan = PartitionedPlan::new(graph, &class, &profiles, place, &options).unwrap();
    let mut residents = [DeviceTensors::new(), DeviceTensors::new()];
    PartitionedInstance::new(runtimes, plan, &mut residents).unwrap()
}

/// Graphs over both devices against one of them, with new sizes each time and twice each; nothing
/// goes through the host.
fn graphs_are_the_same(devices: &[Arc<dyn Device>; 2], repeats: i64) {
    let runtimes = devices
        .each_ref()
        .map(|device| Runtime::on(Arc::clone(device), SyncMode::Lazy, None).unwrap());
    let mut direct = 0;
    let before: u64 = devices.iter().map(|device| device.counters().peer_bytes).sum();
    for i in 0..repeats {
        let (rows, columns) = (1 + i * 7 % 129, 1 + i * i % 517);
        let (graph, place) = chain(rows, columns);
        let mut cut = instance(&runtimes, &graph, &place);
        for round in 0..2 {
            let x = (0..rows * columns).map(|at| ((at * 7 + i + round) % 23 - 11) as f32);
            let x = to_bytes(&x.collect::<Vec<_>>());
            let inputs = BTreeMap::from([("x".to_string(), x)]);
            let symbols = SymbolValues::new();
            let found = cut.run(&symbols, &inputs).unwrap();
            let options = RunOptions::default();
            let run = run_graph(&runtimes[0], &graph, &symbols, &inputs, &options);
            assert!(found == run.unwrap(), "{rows} x {columns}, round {round}");
        }
        for way in cut.transfers() {
            assert!(way.reason.is_none() && way.host_bytes == 0, "{way}");
            direct += way.direct_bytes;
        }
        // Twice, four times to the other device, four bytes a number.
        let there_and_back: u64 = cut.transfers().iter().map(|way| way.direct_bytes).sum();
        assert_eq!(there_and_back, 2 * 4 * 4 * (rows * columns) as u64);
    }
    let after: u64 = devices.iter().map(|device| device.counters().peer_bytes).sum();
    assert_eq!(after - before, direct);
}

/// Random graphs, split at random.
fn random_graphs_are_right(devices: &[Arc<dyn Device>; 2], graphs: u64) {
    let runtimes = devices
        .each_ref()
        .map(|device| Runtime::on(Arc::clone(device), SyncMode::Lazy, None).unwrap());
    for seed in 0..graphs {
        let case = random_case(seed, 0, &RandomLimits::default());
        let class = ShapeClass::exact(&case.symbols);
        let options = runtimes[0].plan_options();
        let profile = runtimes[0].device().profile();
        let simple = Plan::graph_after(&case.graph, &class, profile, &options, "simplify");
        let place = placement(&simple.unwrap(), seed, 2);
        let outcome = run_case(&case, &|graph, symbols, bindings| {
            run_partitioned(&runtimes, graph, symbols, bindings, &place, Some(&class))
        });
        assert!(matches!(outcome, Outcome::Pass(_)), "seed {seed}: {outcome:?}");
    }
    assert!(devices.iter().all(|device| device.counters().peer_bytes > 0));
}

#[test]
fn devices_that_know_each_other_copy_without_the_host() {
    let devices = [linked(), linked()];
    copies_are_in_order(&*devices[0], &*devices[1], 6);
    graphs_are_the_same(&devices, 6);
    random_graphs_are_right(&devices, 10);
}

#[test]
fn devices_without_a_direct_copy_go_through_the_host_and_report_it() {
    let runtimes =
        [linked(), plain()].map(|device| Runtime::on(device, SyncMode::Lazy, None).unwrap());
    let (graph, place) = chain(5, 9);
    let mut cut = instance(&runtimes, &graph, &place);
    let x: Vec<f32> = (0..45).map(|i| (i % 7) as f32).collect();
    let inputs = BTreeMap::from([("x".to_string(), to_bytes(&x))]);
    for _ in 0..2 {
        let found = cut.run(&SymbolValues::new(), &inputs).unwrap();
        let y: Vec<f32> = x.iter().map(|x| 2.0 * x * x - x).collect();
        assert!(to_floats(&found["y"]).iter().eq(y.iter()), "{found:?}");
    }
    let message: Vec<String> = cut.transfers().iter().map(ToString::to_string).collect();
    let line = |from, to| {
        format!(
            "slot {from} to slot {to}: 720 bytes through the host (cpu:0 takes no \
             copies from cpu:0)"
        )
    };
    assert_eq!(message, [line(1, 0), line(0, 1)]);
}

#[test]
fn cuda_copies_are_in_order() {
    let Some([a, b]) = cuda_pair() else { return };
    copies_are_in_order(&*a, &*b, 100);
    copies_are_in_order(&*b, &*a, 20);
    wrong_copies_are_errors(&*a, &*b);
    assert!(
        a.copy_from(floats(&*a, &[0.0]), &*a, floats(&*a, &[0.0])).unwrap_err().is_unsupported()
    );
}

#[test]
fn cuda_graphs_over_two_devices_are_those_of_one() {
    let Some(devices) = cuda_pair() else { return };
    graphs_are_the_same(&devices, 100);
    random_graphs_are_right(&devices, 30);
}
