//! Tests of the whole device, and the harness of the kernel tests.

use super::*;
use warploom_core::base::platform::block_on;
use warploom_core::base::{Dim, Symbol, SymbolValues};
use warploom_hal::*;
use warploom_kernels::{Access, AssetSpec, KernelSpec, catalogue};

/// Bits of an element that no kernel wrote.
pub(super) const POISON: u32 = 0x7fc0_dead;

/// Opens a device for every instruction set of this machine, with one and with three threads.
pub(super) fn devices() -> Vec<Arc<dyn Device>> {
    let sets = super::Provider::instruction_sets();
    let with = |set: &str, threads| {
        let options = OpenOptions { threads: Some(threads), ..OpenOptions::default() };
        super::Provider::device_with(set, &options).unwrap()
    };
    sets.iter().flat_map(|set| [with(set, 1), with(set, 3)]).collect()
}

/// Launches a kernel. `inputs` are the bytes of the read bindings; the output has `out` elements
/// that start as poison. Returns the bits of the output.
pub(super) fn launch(
    device: &dyn Device,
    spec: &KernelSpec,
    params: &[u32],
    inputs: &[Vec<u8>],
    out: usize,
) -> Result<Vec<u32>> {
    launch_many(device, spec, params, inputs, &[out]).map(|mut outs| outs.remove(0))
}

/// Same as [`launch`], for any number of outputs.
pub(super) fn launch_many(
    device: &dyn Device,
    spec: &KernelSpec,
    params: &[u32],
    inputs: &[Vec<u8>],
    outs: &[usize],
) -> Result<Vec<Vec<u32>>> {
    block_on(device.compile(spec))?;
    let mut work = Recording { label: "test".into(), ..Recording::default() };
    let kernel = work.kernel(spec.clone());
    let block = work.param_block(ParamBlock(params.iter().map(|w| Word::Bits(*w)).collect()));
    let (mut slots, mut bindings) = (Vec::new(), smallvec::SmallVec::new());
    let poison = |out: &usize| std::iter::repeat_n(POISON.to_le_bytes(), *out).flatten().collect();
    let poison: Vec<Vec<u8>> = outs.iter().map(poison).collect();
    for (i, bytes) in inputs.iter().chain(&poison).enumerate() {
        let size = bytes.len().next_multiple_of(4).max(4) as u64;
        let access = if i < inputs.len() { Access::Read } else { Access::ReadWrite };
        let slot = work.slot(format!("b{i}"), size);
        let buffer = device.alloc(size, Usage::Working)?;
        let range = BufferRange { buffer, offset: 0, bytes: size };
        device.write(range, bytes)?;
        slots.push(Some(range));
        bindings.push(Binding { slot, offset: 0, bytes: size, access });
    }
    let grid = [Dim::new(1), Dim::new(1), Dim::new(1)];
    let label = spec.name().to_string();
    let dispatch = Dispatch { kernel, params: block, bindings, grid, label };
    work.commands.push(Command::Dispatch(dispatch));
    for (i, out) in outs.iter().enumerate() {
        let (slot, bytes) = ((inputs.len() + i) as u32, Dim::from(*out as u64 * 4));
        let from = SlotRange { slot, offset: Dim::new(0), bytes };
        work.commands.push(Command::Download { from });
    }
    let id = device.prepare(&work, &slots)?;
    let ticket = device.submit(&[(id, Args::default())])?;
    let done = block_on(device.wait(ticket));
    slots.iter().flatten().for_each(|r| device.free(Resource::Buffer(r.buffer)));
    device.free(Resource::Prepared(id));
    let word = |c: &[u8]| u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
    let words = |bytes: &Vec<u8>| bytes.chunks_exact(4).map(word).collect();
    Ok(done?.downloads.iter().map(words).collect())
}

/// Launches a kernel on every device and checks its output: element `i` must be within `tolerance`
/// of `want[i]`, or not written if that is `None`.
pub(super) fn check(
    name: &str,
    params: &[u32],
    inputs: &[Vec<u8>],
    want: &[Option<f64>],
    tolerance: f64,
) {
    let spec = KernelSpec::Asset(AssetSpec::new(name));
    for device in devices() {
        let got = launch(&*device, &spec, params, inputs, want.len()).unwrap();
        let place =
            format!("{name} {} x{}", device.profile().driver, device.profile().compute_units);
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            match want {
                None => assert_eq!(*got, POISON, "{place}: element {i} was written"),
                Some(want) => {
                    let got = f64::from(f32::from_bits(*got));
                    let close = (got - want).abs() <= tolerance || got == *want;
                    assert!(close, "{place}: element {i} is {got}, not {want}");
                }
            }
        }
    }
}

/// Returns deterministic pseudo-random values in -1..1.
pub(super) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the values as little-endian bytes.
pub(super) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Returns the values as little-endian bytes.
pub(super) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

const N: Symbol = Symbol::new("n");

fn open(budget: u64) -> Arc<dyn Device> {
    let options = OpenOptions { memory_budget: Some(budget), threads: Some(2), floor: false };
    super::Provider::device(&options)
}

pub(super) fn whole(buffer: BufferId, bytes: u64) -> BufferRange {
    BufferRange { buffer, offset: 0, bytes }
}

/// Builds a recording that uploads `n` values, writes their softmax to a second slot, copies,
/// clears and downloads.
pub(super) fn softmax_recording() -> Recording {
    let mut work = Recording { label: "soft".into(), ..Recording::default() };
    let kernel = work.kernel(KernelSpec::Asset(AssetSpec::new("softmax")));
    let (x, y) = (work.slot("x", 64), work.slot("y", 128));
    let n = Dim::symbol(N);
    let zero = || Word::Bits(0);
    let block = vec![Word::Bits(1), Word::dim(&n).unwrap(), zero(), zero(), zero()];
    let params = work.param_block(ParamBlock(block));
    let range = |slot, offset: i64, bytes: Dim| SlotRange { slot, offset: Dim::new(offset), bytes };
    let bytes = n.clone() * Dim::new(4);
    let bind = |slot, access| Binding { slot, offset: 0, bytes: 64, access };
    work.commands = vec![
        Command::Upload { to: range(x, 0, bytes.clone()), source: UploadSource::Arg(0) },
        Command::Timestamp,
        Command::Dispatch(Dispatch {
            kernel,
            params,
            bindings: smallvec::smallvec![bind(x, Access::Read), bind(y, Access::ReadWrite)],
            grid: [n.clone(), Dim::new(1), Dim::new(1)],
            label: "soft.0".into(),
        }),
        Command::Timestamp,
        Command::Copy { from: range(y, 0, bytes.clone()), to: range(y, 64, bytes.clone()) },
        Command::Clear { range: range(y, 0, Dim::new(4)) },
        Command::Download { from: range(y, 0, Dim::new(8)) },
        Command::Download { from: range(y, 64, bytes) },
    ];
    work
}

/// Builds the same with a kernel that reads past its binding.
pub(super) fn failing_recording() -> Recording {
    let mut work = softmax_recording();
    work.params[0].0[1] = Word::Bits(1000);
    work
}

pub(super) fn softmax_args(values: &[f32]) -> Args {
    Args {
        symbols: SymbolValues::new().with(N, values.len() as u64),
        uploads: vec![bytes(values)],
        buffers: Vec::new(),
    }
}

#[test]
fn every_catalogue_kernel_has_a_function() {
    let device = open(1 << 20);
    for entry in catalogue::CATALOGUE.iter().filter(|entry| entry.is_on_cpu()) {
        for format in entry.formats().filter(|format| !format.is_kept()) {
            let spec =
                KernelSpec::Asset(AssetSpec::new(catalogue::family_name(entry.name, format)));
            block_on(device.compile(&spec)).unwrap();
        }
    }
    let unknown = KernelSpec::Asset(AssetSpec::new("matvec_q9"));
    assert!(block_on(device.compile(&unknown)).unwrap_err().is_unsupported());
}

#[test]
fn the_profile_says_what_it_is() {
    let profiles = block_on(warploom_hal::Provider::list(&super::Provider)).unwrap();
    let [profile] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!((profile.id().as_str(), profile.kind), ("cpu:0", DeviceKind::Cpu));
    assert!(profile.shared_memory && !profile.name.is_empty());
    assert_eq!(profile.driver, super::Provider::instruction_sets()[0]);
    let missing =
        block_on(warploom_hal::Provider::open(&super::Provider, 1, OpenOptions::default()));
    assert!(missing.err().unwrap().is_invalid());
}

#[test]
fn a_recording_runs_again_with_other_sizes() {
    let device = open(1 << 20);
    let work = softmax_recording();
    let (x, y) =
        (device.alloc(64, Usage::Working).unwrap(), device.alloc(128, Usage::Working).unwrap());
    let slots = [Some(whole(x, 64)), None];
    assert!(device.prepare(&work, &slots).unwrap_err().to_string().contains("not compiled"));
    block_on(device.compile(&work.kernels[0])).unwrap();
    let id = device.prepare(&work, &slots).unwrap();
    for n in [1, 3, 16] {
        let mut args = softmax_args(&vec![0.5; n]);
        args.buffers.push((1, whole(y, 128)));
        let ticket = device.submit(&[(id, args)]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        assert_eq!(done.downloads[0][..4], [0; 4]);
        assert_eq!(done.downloads[1], bytes(&vec![1.0 / n as f32; n]));
        assert!(done.timestamps[0] <= done.timestamps[1]);
        let twice = block_on(device.wait(ticket)).unwrap_err();
        assert!(twice.is_invalid(), "{twice}");
    }
    let counters = device.counters();
    assert_eq!((counters.dispatches, counters.submits, counters.compiles), (3, 3, 1));
    assert_eq!((counters.allocated_bytes, counters.uploaded_bytes), (192, 80));
    // An empty grid launches nothing and an empty download is empty.
    let mut none = softmax_args(&[]);
    none.buffers.push((1, whole(y, 128)));
    let ticket = device.submit(&[(id, none)]).unwrap();
    assert!(block_on(device.wait(ticket)).unwrap().downloads[1].is_empty());
    assert_eq!(device.counters().dispatches, 3);
}

#[test]
fn errors_before_a_submit_are_returned_at_once() {
    let device = open(1 << 20);
    let work = softmax_recording();
    block_on(device.compile(&work.kernels[0])).unwrap();
    let (x, y) =
        (device.alloc(64, Usage::Working).unwrap(), device.alloc(128, Usage::Working).unwrap());
    let error = device.prepare(&work, &[Some(whole(x, 60)), None]).unwrap_err().to_string();
    assert!(error.contains("slot \"x\" needs 64 bytes at a multiple of 4, given 60"), "{error}");
    let id = device.prepare(&work, &[Some(whole(x, 64)), Some(whole(y, 128))]).unwrap();
    let open_slot = device.prepare(&work, &[Some(whole(x, 64)), None]).unwrap();
    let error = device.submit(&[(open_slot, softmax_args(&[1.0]))]).unwrap_err().to_string();
    assert!(error.contains("open slot \"y\" has no buffer"), "{error}");
    let error = device.submit(&[(id, Args::default())]).unwrap_err().to_string();
    assert!(error.contains("symbol n is not bound"), "{error}");
    device.free(Resource::Buffer(x));
    let error = device.submit(&[(id, softmax_args(&[1.0]))]).unwrap_err().to_string();
    assert!(
        error.contains("\"soft\": slot \"x\": buffer 0 of generation 0 is not live"),
        "{error}"
    );
    device.free(Resource::Prepared(id));
    let error = device.submit(&[(id, softmax_args(&[1.0]))]).unwrap_err().to_string();
    assert!(error.contains("prepared work 0 of generation 0 is not live"), "{error}");
    assert!(device.write(whole(y, 8), &[0; 12]).unwrap_err().is_invalid());
    assert!(device.alloc(2 << 20, Usage::Weights).unwrap_err().is_out_of_memory());
    assert!(device.alloc(64, Usage::Weights).is_ok());
    let mut bad = softmax_recording();
    let Command::Dispatch(dispatch) = &mut bad.commands[2] else { panic!() };
    (dispatch.bindings[0].offset, dispatch.bindings[0].bytes) = (4, 60);
    let x = device.alloc(64, Usage::Working).unwrap();
    let slots = [Some(whole(x, 64)), Some(whole(y, 128))];
    let error = device.prepare(&bad, &slots).unwrap_err().to_string();
    assert!(error.contains("binding 0 starts at byte 4, not a multiple of 64"), "{error}");
    // Sizes that change are checked at each submit, before any of it runs.
    let id = device.prepare(&work, &slots).unwrap();
    let error = device.submit(&[(id, softmax_args(&[1.0; 17]))]).unwrap_err().to_string();
    assert!(error.contains("\"soft\"") && error.contains("68 bytes"), "{error}");
}

#[test]
fn a_failure_is_reported_once_and_the_device_goes_on() {
    let device = open(1 << 20);
    let work = softmax_recording();
    block_on(device.compile(&work.kernels[0])).unwrap();
    let (x, y) =
        (device.alloc(64, Usage::Working).unwrap(), device.alloc(128, Usage::Working).unwrap());
    let id = device.prepare(&work, &[Some(whole(x, 64)), Some(whole(y, 128))]).unwrap();
    let bad = device.prepare(&failing_recording(), &[Some(whole(x, 64)), Some(whole(y, 128))]);
    let failed = device.submit(&[(bad.unwrap(), softmax_args(&[1.0]))]).unwrap();
    let good = device.submit(&[(id, softmax_args(&[3.0]))]).unwrap();
    assert!(good > failed);
    let error = block_on(device.wait(good)).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("\"soft.0\""), "{error}");
    assert_eq!(block_on(device.wait(good)).unwrap().downloads[1], bytes(&[1.0]));
    assert!(block_on(device.wait(failed)).is_err());
    assert!(block_on(device.wait(Ticket(1 << 20))).is_err());
}

#[test]
fn parameters_that_pass_a_binding_are_errors_for_every_kernel() {
    // Small inputs with sizes far beyond them, in every kernel and at every parameter.
    let device = open(1 << 32);
    for entry in catalogue::CATALOGUE.iter().filter(|entry| entry.is_on_cpu()) {
        for format in entry.formats().filter(|format| !format.is_kept()) {
            let spec =
                KernelSpec::Asset(AssetSpec::new(catalogue::family_name(entry.name, format)));
            let inputs = vec![bytes(&numbers(256, 1)); entry.bindings.len() - 1];
            for place in 0..entry.params.len() {
                for value in [u32::MAX, 1 << 20, 0, 7] {
                    let mut params = vec![1; entry.params.len()];
                    params[place] = value;
                    // Any parameters return, and no access leaves the bindings.
                    let result = launch(&*device, &spec, &params, &inputs, 4);
                    if let Err(error) = result {
                        assert!(error.is_invalid(), "{} {params:?}: {error}", entry.name);
                    }
                }
            }
            let params = vec![u32::MAX; entry.params.len()];
            let error = launch(&*device, &spec, &params, &inputs, 4).unwrap_err();
            assert!(error.is_invalid(), "{}: {error}", entry.name);
        }
    }
}

/// Launches a kernel with one buffer, initially `data`, in all bindings, and returns its contents.
pub(super) fn launch_within(
    device: &dyn Device,
    spec: &KernelSpec,
    params: &[u32],
    data: &[f32],
) -> Vec<f32> {
    block_on(device.compile(spec)).unwrap();
    let size = data.len() as u64 * 4;
    let mut work = Recording::default();
    let kernel = work.kernel(spec.clone());
    let params = work.param_block(ParamBlock(params.iter().map(|w| Word::Bits(*w)).collect()));
    let slot = work.slot("all", size);
    let bind = |access| Binding { slot, offset: 0, bytes: size, access };
    let accesses = catalogue::interface(spec).unwrap().bindings;
    work.commands.push(Command::Dispatch(Dispatch {
        kernel,
        params,
        bindings: accesses.into_iter().map(bind).collect(),
        grid: [Dim::new(1), Dim::new(1), Dim::new(1)],
        label: "within".into(),
    }));
    let all = SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(size) };
    work.commands.push(Command::Download { from: all });
    let buffer = device.alloc(size, Usage::Working).unwrap();
    device.write(whole(buffer, size), &bytes(data)).unwrap();
    let id = device.prepare(&work, &[Some(whole(buffer, size))]).unwrap();
    let ticket = device.submit(&[(id, Args::default())]).unwrap();
    let done = block_on(device.wait(ticket)).unwrap();
    let float = |c: &[u8]| f32::from_le_bytes([c[0], c[1], c[2], c[3]]);
    done.downloads[0].chunks_exact(4).map(float).collect()
}

#[test]
fn a_kernel_reads_its_inputs_as_they_were_before_it() {
    use warploom_core::ir::scalar::BinaryOp;
    use warploom_kernels::{Addressing, FusedExpr, Operand, Output, Schedule, Value};
    let dtype = warploom_core::base::DType::F32;
    let flat = Operand { dtype, addressing: Addressing::Flat, binding: 0 };
    let double = KernelSpec::Fused(FusedExpr {
        rank: 1,
        inputs: vec![flat],
        values: vec![Value::Input(0), Value::Binary(BinaryOp::Add, 0, 0)],
        outputs: vec![Output { operand: flat, value: 1 }],
        schedule: Schedule::Elements { width: 1 },
    });
    let n = 50_000;
    let data = numbers(n + 1, 40);
    for device in devices() {
        // In place, then one element forward, then one element back.
        for (from, to) in [(0, 0), (0, 1), (1, 0)] {
            let params = [n as u32, n as u32, from, to];
            let got = launch_within(&*device, &double, &params, &data);
            let mut want = data.clone();
            (0..n).for_each(|i| want[to as usize + i] = data[from as usize + i] * 2.0);
            assert_eq!(got, want, "{from} {to}");
        }
        let softmax = KernelSpec::Asset(AssetSpec::new("softmax"));
        let inside = launch_within(&*device, &softmax, &[100, 500, 0, 500, 0], &data);
        let out = launch(&*device, &softmax, &[100, 500, 0, 500, 0], &[bytes(&data)], 50_000);
        let out: Vec<f32> = out.unwrap().into_iter().map(f32::from_bits).collect();
        assert_eq!(inside[..50_000], out);
    }
}
