//! The interpreter: its semantics, the faults that it finds, and the programs that it refuses.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use warploom_wgsl::interpret::{Argument, Failure, Options, Program};

use crate::semantics::{Case, POISON, cases};
use crate::tell;

pub(crate) fn cells(words: &[u32]) -> Vec<AtomicU32> {
    words.iter().map(|word| AtomicU32::new(*word)).collect()
}

pub(crate) fn values(cells: &[AtomicU32]) -> Vec<u32> {
    cells.iter().map(|cell| cell.load(Relaxed)).collect()
}

/// Runs a case of the table; the words of y.
pub(crate) fn run(case: &Case, options: &Options) -> Result<Vec<u32>, Failure> {
    let program = Program::from_wgsl(&case.wgsl, &case.name, None, &[])?;
    let x = cells(if case.x.is_empty() { &[0] } else { &case.x });
    let (params, y) = (cells(&case.params), cells(&vec![POISON; case.expected.len()]));
    let arguments =
        [Argument::new(0, 0, &params), Argument::new(0, 1, &x), Argument::new(0, 2, &y)];
    program.run(case.groups, &arguments, options)?;
    Ok(values(&y))
}

#[test]
fn it_means_what_wgsl_means() {
    let mut wrong = Vec::new();
    for case in cases() {
        match run(&case, &Options::default()) {
            Ok(is) => wrong.extend(case.difference(&is)),
            Err(failure) => wrong.push(format!("{}: {failure}", case.name)),
        }
    }
    tell(&format!("interpret: {} kernels of the table", cases().len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Its speed: informational, not a limit.
#[test]
fn it_says_how_fast_it_is() {
    let wgsl = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0u;
    for (var i = 0u; i < 1000u; i++) { sum += y[(id.x + i) & 1023u] ^ i; }
    y[id.x] = sum;
}";
    let program = Program::from_wgsl(wgsl, "sum", None, &[]).unwrap();
    let y = cells(&vec![1; 1024]);
    let begin = std::time::Instant::now();
    let report = program.run([16, 1, 1], &[Argument::new(0, 0, &y)], &Options::default()).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    tell(&format!("interpret: {:.1} million steps/s", report.steps as f64 / seconds / 1e6));
    assert!(report.workgroups == 16 && report.steps > 1024 * 1000, "{report:?}");
}
