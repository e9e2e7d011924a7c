//! Lazy tensors: what runs when, what stays in memory, and the state after a failure.

use std::sync::Arc;

use warploom::Tensor;
use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::memory::PooledBuffer;
use warploom::plan::{Bindings, Bound, Options, Plan};
use warploom::provider::{BufferRange, Device, NullProvider, OpenOptions, Usage};
use warploom::runtime::{Instance, Runtime, SyncMode, Workspace};
use warploom_core::base::platform::block_on;
use warploom_core::base::{DType, Format, Shape, ShapeClass};

use crate::tensor::{close, cpu, null, on_each};

/// Counters of one more iteration of a loop: plans, compiles, allocations, submits, waits.
fn turn(device: &Arc<dyn Device>, runtime: &Runtime, run: impl FnOnce()) -> [u64; 5] {
    let (before, planned) = (device.counters(), runtime.tensor_stats().planned);
    run();
    let (after, plans) = (device.counters(), runtime.tensor_stats().planned);
    [
        plans - planned,
        after.compiles - before.compiles,
        after.allocations - before.allocations,
        after.submits - before.submits,
        after.waits - before.waits,
    ]
}

#[test]
fn nothing_runs_before_a_read() {
    let (device, rt) = null();
    let x = Tensor::from_slice(&rt, &[1.0_f32; 8], [8]);
    let y = (&x * 2.0).exp().sum(..);
    assert!(!y.is_evaluated());
    assert_eq!((device.counters().dispatches, rt.tensor_stats().planned), (0, 0));
    let read = || assert!(y.item::<f32>().unwrap().is_nan());
    assert_eq!(turn(&device, &rt, read)[3..], [1, 1]);
    assert!(y.is_evaluated());
    // It is on the device now.
    let dispatches = device.counters().dispatches;
    y.item::<f32>().unwrap();
    assert_eq!(device.counters().dispatches, dispatches);
}

#[test]
fn a_loop_plans_and_compiles_once() {
    let (device, rt) = null();
    let w = Tensor::from_slice(&rt, &[0.5_f32; 64], [8, 8]);
    let mut x = Tensor::from_slice(&rt, &[1.0_f32; 8], [1, 8]);
    let mut turns = Vec::new();
    for _ in 0..6 {
        turns.push(turn(&device, &rt, || {
            x = x.matmul(&w).tanh();
            x = &x / x.square().sum_keep(-1).sqrt();
            let size = x.abs().max(..);
            // The result to go on with and the number to print, together.
            Tensor::eval(&[&x, &size]).unwrap();
            size.item::<f32>().unwrap();
        }));
    }
    assert_eq!(turns[0][0], 1);
    assert!(turns[0][1] > 0 && turns[0][2] > 0);
    for later in &turns[2..] {
        assert_eq!(*later, [0, 0, 0, 1, 1], "plans, compiles, allocations, submits, waits");
    }
    assert_eq!(rt.tensor_stats().planned, 1);
}

#[test]
fn a_scalar_that_changes_is_compiled_in_twice() {
    let rt = cpu();
    let x = Tensor::from_slice(&rt, &[1.0_f32, 2.0], [2]);
    for step in 0..20 {
        let rate = step as f32 * 0.25;
        close(&(&x * rate + 1), &[rate + 1.0, 2.0 * rate + 1.0]);
    }
    let stats = rt.tensor_stats();
    assert_eq!((stats.planned, stats.reused), (3, 17));
}

#[test]
fn expensive_results_in_hand_are_kept_and_cheap_ones_not() {
    let (device, rt) = null();
    let x = Tensor::from_slice(&rt, &[1.0_f32; 4], [2, 2]);
    let product = x.matmul(&x);
    let cheap = &product + 1.0;
    let sum = (&cheap * 2.0).sum(..);
    sum.realize().unwrap();
    assert!(product.is_evaluated() && !cheap.is_evaluated());
    let before = device.counters().dispatches;
    cheap.realize().unwrap();
    rt.batcher().flush().unwrap();
    let flushed = device.counters().dispatches;
    assert!(flushed > before);
}

/// Lazy sync: only a read waits.
#[test]
fn runs_without_a_read_share_a_submit() {
    let (device, rt) = null();
    let mut x = Tensor::from_slice(&rt, &[1.0_f32; 4], [4]);
    for _ in 0..10 {
        x = (&x + 1.0).sqrt();
        x.realize().unwrap();
    }
    assert_eq!((device.counters().submits, device.counters().dispatches), (0, 0));
    x.to_vec::<f32>().unwrap();
    assert_eq!((device.counters().submits, rt.tensor_stats().planned), (1, 1));
}

/// More results of a product's elements than a kernel can write.
#[test]
fn a_wide_epilogue_does_not_exceed_the_buffers_of_a_kernel() {
    on_each(|rt| {
        let x = Tensor::rand(rt, [8, 8], 1);
        let w = Tensor::rand(rt, [8, 8], 2);
        w.realize().unwrap();
        let product = x.linear(&w);
        let all: Vec<Tensor> =
            (0..40).map(|i| (&product * (0.05 * (i as f32 + 1.0))).exp()).collect();
        Tensor::eval(&all.iter().collect::<Vec<_>>()).unwrap();
        let product = product.to_vec::<f32>().unwrap();
        for (i, each) in all.iter().enumerate().step_by(13) {
            let want: Vec<f32> =
                product.iter().map(|v| (v * (0.05 * (i as f32 + 1.0))).exp()).collect();
            let have = each.to_vec::<f32>().unwrap();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs();
            assert!(have.iter().zip(&want).all(near), "result {i}");
        }
    });
}

/// Adaptive sync: what is realized is computed without a read, and off this thread.
#[test]
fn realized_tensors_are_computed_meanwhile() {
    on_each(|rt| {
        assert_eq!(rt.sync(), SyncMode::Adaptive, "WARPLOOM_SYNC is set");
        let x = Tensor::rand(rt, [256, 256], 1);
        let mut y = x.matmul(&x).tanh();
        assert!(!y.is_ready());
        y.realize().unwrap();
        let begin = std::time::Instant::now();
        while !y.is_ready() {
            assert!(begin.elapsed().as_secs() < 60, "{y:?} is never ready");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Many starts while the device is busy, then a wait for all of them.
        for _ in 0..50 {
            y = y.matmul(&x).tanh();
            y.realize().unwrap();
        }
        rt.synchronize().unwrap();
        assert!(y.is_ready());
        let plain = rt.device().counters().submits;
        assert!(y.to_vec::<f32>().unwrap().iter().all(|v| v.abs() <= 1.0));
        assert_eq!(rt.device().counters().submits, plain + 1, "only the transfer is left");
    });
}

#[test]
fn a_chain_of_100_000_runs_in_pieces_of_one_plan() {
    let rt = cpu();
    let mut x = Tensor::from_slice(&rt, &[0.0_f32, 1000.0], [2]);
    for _ in 0..100_000 {
        x += 1.0;
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [100_000.0, 101_000.0]);
    let planned = rt.tensor_stats().planned;
    assert!(planned <= 4, "{planned} plans");
}

#[test]
fn a_graph_without_depth_runs_in_pieces_too() {
    on_each(|rt| {
        let x = Tensor::from_slice(rt, &[1.0_f32, 2.0], [2]);
        let mut terms: Vec<Tensor> = (0..1500).map(|_| x.exp().log() + 1.0).collect();
        while terms.len() > 1 {
            let pairs = terms.chunks(2);
            terms = pairs
                .map(|pair| if pair.len() == 2 { &pair[0] + &pair[1] } else { pair[0].clone() })
                .collect();
        }
        close(&terms[0], &[3000.0, 4500.0]);
    });
}

#[test]
fn tensors_outlive_what_they_are_made_of_in_any_order() {
    on_each(|rt| {
        let before = rt.pool().usage().0;
        let x = Tensor::from_slice(rt, &[1.0_f32, 2.0, 3.0], [3]);
        let (a, b) = (&x + 1.0, &x * 3.0);
        let (c, d) = (&a + &b, a.sum(..));
        drop((x, a));
        close(&c, &[5.0, 9.0, 13.0]);
        drop((b, c));
        close(&d, &[9.0]);
        // Memory of a tensor that goes right after its run was recorded is not given away early.
        let mut y = Tensor::from_slice(rt, &[1.0_f32; 1000], [1000]);
        for turn in 0..50 {
            let next = &y + 1.0;
            next.realize().unwrap();
            y = next;
            let other = Tensor::from_slice(rt, &[turn as f32; 1000], [1000]);
            drop((&other * 0.5).realize().cloned());
        }
        close(&y.narrow(0, ..2), &[51.0, 51.0]);
        close(&y.max(..), &[51.0]);
        drop((y, d));
        rt.batcher().flush_all().unwrap();
        let kept = rt.pool().usage().0 - before;
        assert!(kept < 1 << 20, "{kept} bytes are held by plans alone");
    });
}

#[test]
fn threads_share_tensors_and_plans() {
    on_each(|rt| {
        let x = Tensor::from_slice(rt, &[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
        let shared = x.matmul(&x);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (x, shared) = (&x, &shared);
                scope.spawn(move || {
                    let mut y = x + thread;
                    for _ in 0..20 {
                        y = &y * 0.5 + shared;
                        y.realize().unwrap();
                    }
                    // y = (x + thread) / 2^20 + 2 * (1 - 2^-20) * shared
                    let small = 0.5_f32.powi(20);
                    let shared = [7.0, 10.0, 15.0, 22.0];
                    let want: Vec<f32> = (1..5)
                        .zip(shared)
                        .map(|(x, s)| (x + thread) as f32 * small + 2.0 * (1.0 - small) * s)
                        .collect();
                    close(&y, &want);
                });
            }
        });
        close(&shared, &[7.0, 10.0, 15.0, 22.0]);
    });
}

#[test]
fn out_of_memory_is_an_error_and_survived() {
    let builder = Runtime::builder().device("cpu").memory_budget(Some(4 << 20));
    let rt = Arc::new(builder.build().unwrap());
    let x = Tensor::ones(&rt, [2 << 20]) + Tensor::arange(&rt, 0.0, 1.0, 1.0);
    let error = x.to_vec::<f32>().unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
    assert!(error.to_string().contains("add at tests/it/on_device/tensor_runs.rs:"), "{error}");
    let upload = Tensor::from_slice(&rt, &vec![0.0_f32; 2 << 20], [2 << 20]);
    assert!(upload.check().unwrap_err().is_out_of_memory());
    // Operations that fit still run repeatedly, since dropped memory is reused.
    for turn in 0..20 {
        let x = Tensor::full(&rt, [100_000], turn as f32) + Tensor::arange(&rt, 0.0, 1e5, 1.0);
        close(&x.narrow(0, 99_999..), &[99_999.0 + turn as f32]);
    }
}

#[test]
fn a_failed_run_never_looks_like_a_result() {
    let device = NullProvider::device(&OpenOptions::default());
    let rt = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let x = Tensor::from_slice(&rt, &[1.0_f32; 4], [4]);
    let y = &x + 1.0;
    y.realize().unwrap();
    // Takes the prepared work away under the queue: its submit fails.
    for index in 0..4 {
        let id = warploom::provider::PreparedId { index, generation: 0 };
        device.free(warploom::provider::Resource::Prepared(id));
    }
    assert!(rt.batcher().flush().is_err());
    let first = y.to_vec::<f32>().unwrap_err().to_string();
    assert!(first.contains("the run that computes it failed"), "{first}");
    let after = (&y * 2.0).to_vec::<f32>().unwrap_err().to_string();
    assert!(after.contains("add at tests/it/on_device/tensor_runs.rs:"), "{after}");
    // What does not depend on it runs.
    x.to_vec::<f32>().unwrap();
}

#[test]
fn plans_whose_memory_is_needed_go() {
    let builder = Runtime::builder().device("cpu").memory_budget(Some(8 << 20));
    let rt = Arc::new(builder.build().unwrap());
    // Products of products: intermediates of up to 400 kB.
    let turn = |rows: usize| {
        let w = Tensor::full(&rt, [25, 25], 0.04);
        let x = Tensor::full(&rt, [rows * 100, 25], 1.0).matmul(&w).matmul(&w).mean(1);
        close(&x.narrow(0, ..1), &[1.0]);
    };
    (1..40).for_each(turn);
    let stats = rt.tensor_stats();
    assert!(stats.planned == 39 && (1..39).contains(&stats.kept), "{stats:?}");
    // The last plan is still cached.
    turn(39);
    assert_eq!(rt.tensor_stats().planned, stats.planned);
}

#[test]
fn a_lost_device_is_reported_as_such() {
    use warploom::webgpu::{self, wgpu};
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let Some(adapter) = adapters.first() else {
        return crate::skip(crate::Need::WebGpu, "wgpu found no adapter");
    };
    let (gpu, queue) = block_on(adapter.request_device(&Default::default())).unwrap();
    let device = webgpu::Provider::from_device(gpu.clone(), queue, &OpenOptions::default());
    let rt = Runtime::on(device, SyncMode::Lazy, None).unwrap();
    let x = Tensor::from_slice(&rt, &[1.0_f32, 2.0], [2]);
    let y = &x + 1.0;
    close(&y, &[2.0, 3.0]);
    let z = &y * 2.0;
    z.realize().unwrap();
    gpu.destroy();
    for tensor in [&x, &y, &z, &(&z + 1.0)] {
        let error = tensor.to_vec::<f32>().unwrap_err();
        assert!(error.is_device_lost(), "{error}");
    }
}

/// An application draws from a result where it lies: it opens the device, and reads the buffer of a
/// tensor in a submit of its own.
#[test]
fn an_application_reads_the_memory_of_a_tensor_on_its_own_device() {
    use warploom::webgpu::{Provider, wgpu};
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let Some(adapter) = adapters.first() else {
        return crate::skip(crate::Need::WebGpu, "wgpu found no adapter");
    };
    let (gpu, queue) = block_on(adapter.request_device(&Provider::descriptor(adapter))).unwrap();
    let device = Provider::from_device(gpu.clone(), queue.clone(), &OpenOptions::default());
    let rt = Runtime::on(device, SyncMode::Lazy, None).unwrap();
    let limit = rt.device().profile().max_buffer_bytes;
    assert_eq!(limit, adapter.limits().max_buffer_size);
    assert_eq!(Provider::gpu_of(&**rt.device()), Some(gpu.clone()));
    let x = Tensor::from_slice(&rt, &[1.0_f32, 2.0, 3.0, 4.0], [4]);
    let y = &x * 2.0;
    assert!(y.buffer().unwrap().is_none());
    y.realize().unwrap();
    rt.batcher().flush().unwrap();
    let range = y.buffer().unwrap().unwrap();
    let buffer = Provider::buffer_of(&**rt.device(), range).unwrap();
    let read = gpu.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = gpu.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&buffer, range.offset, &read, 0, 16);
    queue.submit([encoder.finish()]);
    read.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    gpu.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let mapped = read.get_mapped_range(..).unwrap();
    assert_eq!(mapped.to_vec(), bytes(&[2.0, 4.0, 6.0, 8.0]));
    // No device of another provider has one.
    let cpu = Runtime::builder().device("cpu").build().unwrap();
    assert!(Provider::gpu_of(&**cpu.device()).is_none());
    assert!(Provider::buffer_of(&**cpu.device(), range).is_none());
}

#[test]
fn eager_runs_give_the_same_numbers() {
    for (_, lazy) in crate::devices::every(false) {
        let device = lazy.device().profile().id();
        let rt = Runtime::builder().device(device).sync(SyncMode::Eager).build().unwrap();
        let x = Tensor::from_slice(&rt, &[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
        close(&(x.matmul(&x) + 1.0).sum(-1), &[19.0, 39.0]);
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A graph planned once runs with the caller's buffers and workspace, again and again.
#[test]
fn a_plan_runs_with_the_callers_buffers() {
    let mut graph = Graph::new("bound");
    let x = graph.input("x", Shape::new([2, 4]), DType::F32);
    let by = graph.input("by", Shape::new([1]), DType::F32);
    let w = graph.weight("w", Shape::new([3, 4]), Format::F32);
    let product = graph.add(Op::linear(), &[x, w]).unwrap();
    let scaled = graph.add(Op::Binary(BinaryOp::Mul), &[product, by]).unwrap();
    let inner = graph.add(Op::Softmax, &[scaled]).unwrap();
    let y = graph.add(Op::Unary(UnaryOp::Log), &[inner]).unwrap();
    graph.output("y", y).unwrap();
    // The same node again, a view, an input: each is copied to its output.
    graph.output("again", y).unwrap();
    let turned = graph.add(Op::Transpose(vec![1, 0]), &[scaled]).unwrap();
    graph.output("turned", turned).unwrap();
    graph.output("same", x).unwrap();
    graph.output("host", scaled).unwrap();
    on_each(|rt| {
        let mut bound = Bound::all(&graph);
        bound.inputs.remove("by");
        bound.outputs.remove("host");
        let options = Options { bound, ..Options::new(rt.registry()) };
        let profile = rt.device().profile();
        let plan = Plan::new(&graph, &ShapeClass::new(), profile, &options).unwrap();
        let instance = Instance::unbound(rt, plan, Workspace::Bound).unwrap();
        let take = |size: u64| rt.pool().take(size, Usage::Working).unwrap();
        let filled = |values: &[f32]| {
            let buffer = take(values.len() as u64 * 4);
            rt.device().write(buffer.range(), &bytes(values)).unwrap();
            buffer
        };
        let workspace: Vec<PooledBuffer> =
            instance.plan().workspace().into_iter().map(take).collect();
        assert!(!workspace.is_empty());
        let weight = filled(&[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        for shift in [0.0, 1.0] {
            let values: Vec<f32> = (0..8).map(|i| i as f32 + shift).collect();
            let x = filled(&values);
            let outputs = [("y", 32), ("again", 32), ("turned", 32), ("same", 32)];
            let outputs = outputs.map(|(name, size)| (name.to_string(), take(size)));
            let bindings = Bindings {
                inputs: [("by".to_string(), bytes(&[0.5]))].into(),
                buffers: [("x".to_string(), x.range()), ("w".to_string(), weight.range())].into(),
                outputs: outputs.iter().map(|(n, buffer)| (n.clone(), buffer.range())).collect(),
                workspace: workspace.iter().map(PooledBuffer::range).collect(),
                ..Bindings::default()
            };
            let host = instance.read_with(bindings).unwrap();
            let rows = |r: f32| [r / 2.0, (r + 1.0) / 2.0, (2.0 * r + 5.0) / 2.0];
            let (a, b) = (rows(shift), rows(4.0 + shift));
            assert_eq!(host, [bytes(&[a, b].concat())]);
            let log = |row: [f32; 3]| {
                let sum = row.map(f32::exp).iter().sum::<f32>().ln();
                row.map(|v| v - sum)
            };
            let read = |i: usize, count: u64| download(rt, &outputs[i].1, count);
            let want = [log(a), log(b)].concat();
            for output in [read(0, 24), read(1, 24)] {
                let near = output.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{output:?} and {want:?}");
            }
            assert_eq!(read(2, 24), [a[0], b[0], a[1], b[1], a[2], b[2]]);
            assert_eq!(read(3, 32), values);
        }
    });
}

fn download(rt: &Runtime, buffer: &PooledBuffer, bytes: u64) -> Vec<f32> {
    use warploom::provider::{Args, Command, Recording, Resource, SlotRange};
    use warploom_core::base::Dim;
    let mut recording = Recording { label: "download".into(), ..Recording::default() };
    let slot = recording.slot("buffer", bytes);
    let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(bytes) };
    recording.commands.push(Command::Download { from });
    let range = BufferRange { bytes, ..buffer.range() };
    let prepared = rt.device().prepare(&recording, &[Some(range)]).unwrap();
    let ticket = rt.device().submit(&[(prepared, Args::default())]).unwrap();
    let done = block_on(rt.device().wait(ticket)).unwrap();
    rt.device().free(Resource::Prepared(prepared));
    let (words, _) = done.downloads[0].as_chunks();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
