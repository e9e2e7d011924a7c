//! Calls of cuBLASLt: correct in every case of the table, ordered with the launches around them,
//! and clear errors if a call is impossible. Skipped with a message without a CUDA device or
//! library.

use std::sync::Arc;

use warploom::engine::EngineId;
use warploom::kernel::Access::{Read, ReadWrite};
use warploom::kernel::{Epilogue, GEMM_PARAMS, Gemm, GemmCompute, KernelSpec, Routine};
use warploom::provider::{
    Args, Command, Device, OpenOptions, ParamBlock, Provider, Recording, UploadSource, Usage, Word,
};
use warploom::runtime::Runtime;
use warploom_core::base::platform::block_on;
use warploom_core::base::{DType, Dim, Symbol, SymbolValues};
use warploom_native::cuda;
use warploom_testkit::Conformance;

use crate::vendor_gemm::{CASES, ENGINE};
use crate::webgpu_host::*;
use crate::{Need, skip, tell};

/// The first CUDA device, if it has the library.
fn with_library(options: OpenOptions) -> Option<Arc<dyn Device>> {
    let provider = cuda::Provider::new();
    let list = block_on(provider.list()).unwrap_or_default();
    match list.first() {
        Some(profile) if profile.has_gemm_library => {
            Some(block_on(provider.open(0, options)).unwrap())
        }
        Some(profile) => {
            skip(Need::Cuda, &format!("CUDA without its library of products: {}", profile.driver));
            None
        }
        None => {
            skip(Need::Cuda, "there is no CUDA device");
            None
        }
    }
}

fn gemm(operands: DType) -> Gemm {
    let (compute, epilogue) = (GemmCompute::F32, Epilogue::None);
    let (a_transposed, b_transposed) = (false, false);
    Gemm { operands, result: operands, a_transposed, b_transposed, compute, epilogue }
}

fn spec(gemm: Gemm) -> KernelSpec {
    KernelSpec::Routine(Routine::Gemm(gemm))
}

/// The parameters of one product of matrices without gaps.
fn one([m, n, k]: [Word; 3], [n_bits, k_bits]: [u32; 2]) -> ParamBlock {
    let bits = Word::Bits;
    let mut words = vec![bits(1), m, n, k];
    words.extend([0, k_bits, 0, 0, n_bits, 0, 0, n_bits, 0, 0].map(bits));
    assert_eq!(words.len(), GEMM_PARAMS.len());
    ParamBlock(words)
}

/// Each case with the engine forced wherever it applies.
#[test]
fn library_products_are_right() {
    if with_library(OpenOptions::default()).is_none() {
        return;
    }
    let runtime = Runtime::builder().device("cuda:0").build().unwrap();
    let mut suite = Conformance::new().registered(EngineId::new(ENGINE)).complete(true);
    for beginning in CASES {
        suite = suite.only(beginning);
    }
    let report = suite.run(&runtime).unwrap();
    tell(&format!("cuda: library: {report}"));
    report.assert_passed();
}

/// Launches before and after a call become graphs, sizes and buffers change between submits, and
/// the order is kept. Small integers: every sum is exact in any order.
#[test]
fn a_call_stands_between_graphs_in_its_order() {
    const M: Symbol = Symbol::new("m");
    const K: usize = 48;
    const N: usize = 40;
    let Some(device) = with_library(OpenOptions::default()) else { return };
    let device = &*device;
    let mut work = Recording { label: "between graphs".into(), ..Default::default() };
    let most = 64;
    let [x, b] = [("x", most * K), ("b", K * N)].map(|(name, n)| work.slot(name, 4 * n as u64));
    let y = work.slot("y", (4 * most * N) as u64);
    let m = Dim::symbol(M);
    let elements = |each: usize| m.clone() * Dim::from(each);
    let to = warploom::provider::SlotRange { slot: x, offset: Dim::new(0), bytes: elements(4 * K) };
    work.commands.push(Command::Upload { to, source: UploadSource::Arg(0) });
    let groups = |each: usize| elements(each).ceil_div(&Dim::new(64));
    for _ in 0..5 {
        let block = params(Word::Dim(elements(K)), 1.0, 1.0);
        dispatch(&mut work, affine_in_place(), block, &[(x, ReadWrite)], groups(K));
    }
    let sizes = [Word::Dim(m.clone()), Word::Bits(N as u32), Word::Bits(K as u32)];
    let block = one(sizes, [N as u32, K as u32]);
    let slots = [(x, Read), (b, Read), (y, ReadWrite)];
    dispatch(&mut work, spec(gemm(DType::F32)), block, &slots, Dim::new(1));
    for _ in 0..5 {
        let block = params(Word::Dim(elements(N)), 2.0, 0.0);
        dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], groups(N));
    }
    download(&mut work, part(y, 0, (4 * most * N) as i64));
    compile(device, &work);

    let numbers = |count: usize, seed: usize| -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + seed * 5) % 9) as f32 - 4.0).collect()
    };
    let b_numbers = numbers(K * N, 1);
    let x_range = floats(device, &vec![0.0; most * K]);
    let b_range = floats(device, &b_numbers);
    let outs = [0, 1].map(|_| floats(device, &vec![-1.0; most * N]));
    let prepared = device.prepare(&work, &[Some(x_range), Some(b_range), None]).unwrap();
    for (turn, m) in [3usize, 64, 17, 17, 0, 3, 64].into_iter().enumerate() {
        let x_numbers = numbers(m * K, turn);
        let out = outs[turn % 2];
        device.write(out, &to_bytes(&vec![-1.0; most * N])).unwrap();
        let args = Args {
            symbols: SymbolValues::new().with(M, m as u64),
            uploads: vec![to_bytes(&x_numbers)],
            buffers: vec![(y, out)],
        };
        let ticket = device.submit(&[(prepared, args)]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        let made = to_floats(&done.downloads[0]);
        for (at, made) in made.iter().enumerate() {
            let (i, j) = (at / N, at % N);
            let want: f32 = match i < m {
                true => (0..K).map(|l| (x_numbers[i * K + l] + 5.0) * b_numbers[l * N + j]).sum(),
                false => -1.0 / 32.0,
            };
            assert_eq!(*made, 32.0 * want, "turn {turn}, m {m}, [{i}, {j}]");
        }
    }
}

/// The result of one product on the device.
fn product(device: &dyn Device, gemm: Gemm, a: &[f32], b: &[f32], size: usize) -> Vec<f32> {
    let mut work = Recording { label: "one".into(), ..Default::default() };
    let bytes = 4 * (size * size) as u64;
    let slots = ["a", "b", "d"].map(|name| work.slot(name, bytes));
    let [n, k] = [size as u32; 2];
    let block = one([n, n, k].map(Word::Bits), [n, k]);
    let list = [(slots[0], Read), (slots[1], Read), (slots[2], ReadWrite)];
    dispatch(&mut work, spec(gemm), block, &list, Dim::new(1));
    download(&mut work, part(slots[2], 0, bytes as i64));
    let ranges = [a, b, &vec![0.0; size * size]].map(|numbers| Some(floats(device, numbers)));
    run(device, &work, &ranges, Args::default()).remove(0)
}

/// Values with 21 significant bits lose nothing, except with TF32.
#[test]
fn f32_is_multiplied_as_it_is() {
    let Some(device) = with_library(OpenOptions::default()) else { return };
    for size in [64usize, 512, 1024] {
        let fine = |i: usize| 1.0 + (1 + i % 7) as f32 * 2f32.powi(-20);
        let a: Vec<f32> = (0..size * size).map(fine).collect();
        // The identity, so that each sum is one number.
        let b: Vec<f32> = (0..size * size).map(|i| f32::from(i % size == i / size)).collect();
        assert_eq!(product(&*device, gemm(DType::F32), &a, &b, size), a, "{size}");
        let rounded = Gemm { compute: GemmCompute::Tf32, ..gemm(DType::F32) };
        let made = product(&*device, rounded, &a, &b, size);
        let off = made.iter().zip(&a).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        tell(&format!("cuda: tf32 of {size}: off by {off:.1e}"));
        assert!(off <= 2f32.powi(-10), "{off}");
    }
}

#[test]
fn calls_that_cannot_be_are_refused_in_words() {
    let Some(device) = with_library(OpenOptions::default()) else { return };
    let mut work = Recording { label: "too long".into(), ..Default::default() };
    let slots = ["a", "b", "d"].map(|name| work.slot(name, 4 * 64 * 64));
    let block = one([64, 64, 65].map(Word::Bits), [64, 65]);
    let list = [(slots[0], Read), (slots[1], Read), (slots[2], ReadWrite)];
    dispatch(&mut work, spec(gemm(DType::F32)), block, &list, Dim::new(1));
    compile(&*device, &work);
    let ranges = [0; 3].map(|_| Some(floats(&*device, &[0.0; 64 * 64])));
    let prepared = device.prepare(&work, &ranges).unwrap();
    let error = device.submit(&[(prepared, Args::default())]).unwrap_err();
    let text = error.to_string();
    assert!(error.is_invalid(), "{text}");
    for part in ["\"gemm\"", "gemm f32 a*b -> f32 of 1 x [64, 65] x [65, 64]", "of 16384"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_works(&*device);
}

/// If the budget has no room for the library's workspace, products run without it.
#[test]
fn a_small_budget_has_products_without_a_workspace() {
    let budget = OpenOptions { memory_budget: Some(4 << 20), ..Default::default() };
    let Some(device) = with_library(budget) else { return };
    let size = 256;
    let a: Vec<f32> = (0..size * size).map(|i| (i % 11) as f32).collect();
    let b: Vec<f32> = (0..size * size).map(|i| f32::from(i % size == i / size)).collect();
    assert_eq!(product(&*device, gemm(DType::F32), &a, &b, size), a);
}

/// Every provider without library calls, and CUDA devices at the floor.
#[test]
fn a_missing_library_is_reported() {
    let wanted = spec(gemm(DType::F16));
    let refused = |device: &dyn Device| {
        let error = block_on(device.compile(&wanted)).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("gemm f16 a*b -> f16"), "{error}");
        let range = device.alloc(256, Usage::Working);
        assert!(range.is_ok(), "the device works on");
    };
    let floor = OpenOptions { floor: true, ..Default::default() };
    on_each(floor, |device| refused(&*device));
    let cpu = warploom_cpu::Provider;
    refused(&*block_on(cpu.open(0, OpenOptions::default())).unwrap());
    let cuda = cuda::Provider::new();
    for profile in block_on(cuda.list()).unwrap_or_default() {
        let reported = profile.driver.contains("no cuBLASLt");
        assert_eq!(reported, !profile.has_gemm_library, "{}", profile.driver);
    }
}
