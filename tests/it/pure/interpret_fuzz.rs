//! Mutated shaders on arbitrary parameters: the result may be an error or a fault, never a panic or
//! an endless run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use warploom::kernel::source::{asset_wgsl, variants};
use warploom_wgsl::interpret::{Argument, Checks, Failure, Options, Program};

use crate::interpret::cells;
use crate::tell;

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// Words of a shader that may replace each other.
const SWAPS: [&[&str]; 8] = [
    &[" + ", " - ", " * ", " / ", " % ", " & ", " | ", " ^ "],
    &[" < ", " > ", " <= ", " >= ", " == ", " != "],
    &["min(", "max("],
    &["0u", "1u", "2u", "7u", "31u", "4294967295u"],
    &["workgroupBarrier()", "storageBarrier()"],
    &["break;", "continue;", "return;"],
    &[".x", ".y", ".z", ".w"],
    &["+=", "-=", "*=", "/="],
];

/// The text with one line removed or one word replaced.
fn changed(text: &str, numbers: &mut Numbers) -> String {
    let swap = SWAPS[numbers.below(SWAPS.len())];
    let word = swap[numbers.below(swap.len())];
    let places: Vec<usize> = text.match_indices(word).map(|(at, _)| at).collect();
    if places.is_empty() || numbers.below(4) == 0 {
        let skipped = numbers.below(text.lines().count());
        let kept = text.lines().enumerate().filter(|(line, _)| *line != skipped);
        return kept.map(|(_, line)| format!("{line}\n")).collect();
    }
    let at = places[numbers.below(places.len())];
    let other = swap[numbers.below(swap.len())];
    format!("{}{other}{}", &text[..at], &text[at + word.len()..])
}

/// The outcome of a text, by name.
fn outcome(text: &str, numbers: &mut Numbers) -> &'static str {
    let Ok(program) = Program::from_wgsl(text, "k", None, &[]) else { return "no program" };
    let buffers: Vec<_> = program
        .bindings()
        .into_iter()
        .map(|binding| {
            let words = binding.least_bytes as usize / 4 + if binding.uniform { 0 } else { 64 };
            let words: Vec<u32> = (0..words).map(|_| numbers.below(40) as u32).collect();
            (binding, cells(&words))
        })
        .collect();
    let arguments: Vec<Argument> = buffers
        .iter()
        .map(|(binding, words)| Argument::new(binding.group, binding.binding, words))
        .collect();
    let checks = if numbers.below(2) == 0 { Checks::ALL } else { Checks::default() };
    let subgroup_size = 4 << numbers.below(6);
    let options = Options { checks, max_steps: 2000, subgroup_size, threads: 1 };
    match program.run([2, 1, 1], &arguments, &options) {
        Ok(_) => "run",
        Err(Failure::Fault(fault)) => match fault.kind {
            warploom_wgsl::interpret::FaultKind::StepLimit => "too long",
            _ => "fault",
        },
        Err(Failure::Error(error)) => panic!("{error}"),
    }
}

#[test]
fn changed_shaders_never_panic() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (seed, spec) in variants().into_iter().enumerate() {
        let mut numbers = Numbers(seed as u64);
        let right = asset_wgsl(&spec).unwrap();
        for _ in 0..2 {
            let text = changed(&right, &mut numbers);
            let run = AssertUnwindSafe(|| outcome(&text, &mut numbers));
            let outcome = catch_unwind(run).unwrap_or_else(|_| panic!("{}:\n{text}", spec.name));
            *counts.entry(outcome).or_default() += 1;
        }
    }
    tell(&format!("interpret: changed shaders: {counts:?}"));
    assert!(["run", "fault", "no program"].iter().all(|name| counts.contains_key(name)));
}
