//! The interpreter: WGSL's meaning on it, what its checks find, what it refuses.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use warploom::interpret::{Argument, Failure, Options, Program};

use crate::semantics::{Case, POISON, cases};
use crate::tell;

fn cells(words: &[u32]) -> Vec<AtomicU32> {
    words.iter().map(|word| AtomicU32::new(*word)).collect()
}

fn values(cells: &[AtomicU32]) -> Vec<u32> {
    cells.iter().map(|cell| cell.load(Relaxed)).collect()
}

/// Runs a case of the table; the words of y.
fn run(case: &Case, options: &Options) -> Result<Vec<u32>, Failure> {
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
