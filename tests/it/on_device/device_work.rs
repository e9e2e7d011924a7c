//! A device executes a recording in order: the same for every GPU provider.

use warploom::kernel::Access::{Read, ReadWrite};
use warploom::kernel::{AssetSpec, KernelSpec};
use warploom::provider::{
    Args, BufferRange, Command, Counters, DeviceKind, OpenOptions, ParamBlock, Recording, Resource,
    UploadSource, Usage, Word,
};
use warploom::webgpu;
use warploom_core::base::platform::block_on;
use warploom_core::base::{Dim, Symbol, SymbolValues};

use crate::webgpu_host::*;

const N: Symbol = Symbol::new("n");

fn args(n: u64) -> Args {
    Args { symbols: SymbolValues::new().with(N, n), ..Args::default() }
}

fn groups() -> Dim {
    Dim::symbol(N).ceil_div(&Dim::new(64))
}

#[test]
fn uploads_dispatches_copies_clears_and_downloads() {
    on_each(OpenOptions::default(), |device| {
        for (elements, floor) in [(1usize, false), (63, true), (1000, true), (1000, false)] {
            let device = if floor { at_floor(&device) } else { device.clone() };
            let bytes = 4 * elements as u64;
            let mut work = Recording { label: "all commands".into(), ..Default::default() };
            let (x, y, z) = (work.slot("x", bytes), work.slot("y", bytes), work.slot("z", bytes));
            let all = |slot| part(slot, 0, bytes as i64);
            work.commands.push(Command::Upload { to: all(x), source: UploadSource::Arg(0) });
            let block = params(Word::Bits(elements as u32), 2.0, 1.0);
            let grid = Dim::new(elements.div_ceil(64) as i64);
            dispatch(&mut work, affine(), block, &[(x, Read), (y, ReadWrite)], grid);
            work.commands.push(Command::Copy { from: all(y), to: all(z) });
            work.commands.push(Command::Clear { range: part(y, 0, 4) });
            download(&mut work, all(y));
            download(&mut work, all(z));
            download(&mut work, part(z, 0, 0));

            let input: Vec<f32> = (0..elements).map(|i| i as f32 - 7.0).collect();
            let mut want: Vec<f32> = input.iter().map(|v| v * 2.0 + 1.0).collect();
            let slots =
                [(); 3].map(|()| Some(whole(device.alloc(bytes, Usage::Working).unwrap(), bytes)));
            let uploads = vec![to_bytes(&input)];
            let got = run(&*device, &work, &slots, Args { uploads, ..Args::default() });
            assert_eq!(got[1], want, "{elements}");
            want[0] = 0.0;
            assert_eq!(got[0], want, "{elements}");
            assert_eq!(got[2], [0.0; 0]);
        }
    });
}

#[test]
fn memory_starts_as_zeros_and_writes_of_odd_length_fill_the_last_word() {
    on_each(OpenOptions::default(), |device| {
        let buffer = device.alloc(10, Usage::Weights).unwrap();
        let at = |offset, bytes| BufferRange { buffer, offset, bytes };
        device.write(at(4, 5), &[1, 2, 3, 4, 5]).unwrap();
        let mut work = Recording::default();
        let slot = work.slot("w", 10);
        download(&mut work, part(slot, 0, 12));
        let prepared = device.prepare(&work, &[Some(at(0, 10))]).unwrap();
        let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        assert_eq!(done.downloads, [[0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0]]);
        for (range, bytes) in
            [(at(8, 4), 4), (at(2, 4), 4), (at(0, 4), 3), (at(u64::MAX - 3, 4), 4)]
        {
            let error = device.write(range, &vec![0; bytes]).unwrap_err();
            assert!(error.is_invalid(), "{error}");
        }
    });
}

#[test]
fn one_submit_of_several_works_keeps_their_order() {
    on_each(OpenOptions::default(), |device| {
        // Each work uploads x, then y = 2 y + x n: any early write is visible in y.
        let mut work = Recording { label: "sum".into(), ..Default::default() };
        let (x, y) = (work.slot("x", 256), work.slot("y", 256));
        let add = source(
            "add_times_n",
            "struct P { n: u32, a: u32, b: u32, c: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read> x: array<f32>;
         @group(0) @binding(2) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             y[id.x] = y[id.x] * 2.0 + x[id.x] * f32(p.n);
         }",
            &[Read, ReadWrite],
            4,
        );
        work.commands.push(Command::Upload { to: part(x, 0, 256), source: UploadSource::Arg(0) });
        let block = warploom::provider::ParamBlock(vec![Word::Dim(Dim::symbol(N))]);
        dispatch(&mut work, add.clone(), block.clone(), &[(x, Read), (y, ReadWrite)], Dim::new(1));
        // Not at the head: must not overtake the dispatch before it.
        work.commands.push(Command::Upload { to: part(x, 0, 256), source: UploadSource::Arg(1) });
        dispatch(&mut work, add, block, &[(x, Read), (y, ReadWrite)], Dim::new(1));
        download(&mut work, part(y, 0, 256));
        compile(&*device, &work);
        let slots = [Some(floats(&*device, &[0.0; 64])), Some(floats(&*device, &[0.0; 64]))];
        let first = device.prepare(&work, &slots).unwrap();
        let second = device.prepare(&work, &slots).unwrap();
        let with = |n, a: f32, b: f32| Args {
            uploads: vec![to_bytes(&[a; 64]), to_bytes(&[b; 64])],
            ..args(n)
        };
        let list = [
            (first, with(1, 1.0, 2.0)),
            (first, with(2, 1.0, 2.0)),
            (second, with(3, 1.0, 2.0)),
            (first, with(1, 7.0, 8.0)),
        ];
        for round in 0..2 {
            let ticket = device.submit(&list).unwrap();
            let done = block_on(device.wait(ticket)).unwrap();
            let got: Vec<f32> = done.downloads.iter().map(|bytes| to_floats(bytes)[63]).collect();
            let mut want = Vec::new();
            let mut y = 0.0f32;
            for _ in 0..=round {
                want.clear();
                for term in [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [7.0, 8.0]] {
                    y = (y * 2.0 + term[0]) * 2.0 + term[1];
                    want.push(y);
                }
            }
            assert_eq!(got, want, "round {round}");
        }
    });
}

/// Each run reads the result of the previous one, like tokens do: in one submit, in several, with
/// other work before, between and after, and with a first dispatch that overwrites the download's
/// source.
#[test]
fn runs_of_one_recording_in_a_submit_are_as_those_of_their_own() {
    on_each(OpenOptions::default(), |device| {
        let step = source(
            "step_by_n",
            "struct P { n: u32, a: u32, b: u32, c: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read> x: array<f32>;
         @group(0) @binding(2) var<storage, read> t: array<f32>;
         @group(0) @binding(3) var<storage, read_write> s: array<f32>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             s[id.x] = t[id.x] * 0.5 + x[id.x] + f32(p.n);
         }",
            &[Read, Read, ReadWrite],
            4,
        );
        for overwrites in [false, true] {
            let mut work = Recording { label: "step".into(), ..Default::default() };
            let [x, t, s] = ["x", "t", "s"].map(|name| work.slot(name, 256));
            for half in 0..2u32 {
                let to = part(x, 128 * i64::from(half), 128);
                work.commands.push(Command::Upload { to, source: UploadSource::Arg(half) });
            }
            if overwrites {
                let block = params(Word::Bits(64), 1.0, 0.0);
                dispatch(&mut work, affine_in_place(), block, &[(s, ReadWrite)], Dim::new(1));
            }
            let block = params(Word::Bits(64), 1.0, 0.0);
            dispatch(&mut work, affine(), block, &[(s, Read), (t, ReadWrite)], Dim::new(1));
            let block = ParamBlock(vec![Word::Dim(Dim::symbol(N))]);
            let bound = [(x, Read), (t, Read), (s, ReadWrite)];
            dispatch(&mut work, step.clone(), block, &bound, Dim::new(1));
            // The place of the second depends on the run.
            download(&mut work, part(s, 252, 4));
            let mut moving = part(s, 0, 8);
            moving.offset = Dim::symbol(N) * Dim::new(4);
            download(&mut work, moving);
            compile(&*device, &work);
            let slots = [(); 3].map(|()| Some(floats(&*device, &[0.0; 64])));
            let prepared = device.prepare(&work, &slots).unwrap();
            let mut look = Recording { label: "look".into(), ..Default::default() };
            let (seen_x, seen_s) = (look.slot("x", 256), look.slot("s", 256));
            download(&mut look, part(seen_x, 0, 256));
            download(&mut look, part(seen_s, 0, 256));
            let look = device.prepare(&look, &[slots[0], slots[2]]).unwrap();

            let (mut y, mut number) = ([0.0f32; 64], 0);
            for (before, runs) in [(0, 1), (0, 2), (1, 3), (0, 8), (0, 2), (0, 19), (1, 8)] {
                let (mut list, mut want) = (vec![(look, Args::default()); before], Vec::new());
                if before > 0 {
                    want.extend([vec![number as f32 - 1.0; 64], y.to_vec()]);
                }
                for _ in 0..runs {
                    let (x, n) = (number as f32, number % 60);
                    let half = to_bytes(&[x; 32]);
                    list.push((prepared, Args { uploads: vec![half.clone(), half], ..args(n) }));
                    y = y.map(|v| v * 0.5 + x + n as f32);
                    want.extend([vec![y[63]], y[n as usize..n as usize + 2].to_vec()]);
                    number += 1;
                }
                // The last upload stays in place.
                list.push((look, Args::default()));
                want.extend([vec![number as f32 - 1.0; 64], y.to_vec()]);
                let ticket = device.submit(&list).unwrap();
                let done = block_on(device.wait(ticket)).unwrap();
                let got: Vec<_> = done.downloads.iter().map(|bytes| to_floats(bytes)).collect();
                assert_eq!(got, want, "{before} before {runs} runs, {overwrites}");
            }
        }
    });
}

#[test]
fn sizes_change_from_submit_to_submit() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "symbols".into(), ..Default::default() };
        let (x, y) = (work.slot("x", 4000), work.slot("y", 4000));
        let n = Dim::symbol(N);
        let block = params(Word::dim(&n).unwrap(), 3.0, 0.0);
        dispatch(&mut work, affine(), block, &[(x, Read), (y, ReadWrite)], groups());
        let mut range = part(y, 0, 0);
        range.bytes = n * Dim::new(4);
        download(&mut work, range);
        compile(&*device, &work);
        let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let slots = [Some(floats(&*device, &input)), Some(floats(&*device, &[0.0; 1000]))];
        let prepared = device.prepare(&work, &slots).unwrap();
        let before = device.counters();
        for n in [1u64, 64, 65, 0, 1000] {
            let ticket = device.submit(&[(prepared, args(n))]).unwrap();
            let done = block_on(device.wait(ticket)).unwrap();
            let want: Vec<f32> = input[..n as usize].iter().map(|v| v * 3.0).collect();
            assert_eq!(to_floats(&done.downloads[0]), want, "n = {n}");
        }
        // Zero workgroups launch nothing.
        assert_eq!(device.counters().dispatches - before.dispatches, 4);
        let unbound = device.submit(&[(prepared, Args::default())]).unwrap_err();
        assert!(unbound.is_invalid() && unbound.to_string().contains("symbol n"), "{unbound}");
        let past = device.submit(&[(prepared, args(1001))]).unwrap_err();
        assert!(past.is_invalid() && past.to_string().contains("slot \"y\""), "{past}");
        let huge = device.submit(&[(prepared, args(64 * 5_000_000))]).unwrap_err();
        assert!(huge.is_invalid() && huge.to_string().contains("dispatch \"affine\""), "{huge}");
    });
}

#[test]
fn open_slots_take_a_buffer_at_each_submit() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "open".into(), ..Default::default() };
        let (x, y) = (work.slot("x", 256), work.slot("y", 256));
        let block = params(Word::Bits(64), 2.0, 0.0);
        dispatch(&mut work, affine(), block, &[(x, Read), (y, ReadWrite)], Dim::new(1));
        download(&mut work, part(y, 0, 256));
        compile(&*device, &work);
        let out = floats(&*device, &[0.0; 64]);
        let prepared = device.prepare(&work, &[None, Some(out)]).unwrap();
        let inputs: Vec<BufferRange> = (0..12).map(|i| floats(&*device, &[i as f32; 64])).collect();
        // More buffers than bind groups are kept, and each a second time.
        for i in (0..12).chain(0..12) {
            let buffers = vec![(x, inputs[i])];
            let ticket = device.submit(&[(prepared, Args { buffers, ..Args::default() })]).unwrap();
            let done = block_on(device.wait(ticket)).unwrap();
            assert_eq!(to_floats(&done.downloads[0]), [2.0 * i as f32; 64]);
        }
        let submit = |buffers| device.submit(&[(prepared, Args { buffers, ..Args::default() })]);
        for (buffers, word) in [
            (vec![], "has no buffer"),
            (vec![(y, inputs[0])], "not left open"),
            (vec![(x, out)], "share"),
            (vec![(x, BufferRange { offset: 4, bytes: 252, ..inputs[0] })], "needs 256"),
        ] {
            let error = submit(buffers).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(word), "{error}");
        }
    });
}

#[test]
fn copies_within_one_buffer_and_overlaps() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "within".into(), ..Default::default() };
        let slot = work.slot("s", 64);
        work.commands.push(Command::Copy { from: part(slot, 0, 16), to: part(slot, 32, 16) });
        download(&mut work, part(slot, 0, 64));
        let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let range = floats(&*device, &values);
        let mut want = values.clone();
        want.copy_within(0..4, 8);
        assert_eq!(run(&*device, &work, &[Some(range)], Args::default()), [want]);
        work.commands[0] = Command::Copy { from: part(slot, 0, 16), to: part(slot, 12, 16) };
        let prepared = device.prepare(&work, &[Some(range)]).unwrap();
        let error = device.submit(&[(prepared, Args::default())]).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("overlaps"), "{error}");
    });
}

#[test]
fn timestamps_grow() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "timed".into(), ..Default::default() };
        let y = work.slot("y", 256);
        work.commands.push(Command::Timestamp);
        let block = params(Word::Bits(64), 1.0, 1.0);
        dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], Dim::new(1));
        work.commands.push(Command::Timestamp);
        download(&mut work, part(y, 0, 256));
        let slots = [Some(floats(&*device, &[0.0; 64]))];
        compile(&*device, &work);
        if device.profile().has_timestamps {
            let prepared = device.prepare(&work, &slots).unwrap();
            let list = [(prepared, Args::default()), (prepared, Args::default())];
            let ticket = device.submit(&list).unwrap();
            let done = block_on(device.wait(ticket)).unwrap();
            assert_eq!(to_floats(&done.downloads[1]), [2.0; 64]);
            assert_eq!(done.timestamps.len(), 4);
            assert!(done.timestamps[0] > 0 && done.timestamps.is_sorted(), "{:?}", done.timestamps);
            assert!(done.timestamps[3] > done.timestamps[0], "{:?}", done.timestamps);
        }
        let floor = at_floor(&device);
        assert!(!floor.profile().has_timestamps);
        compile(&*floor, &work);
        let slots = [Some(floats(&*floor, &[0.0; 64]))];
        let error = floor.prepare(&work, &slots).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
    });
}

#[test]
fn many_dispatches_share_parameters_and_survive_freed_kernels() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "chain".into(), ..Default::default() };
        let y = work.slot("y", 4096);
        for i in 0..200 {
            let block = params(Word::Bits(1024), 1.0, (i % 3) as f32);
            dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], Dim::new(16));
        }
        download(&mut work, part(y, 0, 4096));
        compile(&*device, &work);
        let slots = [Some(floats(&*device, &[0.0; 1024]))];
        let prepared = device.prepare(&work, &slots).unwrap();
        device.free(Resource::Kernel(affine_in_place()));
        let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
        device.free(Resource::Prepared(prepared));
        let done = block_on(device.wait(ticket)).unwrap();
        let want: f32 = (0..200).map(|i| (i % 3) as f32).sum();
        assert_eq!(to_floats(&done.downloads[0]), [want; 1024]);
        let error = device.prepare(&work, &slots).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("not compiled"), "{error}");
    });
}

#[test]
fn the_noop_device_counts() {
    let device = webgpu::noop_device(&OpenOptions::default());
    assert_eq!(device.profile().kind, DeviceKind::Null);
    let mut work = Recording::default();
    let y = work.slot("y", 256);
    let block = params(Word::Bits(64), 1.0, 1.0);
    dispatch(&mut work, affine_in_place(), block.clone(), &[(y, ReadWrite)], Dim::new(1));
    dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], groups());
    download(&mut work, part(y, 0, 256));
    compile(&*device, &work);
    let slots = [Some(floats(&*device, &[0.0; 64]))];
    let prepared = device.prepare(&work, &slots).unwrap();
    for n in [0, 1, 64] {
        let ticket = device.submit(&[(prepared, args(n))]).unwrap();
        assert_eq!(block_on(device.wait(ticket)).unwrap().downloads[0].len(), 256);
    }
    let want = Counters {
        allocations: 1,
        allocated_bytes: 256,
        dispatches: 5,
        submits: 3,
        waits: 3,
        compiles: 1,
        uploaded_bytes: 256,
        staged_bytes: 256,
        downloaded_bytes: 768,
        peer_bytes: 0,
    };
    assert_eq!(device.counters(), want);
    device.free(Resource::Buffer(slots[0].unwrap().buffer));
    assert_eq!(device.counters().allocated_bytes, 0);
}

/// A device may cache repeated launches as one object: changes must reach them.
#[test]
fn work_that_comes_again_follows_its_arguments() {
    on_each(OpenOptions::default(), |device| {
        let mut work = Recording { label: "again".into(), ..Default::default() };
        let (x, y) = (work.slot("x", 4000), work.slot("y", 4000));
        let n = Word::dim(&Dim::symbol(N)).unwrap();
        // y = x, then twelve times y = 2 y + 1 over the first n elements, in two stretches.
        let all = params(Word::Bits(1000), 1.0, 0.0);
        dispatch(&mut work, affine(), all, &[(x, Read), (y, ReadWrite)], Dim::new(16));
        for i in 0..12 {
            if i == 6 {
                work.commands.push(Command::Copy { from: part(y, 0, 4), to: part(y, 3996, 4) });
            }
            let block = params(n.clone(), 2.0, 1.0);
            dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], groups());
        }
        download(&mut work, part(y, 0, 4000));
        compile(&*device, &work);
        let inputs = [1.0f32, 5.0].map(|value| floats(&*device, &[value; 1000]));
        let out = floats(&*device, &[0.0; 1000]);
        let prepared = device.prepare(&work, &[None, Some(out)]).unwrap();
        let before = device.counters().dispatches;
        let rounds = [(900u64, 0), (900, 0), (64, 1), (0, 1), (999, 0), (1, 1), (0, 0), (900, 1)];
        for (n, which) in rounds {
            let buffers = vec![(x, inputs[which])];
            let ticket = device.submit(&[(prepared, Args { buffers, ..args(n) })]).unwrap();
            let done = block_on(device.wait(ticket)).unwrap();
            let start = [1.0f32, 5.0][which];
            let after = |steps: i32| (start + 1.0) * 2.0f32.powi(steps) - 1.0;
            let mut want = vec![start; 1000];
            want[..n as usize].fill(after(12));
            want[999] = if n == 0 { start } else { after(6) };
            assert_eq!(to_floats(&done.downloads[0]), want, "n = {n} of input {which}");
        }
        let launched = device.counters().dispatches - before;
        assert_eq!(launched, rounds.iter().map(|(n, _)| if *n == 0 { 1 } else { 13 }).sum::<u64>());
    });
}

/// `w += 1` after many rounds of useless work, so the write is late even if the next launch starts early.
const LATE: &str = "
struct P { n: u32, rounds: u32, a: u32, b: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.n) {
        let v = w[id.x];
        var work = v;
        for (var i = 0u; i < p.rounds; i++) { work = fract(work * 0.7 + v); }
        w[id.x] = select(v + 1.0, work, work > 2.0);
    }
}
";

/// Kernels that start while the previous one runs must neither read what it still writes nor write
/// what it still reads. Of the products, one starts early and waits itself; the other starts when
/// all earlier work is complete, since it reads ahead.
#[test]
fn weights_that_the_launch_before_makes_are_read_as_they_are_then() {
    const ROWS: u32 = 256;
    const COLUMNS: u32 = 256;
    const TURNS: u32 = 12;
    on_each(OpenOptions::default(), |device| {
        let software = device.profile().kind == DeviceKind::Software;
        let rounds = if software { 20 } else { 5000 };
        // The weights in a slot that is bound when the work is prepared, or at each submit.
        for open in [false, true] {
            let mut work = Recording { label: "weights in turn".into(), ..Default::default() };
            let w = work.slot("w", u64::from(4 * ROWS * COLUMNS));
            let x = work.slot("x", u64::from(4 * COLUMNS));
            let y = work.slot("y", u64::from(4 * ROWS * 2 * TURNS));
            for turn in 0..TURNS {
                let block = ParamBlock([ROWS * COLUMNS, rounds, 0, 0].map(Word::Bits).to_vec());
                let late = source("late", LATE, &[ReadWrite], 4);
                dispatch(&mut work, late, block, &[(w, ReadWrite)], (ROWS * COLUMNS / 64).into());
                let mut products = [("matvec_f32", 4), ("matmul_f32", 64)];
                // So each comes after the writing launch, before it, and after the other.
                if turn % 2 == 1 {
                    products.reverse();
                }
                for (i, (name, rows)) in products.into_iter().enumerate() {
                    let to = (2 * turn + i as u32) * ROWS;
                    let words = [1, ROWS, COLUMNS, 0, COLUMNS, to, ROWS, 0];
                    let block = ParamBlock(words.map(Word::Bits).to_vec());
                    let product = KernelSpec::Asset(AssetSpec::new(name));
                    let slots = [(w, Read), (x, Read), (y, ReadWrite)];
                    dispatch(&mut work, product, block, &slots, Dim::from(ROWS / rows));
                }
            }
            download(&mut work, part(y, 0, i64::from(4 * ROWS * 2 * TURNS)));
            compile(&*device, &work);
            let weights = floats(&*device, &[0.0; (ROWS * COLUMNS) as usize]);
            let ones = floats(&*device, &[1.0; COLUMNS as usize]);
            let out = floats(&*device, &[0.0; (ROWS * 2 * TURNS) as usize]);
            let slots = [(!open).then_some(weights), Some(ones), Some(out)];
            let prepared = device.prepare(&work, &slots).unwrap();
            // From the second submit on, a provider may replay a recording of the first.
            for round in 0..6 {
                let buffers = if open { vec![(w, weights)] } else { Vec::new() };
                let args = Args { buffers, ..Args::default() };
                let ticket = device.submit(&[(prepared, args)]).unwrap();
                let done = block_on(device.wait(ticket)).unwrap();
                let found = to_floats(&done.downloads[0]);
                for (i, value) in found.into_iter().enumerate() {
                    let weight = round * TURNS + i as u32 / (2 * ROWS) + 1;
                    assert_eq!(value, (weight * COLUMNS) as f32, "number {i} of round {round}");
                }
            }
        }
    });
}
