//! What `tests/sanitize.sh` runs under NVIDIA's compute-sanitizer, one process for each of its tools: the table of cases
//! at small sizes through every engine, and kernels with one planted fault each. Nothing runs without its variables.

use std::ffi::CString;

use cudarc::driver::{DriverError, result, sys};
use warploom::base::platform::block_on;
use warploom::native::cuda::{self, Nvrtc};
use warploom::provider::{OpenOptions, Provider};
use warploom::runtime::{Runtime, Sync, TuneMode};
use warploom::testkit::{Case, Conformance, cases};

use crate::tell;

/// Names the device, such as `cuda:0`, on which the small cases run.
const DEVICE: &str = "WARPLOOM_TEST_SANITIZE";
/// One case of so many.
const SAMPLE: &str = "WARPLOOM_TEST_SANITIZE_SAMPLE";
/// Which fault is planted: `memcheck`, `racecheck`, `initcheck` or `synccheck`.
const PLANTED: &str = "WARPLOOM_PLANTED";

/// Numbers in the largest tensor of a small case: the tools make kernels 10 to 100 times as slow.
const NUMBERS: u64 = 1 << 14;

fn is_small(case: &Case) -> bool {
    let size = |node: &warploom::ir::Node| node.shape.elements().eval_size(&case.symbols);
    case.graph.nodes().iter().all(|node| size(node).is_ok_and(|numbers| numbers <= NUMBERS))
}

/// Every engine of the device, forced in every small case, and the plans that are made otherwise.
#[test]
fn small_cases() {
    let Ok(device) = std::env::var(DEVICE) else {
        return tell(&format!("sanitize: skipped, {DEVICE} names no device"));
    };
    let sample = std::env::var(SAMPLE).map_or(1, |number| number.parse().unwrap());
    // CUDA alone: a list of all devices would start other drivers as well, under the tool.
    let runtime = match device.strip_prefix("cuda:") {
        Some(index) => {
            let (provider, index) = (cuda::Provider::new(), index.parse().unwrap());
            let device = block_on(provider.open(index, OpenOptions::default())).unwrap();
            Runtime::on(device, Sync::Lazy, None)
        }
        None => Runtime::builder().device(device).trusting(true).tune(TuneMode::Off).build(),
    };
    let runtime = runtime.unwrap();
    let small: Vec<Case> = cases().into_iter().filter(is_small).step_by(sample).collect();
    let count = small.len();
    let all = Conformance::new().cases(small.clone()).run(&runtime).unwrap();
    let engines = runtime.registry().engines().iter().map(|engine| engine.id().clone());
    let forced = engines.fold(Conformance::new().cases(small), Conformance::registered);
    let forced = { forced }.run(&runtime).unwrap();
    let found = [&all.devices[0], &forced.devices[0]];
    let rows: usize = found.iter().map(|device| device.rows.len()).sum();
    let wrong: Vec<String> = found
        .iter()
        .flat_map(|device| device.failures())
        .map(|(row, failure)| format!("{} by {:?}: {failure:?}", row.case, row.engine))
        .collect();
    let used = forced.devices[0].engines.iter().filter(|engine| engine.cases > 0).count();
    let problems: Vec<_> = found.iter().flat_map(|device| &device.problems).collect();
    assert!(problems.is_empty(), "{problems:?}");
    assert!(wrong.is_empty(), "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 0 && used > 0);
    tell(&format!("sanitize: {count} small cases, {rows} runs, {used} engines"));
}

/// Kernels of 64 threads that get 64 words nobody has written to, each wrong in one way.
const FAULTS: [(&str, &str); 4] = [
    ("memcheck", "y[threadIdx.x + 1] = 1;"),
    // The other warp's words, without waiting for it.
    (
        "racecheck",
        "__shared__ unsigned s[64]; s[threadIdx.x] = threadIdx.x; y[threadIdx.x] = s[63 - threadIdx.x];",
    ),
    ("initcheck", "y[threadIdx.x] = y[63 - threadIdx.x] + 1;"),
    // Threads of one warp, and of one block, go apart before they wait for each other.
    (
        "synccheck",
        "unsigned z = 0; if (threadIdx.x < 48) { __syncthreads(); z = 1; } y[threadIdx.x] = z;",
    ),
];

/// The tool that is meant for it finds it; by itself the test shows nothing, not even an error.
#[test]
fn planted_fault() {
    let Ok(wanted) = std::env::var(PLANTED) else {
        return tell(&format!("sanitize: skipped, {PLANTED} names no tool"));
    };
    let (tool, line) = FAULTS.iter().find(|(tool, _)| *tool == wanted).expect("a tool's name");
    let text = format!("extern \"C\" __global__ void planted(unsigned* y) {{ {line} }}\n");
    result::init().unwrap();
    let device = result::device::get(0).unwrap();
    let number = |which| {
        // SAFETY: a device that the driver gave.
        unsafe { result::device::get_attribute(device, which) }.unwrap()
    };
    use sys::CUdevice_attribute::*;
    let major = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    let nvrtc = Nvrtc::open().unwrap();
    let mut image = nvrtc.compile(&text, &format!("sm_{major}{minor}")).unwrap();
    image.push(0);
    // SAFETY: a device that the driver gave, and the image of a kernel of one pointer.
    let end = unsafe { launch(device, &image) };
    // With memcheck the launch is ended by the tool, and told as a failure.
    tell(&format!("planted for {tool}: ran, {end:?}"));
}

/// # Safety
/// The image is of a kernel `planted` that takes a pointer.
unsafe fn launch(device: sys::CUdevice, image: &[u8]) -> Result<(), DriverError> {
    let name = CString::new("planted").unwrap();
    // SAFETY: handles as the driver gave them; memory of 64 words, as the kernel is told.
    unsafe {
        let context = result::primary_ctx::retain(device)?;
        result::ctx::set_current(context)?;
        let module = result::module::load_data(image.as_ptr().cast())?;
        let kernel = result::module::get_function(module, name)?;
        let mut y = result::malloc_sync(256)?;
        let none = std::ptr::null_mut();
        result::launch_kernel(kernel, (1, 1, 1), (64, 1, 1), 0, none, &mut [(&raw mut y).cast()])?;
        result::ctx::synchronize()
    }
}

/// Without a GPU: the planted kernels are what a compiler takes.
#[test]
fn planted_kernels_compile() {
    let Ok(nvrtc) = Nvrtc::open() else { return tell("nvrtc: skipped") };
    for (tool, line) in FAULTS {
        let text = format!("extern \"C\" __global__ void planted(unsigned* y) {{ {line} }}\n");
        nvrtc.compile(&text, "sm_90").unwrap_or_else(|e| panic!("{tool}: {e}"));
    }
}
