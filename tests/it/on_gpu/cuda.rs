//! CUDA only: reports without CUDA, measurements with it.

use std::process::Command as Process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use warploom::kernel::Access::{Read, ReadWrite};
use warploom::kernel::{AssetSpec, KernelSpec};
use warploom::provider::{
    Args, Command, Device, OpenOptions, ParamBlock, Provider, Recording, Resource, Usage, Word,
};
use warploom::runtime::{Detection, Runtime};
use warploom_core::base::platform::block_on;
use warploom_core::base::{Dim, Symbol, SymbolValues};
use warploom_native::cuda;

use crate::opencl::spin;
use crate::translate::compiler;
use crate::webgpu_host::*;
use crate::{Need, skip, tell};

fn open_cuda() -> Option<Arc<dyn Device>> {
    let provider = cuda::Provider::new();
    let found = block_on(provider.list()).is_ok_and(|list| !list.is_empty());
    if !found {
        skip(Need::Cuda, "there is no CUDA device");
        return None;
    }
    Some(block_on(provider.open(0, OpenOptions::default())).unwrap())
}

#[test]
fn missing_parts_are_reported() {
    let provider = cuda::Provider::new();
    let detection = Detection::detect("auto").unwrap();
    let reported =
        |name: &str| detection.absent.iter().find(|(p, _)| p == name).map(|(_, why)| why);
    match (provider.absence(), block_on(provider.list())) {
        (Some(why), list) => {
            assert_eq!(list.unwrap(), []);
            assert!(why.contains("driver"), "{why}");
            assert_eq!(reported("cuda"), Some(&why));
            assert!(!detection.startup_line().contains(&why));
            // Requested by name it is an error, and no other device is used.
            let error = Runtime::builder().device("cuda").build().map(|_| ()).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(&why), "{error}");
            let error = block_on(provider.open(0, OpenOptions::default())).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains(&why), "{error}");
        }
        (None, Ok(list)) => {
            assert!(!list.is_empty() && reported("cuda").is_none());
            assert_eq!(detection.selected().profile.id(), "cuda:0");
            let none = list.len();
            let error = block_on(provider.open(none, OpenOptions::default())).map(|_| ());
            assert!(error.unwrap_err().to_string().contains("does not exist"));
        }
        // A driver without its compiler is worth a line at every start.
        (None, Err(error)) => {
            assert!(error.is_unsupported() && error.to_string().contains("NVRTC"), "{error}");
            assert!(detection.startup_line().contains("failed=cuda"));
        }
    }
}

#[test]
fn the_compiler_names_the_line() {
    let Some(nvrtc) = compiler() else { return };
    let error = nvrtc.compile("int a;\nint b = c;\n", "sm_90").unwrap_err();
    let text = error.to_string();
    assert!(error.is_compile() && text.contains("(2)") && text.contains("int b = c;"), "{text}");
    assert!(nvrtc.compile("int a;\0", "sm_90").unwrap_err().is_compile());
    assert!(nvrtc.compile("int a;", "sm_1").unwrap_err().is_compile());
}

#[test]
fn the_program_links_no_vendors_library() {
    let own = std::env::current_exe().unwrap();
    let Ok(reported) = Process::new("readelf").arg("-d").arg(own).output() else {
        return skip(Need::Tool, "there is no readelf");
    };
    let text = String::from_utf8_lossy(&reported.stdout).to_lowercase();
    assert!(text.contains("needed"), "{text}");
    for library in ["cuda", "nvrtc", "cublas", "opencl"] {
        assert!(!text.contains(library), "{library}: {text}");
    }
}

/// Held by tests that need much memory or start a process that needs some.
static MEMORY: Mutex<()> = Mutex::new(());

#[test]
fn memory_that_the_driver_refuses_leaves_the_device_usable() {
    let Some(device) = open_cuda() else { return };
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // The context already uses some of it. A smaller budget would affect concurrent tests.
    let bytes = device.profile().memory_bytes - (64 << 20);
    for _ in 0..2 {
        let error = device.alloc(bytes, Usage::Weights).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        assert!(error.to_string().contains(&format!("need {bytes} bytes, have ")), "{error}");
        assert_works(&*device);
    }
    assert_eq!(device.counters().allocated_bytes, 0);
}

/// The variable that makes a child process do a test's work.
const CHILD: &str = "WARPLOOM_TEST_CUDA_LOSS";

/// In a separate process, since CUDA never recovers from an illegal address.
#[test]
fn an_illegal_address_is_the_loss_of_the_device() {
    if std::env::var_os(CHILD).is_some() {
        return lose();
    }
    if open_cuda().is_none() {
        return;
    }
    let text = alone("on_gpu::cuda::an_illegal_address_is_the_loss_of_the_device");
    assert!(text.contains("the loss was reported"), "{text}");
}

/// Runs a test in a separate process, which must succeed; returns its output.
fn alone(name: &str) -> String {
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::env::current_exe().unwrap();
    let child = Process::new(own).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
    let child = child.unwrap();
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{}: {text}", child.status);
    text
}

/// Unloaded drivers leave thread-exit functions behind. In a separate process, in which no other
/// test holds a device.
#[test]
fn a_thread_that_looked_for_devices_ends_well() {
    if std::env::var_os(CHILD).is_none() {
        let text = alone("on_gpu::cuda::a_thread_that_looked_for_devices_ends_well");
        assert!(text.contains("the thread has ended"), "{text}");
        return;
    }
    let looked = std::thread::spawn(|| Detection::detect("auto").map(|_| ()));
    looked.join().unwrap().unwrap();
    tell("the thread has ended");
}

fn lose() {
    let device = open_cuda().unwrap();
    let mut work = Recording { label: "wild".into(), ..Default::default() };
    let (x, y) = (work.slot("x", 256), work.slot("y", 256));
    // Kernels of the catalogue trust their parameters: rows, cols, x_offset, x_stride, y_offset.
    let wild = [1, 64, 0x7fff_ff00, 64, 0].map(Word::Bits).to_vec();
    let kernel = KernelSpec::Asset(AssetSpec::new("softmax"));
    dispatch(&mut work, kernel, ParamBlock(wild), &[(x, Read), (y, ReadWrite)], Dim::new(1));
    compile(&*device, &work);
    let slots = [Some(floats(&*device, &[0.0; 64])), Some(floats(&*device, &[0.0; 64]))];
    let prepared = device.prepare(&work, &slots).unwrap();
    let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
    let lost = block_on(device.wait(ticket)).unwrap_err();
    assert!(lost.is_device_lost() && lost.to_string().contains("ILLEGAL_ADDRESS"), "{lost}");
    let later = [
        device.alloc(256, Usage::Working).map(|_| ()).unwrap_err(),
        device.submit(&[(prepared, Args::default())]).map(|_| ()).unwrap_err(),
        device.write(slots[0].unwrap(), &[0; 256]).unwrap_err(),
        device.prepare(&work, &slots).map(|_| ()).unwrap_err(),
        block_on(device.wait(ticket)).map(|_| ()).unwrap_err(),
    ];
    assert!(later.iter().all(|error| error.is_device_lost()), "{later:?}");
    device.free(Resource::Prepared(prepared));
    drop(device);
    tell("the loss was reported");
}

/// Device time between two timestamps in microseconds: the minimum of several submits.
fn least_us(device: &dyn Device, list: &[(warploom::provider::PreparedId, Args)], n: usize) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..n {
        let ticket = device.submit(list).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        let [begin, .., end] = done.timestamps[..] else { panic!("no timestamps") };
        least = least.min((end - begin) as f64 / 1e3);
    }
    least
}

/// 200 launches, each on the result of the previous one. The grid is n / 64 groups, or fixed.
fn chain(n: Option<Symbol>, groups: i64) -> Recording {
    let mut work = Recording { label: "chain".into(), ..Default::default() };
    let y = work.slot("y", 4 << 20);
    work.commands.push(Command::Timestamp);
    for _ in 0..200 {
        let (n, groups) = match n {
            None => (Word::Bits(64 * groups as u32), Dim::new(groups)),
            Some(n) => (Word::Dim(Dim::symbol(n)), Dim::symbol(n).ceil_div(&Dim::new(64))),
        };
        let block = params(n, 1.0, 1.0);
        dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], groups);
    }
    work.commands.push(Command::Timestamp);
    work
}

/// Graph capture: a chain of launches replayed as a CUDA graph. Prints times; fails only if a
/// replayed chain is slower than one that is not.
#[test]
fn a_chain_of_200_kernels_replayed() {
    const N: Symbol = Symbol::new("n");
    let Some(device) = open_cuda() else { return };
    let buffer = device.alloc(4 << 20, Usage::Working).unwrap();
    let slots = [Some(whole(buffer, 4 << 20))];
    for (symbol, groups) in [(None, 1), (None, 132), (None, 512), (Some(N), 512)] {
        let work = chain(symbol, groups);
        compile(&*device, &work);
        let with = |round: u64| {
            let n = 64 * (groups as u64).saturating_sub(round % 8);
            let symbols = symbol.map_or(SymbolValues::new(), |s| SymbolValues::new().with(s, n));
            Args { symbols, ..Args::default() }
        };
        let (mut first, mut first_wall) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..20 {
            let prepared = device.prepare(&work, &slots).unwrap();
            let begin = Instant::now();
            first = first.min(least_us(&*device, &[(prepared, with(0))], 1) / 200.0);
            first_wall = first_wall.min(begin.elapsed().as_secs_f64() * 1e6 / 200.0);
            device.free(Resource::Prepared(prepared));
        }
        let prepared = device.prepare(&work, &slots).unwrap();
        let replayed = least_us(&*device, &[(prepared, with(0))], 200) / 200.0;
        let (mut wall, mut submit) = (f64::INFINITY, f64::INFINITY);
        for round in 0..200 {
            let begin = Instant::now();
            let ticket = device.submit(&[(prepared, with(round))]).unwrap();
            submit = submit.min(begin.elapsed().as_secs_f64() * 1e6 / 200.0);
            block_on(device.wait(ticket)).unwrap();
            wall = wall.min(begin.elapsed().as_secs_f64() * 1e6 / 200.0);
        }
        let what = if symbol.is_some() { ", other ones at each submit" } else { "" };
        tell(&format!(
            "cuda: 200 dependent kernels of {groups} groups{what}, us a kernel: launched {first:.2} \
             (wall {first_wall:.2}), replayed {replayed:.2} (wall {wall:.2}, of which submit \
             {submit:.2})"
        ));
        assert!(replayed < 1.1 * first, "replayed {replayed} us, launched {first} us");
        device.free(Resource::Prepared(prepared));
    }
}

/// Prints figures; fails only if bytes do not arrive.
#[test]
fn uploads_of_a_gigabyte() {
    let Some(device) = open_cuda() else { return };
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes: Vec<u8> = (0..1u32 << 28).flat_map(|i| (i ^ (i >> 9)).to_le_bytes()).collect();
    let size = bytes.len() as u64;
    let buffer = device.alloc(size, Usage::Weights).unwrap();
    let mut best = f64::INFINITY;
    let mut work = Recording::default();
    let slot = work.slot("x", size);
    download(&mut work, part(slot, size as i64 - 4096, 4096));
    let prepared = device.prepare(&work, &[Some(whole(buffer, size))]).unwrap();
    for _ in 0..3 {
        let begin = Instant::now();
        device.write(whole(buffer, size), &bytes).unwrap();
        let ticket = device.submit(&[(prepared, Args::default())]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        best = best.min(begin.elapsed().as_secs_f64());
        assert_eq!(done.downloads[0], bytes[bytes.len() - 4096..]);
    }
    tell(&format!("cuda: upload of 1 GiB from the heap: {:.1} GB/s", size as f64 / best / 1e9));
}

/// Bytes that the device can read itself are copied on the host only if they must wait for their
/// turn.
#[test]
fn pinned_memory_is_read_from_where_it_is() {
    const BYTES: usize = 8 << 20;
    let Some(device) = open_cuda() else { return };
    let provider = cuda::Provider::new();
    assert!(provider.pinned(0, 0).map(|_| ()).unwrap_err().is_invalid());
    let mut bytes = provider.pinned(0, BYTES).unwrap();
    let range = whole(device.alloc(BYTES as u64, Usage::Weights).unwrap(), BYTES as u64);
    let mut read = Recording { label: "read".into(), ..Default::default() };
    let slot = read.slot("x", BYTES as u64);
    download(&mut read, part(slot, 0, BYTES as i64));
    let read = device.prepare(&read, &[Some(range)]).unwrap();
    let mut long = Recording { label: "long".into(), ..Default::default() };
    let y = long.slot("y", 4);
    let block = params(Word::Bits(20_000_000), 0.0, 0.0);
    dispatch(&mut long, spin(), block, &[(y, ReadWrite)], Dim::new(1));
    compile(&*device, &long);
    let long = device.prepare(&long, &[Some(floats(&*device, &[1.0]))]).unwrap();
    for (round, busy) in [false, true, false].into_iter().enumerate() {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i * (7 + round) % 251) as u8;
        }
        let running = busy.then(|| device.submit(&[(long, Args::default())]).unwrap());
        let before = device.counters();
        device.write(range, &bytes).unwrap();
        let after = device.counters();
        let want = if busy { BYTES as u64 } else { 0 };
        assert_eq!(after.staged_bytes - before.staged_bytes, want, "busy: {busy}");
        assert_eq!(after.uploaded_bytes - before.uploaded_bytes, BYTES as u64);
        let expected = bytes.to_vec();
        // The caller's again, whatever the device still does.
        bytes.fill(0);
        if let Some(running) = running {
            block_on(device.wait(running)).unwrap();
        }
        let ticket = device.submit(&[(read, Args::default())]).unwrap();
        let found = block_on(device.wait(ticket)).unwrap().downloads.remove(0);
        assert!(found == expected, "busy: {busy}");
    }
}
