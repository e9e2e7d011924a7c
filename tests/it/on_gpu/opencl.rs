//! The OpenCL provider: reports without a driver, the disk cache, copies. The behaviour of every
//! device is in `device_work.rs` and `device_faults.rs`, WGSL semantics in `semantics_devices.rs`;
//! the case table runs on it as on every device.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use warploom::kernel::Access::ReadWrite;
use warploom::kernel::KernelSpec;
use warploom::provider::{
    self, Args, Counters, Device, DeviceKind, OpenOptions, Provider, Recording, Resource, Usage,
    Word,
};
use warploom::runtime::{Detection, Runtime};
use warploom_core::base::Dim;
use warploom_core::base::platform::block_on;
use warploom_native::opencl;

use crate::webgpu_host::{
    affine_in_place, dispatch, download, floats, open_opencl, params, part, run, source, to_floats,
    whole,
};

/// Runs a test of this file in a separate process with these variables.
fn in_child(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        &format!("on_gpu::opencl::{test}"),
        "--exact",
        "--nocapture",
        "--include-ignored",
    ]);
    if test == "child_without_opencl" {
        // Drivers that a machine lists in addition to the installed ones.
        command.env_remove("OCL_ICD_FILENAMES");
    }
    let output = command.envs(variables.iter().copied()).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}\n{errors}");
    text + &errors
}

const CHILD: &str = "WARPLOOM_TEST_CHILD";

fn is_child() -> bool {
    std::env::var(CHILD).is_ok()
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// In a child process without OpenCL: that is reported, and everything else works.
#[test]
fn child_without_opencl() {
    if !is_child() {
        return;
    }
    let provider = opencl::Provider;
    assert_eq!(block_on(provider.list()).unwrap(), []);
    let why = provider.absence().unwrap();
    crate::tell(&format!("absent: {why}"));
    let error = block_on(provider.open(0, OpenOptions::default())).err().unwrap();
    assert!(error.is_unsupported() && error.to_string().contains(&why), "{error}");
    let error = Runtime::builder().device("opencl").build().err().unwrap();
    assert!(error.is_invalid() && error.to_string().contains(&why), "{error}");
    let detection = Detection::detect("auto").unwrap();
    assert!(detection.absent.iter().any(|(provider, _)| provider == "opencl"));
    assert!(!detection.startup_line().contains("opencl"), "{}", detection.startup_line());
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_a_driver_says_so_and_goes_on() {
    // A loader without a driver, and a file that is not a library.
    let empty = folder("no-icd");
    let vendors = format!("{}/", empty.display());
    let loader = opencl_is_installed();
    if loader {
        let text = in_child("child_without_opencl", &[("OCL_ICD_VENDORS", &vendors)]);
        assert!(text.contains("absent: ") && text.contains("driver"), "{text}");
    }
    fs::write(empty.join("libOpenCL.so.1"), "not a library").unwrap();
    let path = [
        ("LD_LIBRARY_PATH", empty.to_str().unwrap()),
        ("OPENCL_DYLIB_PATH", "/nowhere/libOpenCL.so"),
    ];
    let text = in_child("child_without_opencl", &path);
    assert!(text.contains("absent: ") && text.contains("libOpenCL.so.1"), "{text}");
    fs::remove_dir_all(empty).unwrap();
}

fn opencl_is_installed() -> bool {
    open_opencl(OpenOptions::default()).is_some()
}

#[test]
fn a_missing_device_is_an_error_that_lists_the_others() {
    if !opencl_is_installed() {
        return;
    }
    let error = Runtime::builder().device("opencl:99").build().err().unwrap();
    assert!(error.is_invalid() && error.to_string().contains("opencl:0"), "{error}");
    let provider = opencl::Provider;
    let error = block_on(provider.open(99, OpenOptions::default())).err().unwrap();
    assert!(error.is_invalid() && error.to_string().contains("devices were found"), "{error}");
    // OpenCL on the CPU never ranks above the CPU provider.
    let detection = Detection::detect("auto").unwrap();
    let place = |wanted: &dyn Fn(&str, DeviceKind) -> bool| {
        detection.devices.iter().position(|d| wanted(&d.profile.provider, d.profile.kind))
    };
    let cpu = place(&|provider, _| provider == "cpu");
    let software = place(&|provider, kind| (provider, kind) == ("opencl", DeviceKind::Software));
    assert!(software.is_none_or(|software| cpu.unwrap() < software));
}

/// Adds one to 64 floats and fails if the device does anything else.
fn assert_works(device: &dyn Device) {
    let mut work = Recording { label: "probe".into(), ..Default::default() };
    let y = work.slot("y", 256);
    let block = params(Word::Bits(64), 1.0, 1.0);
    dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], Dim::new(1));
    download(&mut work, part(y, 0, 256));
    let range = floats(device, &[3.0; 64]);
    assert_eq!(run(device, &work, &[Some(range)], Args::default()), [[4.0; 64]]);
    device.free(Resource::Buffer(range.buffer));
}

/// In a child process with its own cache folder.
#[test]
fn child_that_works() {
    if !is_child() {
        return;
    }
    assert_works(&*open_opencl(OpenOptions::default()).unwrap());
}

#[test]
fn built_programs_are_kept_and_bad_ones_built_again() {
    if !opencl_is_installed() {
        return;
    }
    let cache = folder("opencl-cache");
    let variable = [("WARPLOOM_CACHE", cache.to_str().unwrap())];
    let files = || -> Vec<(PathBuf, Vec<u8>)> {
        let Ok(files) = fs::read_dir(cache.join("opencl")) else { return Vec::new() };
        files.map(|file| file.unwrap().path()).map(|p| (p.clone(), fs::read(p).unwrap())).collect()
    };
    in_child("child_that_works", &variable);
    let first = files();
    assert_eq!(first.len(), 1);
    in_child("child_that_works", &variable);
    assert_eq!(files(), first, "what is kept was taken, or made again in the same way");
    let (path, good) = &first[0];
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(path, &bad).unwrap();
    in_child("child_that_works", &variable);
    assert_ne!(files()[0].1, bad, "a damaged file stayed");
    fs::remove_dir_all(cache).unwrap();
}

/// Keeps one thread busy for this many rounds.
pub(crate) fn spin() -> KernelSpec {
    source(
        "spin",
        "struct P { n: u32, a: u32, b: u32, c: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;
         @compute @workgroup_size(1)
         fn main() {
             var x = y[0] | 1u;
             for (var i = 0u; i < p.n; i++) { x = x * 1664525u + (x >> 7u); }
             y[0] = x;
         }",
        &[ReadWrite],
        4,
    )
}

#[test]
fn nothing_waits_but_wait_and_uploads_to_an_idle_queue_are_not_copied_aside() {
    let Some(device) = open_opencl(OpenOptions::default()) else { return };
    let bytes = 1 << 20;
    let data: Vec<u8> = (0..bytes).map(|i| (i * 7 % 251) as u8).collect();
    let range = whole(device.alloc(bytes as u64, Usage::Weights).unwrap(), bytes as u64);
    let mut read = Recording { label: "read".into(), ..Default::default() };
    let slot = read.slot("data", bytes as u64);
    download(&mut read, part(slot, 0, bytes as i64));
    let read = device.prepare(&read, &[Some(range)]).unwrap();
    let counted = |before: Counters| {
        let after = device.counters();
        let staged = after.staged_bytes - before.staged_bytes;
        (after.uploaded_bytes - before.uploaded_bytes, staged)
    };
    let read_back = || {
        let ticket = device.submit(&[(read, Args::default())]).unwrap();
        block_on(device.wait(ticket)).unwrap().downloads.remove(0)
    };
    // Nothing is running: one copy, from the caller's memory to the device's.
    let before = device.counters();
    device.write(range, &data).unwrap();
    assert_eq!(counted(before), (bytes as u64, 0));
    assert_eq!(read_back(), data);
    let before = device.counters();
    device.write(range, &data[8..]).unwrap_err();
    assert_eq!(counted(before), (0, 0));

    // A long kernel runs: submitting it and a write after it return immediately.
    let mut long = Recording { label: "long".into(), ..Default::default() };
    let y = long.slot("y", 4);
    dispatch(
        &mut long,
        spin(),
        params(Word::Bits(400_000_000), 0., 0.),
        &[(y, ReadWrite)],
        Dim::new(1),
    );
    block_on(device.compile(&spin())).unwrap();
    let long = device.prepare(&long, &[Some(floats(&*device, &[1.0]))]).unwrap();
    let begin = Instant::now();
    let ticket = device.submit(&[(long, Args::default())]).unwrap();
    let before = device.counters();
    let other: Vec<u8> = data.iter().map(|byte| byte ^ 255).collect();
    device.write(range, &other).unwrap();
    let returned = begin.elapsed();
    assert_eq!(counted(before), (bytes as u64, bytes as u64));
    block_on(device.wait(ticket)).unwrap();
    let done = begin.elapsed();
    assert!(returned * 4 < done, "returned after {returned:?}, done after {done:?}");
    assert_eq!(read_back(), other);
}

#[test]
fn work_is_in_flight_while_more_is_submitted_and_results_stay_apart() {
    let Some(device) = open_opencl(OpenOptions::default()) else { return };
    let mut work = Recording { label: "many".into(), ..Default::default() };
    let y = work.slot("y", 256);
    let block = params(Word::Bits(64), 1.0, 1.0);
    dispatch(&mut work, affine_in_place(), block, &[(y, ReadWrite)], Dim::new(1));
    download(&mut work, part(y, 0, 256));
    block_on(device.compile(&affine_in_place())).unwrap();
    let prepared = device.prepare(&work, &[Some(floats(&*device, &[0.0; 64]))]).unwrap();
    let tickets: Vec<_> =
        (0..50).map(|_| device.submit(&[(prepared, Args::default())]).unwrap()).collect();
    // Awaited in another order; some never.
    for i in (0..50).rev().step_by(3) {
        let done = block_on(device.wait(tickets[i])).unwrap();
        assert_eq!(to_floats(&done.downloads[0]), [(i + 1) as f32; 64]);
    }
    let counters = device.counters();
    assert_eq!((counters.submits, counters.dispatches, counters.waits), (50, 50, 17));
}

/// Thousands of offsets in one buffer, closer than the alignment of sub-buffers, with the length of
/// the range, not of the buffer.
#[test]
fn bindings_start_at_their_offset_and_end_with_their_range() {
    const PARTS: u32 = 3_000;
    const BYTES: u64 = 64;
    let Some(device) = open_opencl(OpenOptions::default()) else { return };
    assert!(u64::from(device.profile().binding_alignment) <= BYTES);
    let mark = source(
        "mark",
        "struct P { part: u32 }
         @group(0) @binding(0) var<uniform> p: P;
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;
         @compute @workgroup_size(1)
         fn main() {
             y[0] = p.part;
             y[1000u * p.part + 500u] = arrayLength(&y);
         }",
        &[ReadWrite],
        4,
    );
    let mut work = Recording { label: "many places".into(), ..Default::default() };
    let y = work.slot("y", u64::from(PARTS) * BYTES);
    for part in 0..PARTS {
        // The first part and every third one after it are unchanged.
        if part % 3 > 0 {
            let block = params(Word::Bits(part), 0.0, 0.0);
            dispatch(&mut work, mark.clone(), block, &[(y, ReadWrite)], Dim::new(1));
            if let Some(provider::Command::Dispatch(last)) = work.commands.last_mut() {
                last.bindings[0].offset = u64::from(part) * BYTES;
                last.bindings[0].bytes = BYTES;
            }
        }
    }
    download(&mut work, part(y, 0, i64::from(PARTS) * BYTES as i64));
    let range = floats(&*device, &vec![0.0; (u64::from(PARTS) * BYTES / 4) as usize]);
    // Bound when the work is prepared, and left to the submit.
    for open in [false, true] {
        let mut args = Args::default();
        if open {
            args.buffers.push((y, range));
        }
        block_on(device.compile(&mark)).unwrap();
        let id = device.prepare(&work, &[(!open).then_some(range)]).unwrap();
        let ticket = device.submit(&[(id, args)]).unwrap();
        let done = block_on(device.wait(ticket)).unwrap();
        let words: Vec<u32> = to_floats(&done.downloads[0]).iter().map(|x| x.to_bits()).collect();
        for (part, words) in (0..PARTS).zip(words.chunks(BYTES as usize / 4)) {
            let mut want = [0; BYTES as usize / 4];
            if part % 3 > 0 {
                (want[0], want[15]) = (part, 16);
            }
            assert_eq!(words, want, "part {part}, open {open}");
        }
        device.free(Resource::Prepared(id));
        device.write(range, &vec![0; range.bytes as usize]).unwrap();
    }
}
