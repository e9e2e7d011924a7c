//! What tests say about themselves: which devices they covered, and what they skipped and why.
//!
//! A skipped test is not a passed one. [`skip`] prints a line, and fails if the variable
//! `WARPLOOM_REQUIRE` lists the missing resource. With `WARPLOOM_TEST_LEDGER=FILE` each line is also
//! appended to a file, which `.ci/run` compares with `tests/ledger/` for its kind of machine.

use std::fs::OpenOptions;
use std::io::Write;

/// A resource that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A device through wgpu.
    WebGpu,
    /// An OpenCL device, or its compiler.
    OpenCl,
    /// A CUDA device.
    Cuda,
    /// NVIDIA's runtime compiler; no GPU is needed.
    Nvrtc,
    /// A device with cooperative matrices, or another property of real GPUs alone.
    Matrix,
    /// Files of real models in `WARPLOOM_TEST_MODELS`.
    Models,
    /// A program that is not part of the build, such as `tint` or `readelf`.
    Tool,
    /// A property that some drivers lack.
    Driver,
    /// Time: `WARPLOOM_TEST_ALL=1` runs it.
    Time,
}

impl Need {
    /// The name in `WARPLOOM_REQUIRE` and in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::WebGpu => "webgpu",
            Need::OpenCl => "opencl",
            Need::Cuda => "cuda",
            Need::Nvrtc => "nvrtc",
            Need::Matrix => "matrix",
            Need::Models => "models",
            Need::Tool => "tool",
            Need::Driver => "driver",
            Need::Time => "time",
        }
    }

    /// Whether `WARPLOOM_REQUIRE`, a list with commas, contains it.
    #[must_use]
    pub fn is_required(self) -> bool {
        let list = std::env::var("WARPLOOM_REQUIRE").unwrap_or_default();
        let known = |name: &str| {
            let all = [
                Need::WebGpu,
                Need::OpenCl,
                Need::Cuda,
                Need::Nvrtc,
                Need::Matrix,
                Need::Models,
                Need::Tool,
                Need::Driver,
                Need::Time,
            ];
            all.into_iter().any(|need| need.name() == name)
        };
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.into_iter().any(|name| {
            assert!(known(name), "WARPLOOM_REQUIRE={list}: there is no resource {name:?}");
            name == self.name()
        })
    }
}

/// Prints a line even if the test passes.
pub fn tell(line: &str) {
    // libtest captures `println!` but not this; a closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Reports that this thread's test, or the part of it that `why` names, did not run.
///
/// # Panics
/// If `WARPLOOM_REQUIRE` lists the resource.
#[track_caller]
pub fn skip(need: Need, why: &str) {
    assert!(!need.is_required(), "WARPLOOM_REQUIRE lists {}, but {why}", need.name());
    tell(&format!("skipped: {}: {why} [{}]", test(), need.name()));
    write(&format!("skipped {} {}", test(), need.name()));
}

/// Records the devices that this thread's test ran on, by provider and without repetitions.
pub fn ran<'a>(on: impl IntoIterator<Item = &'a str>) {
    let mut on: Vec<&str> = on.into_iter().collect();
    on.sort_unstable();
    on.dedup();
    write(&format!("ran {} {}", test(), on.join(" ")));
}

/// The name of the test that this thread runs.
fn test() -> String {
    std::thread::current().name().unwrap_or("a thread of a test").to_owned()
}

/// Appends a line to the ledger. One write each, so that lines of several processes stay whole.
fn write(line: &str) {
    let Ok(path) = std::env::var("WARPLOOM_TEST_LEDGER") else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|e| panic!("WARPLOOM_TEST_LEDGER={path}: {e}"));
}
