//! Mutation fuzzing of the GGUF reader, in process: no panic, no hang, no partially open file.
//!
//! `WARPLOOM_FUZZ_INPUTS` sets the number of inputs, `WARPLOOM_FUZZ_SEED` the seed. Overflow checks
//! are enabled in the profile of the tests. A `cargo fuzz` target runs the same code.

use std::time::{Duration, Instant};

use super::gguf_exercise::{open, read_all};
use super::gguf_mutate::Mutator;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn mutated_files_are_read_or_refused() {
    let inputs = number("WARPLOOM_FUZZ_INPUTS").unwrap_or(200_000);
    let mut mutator = Mutator::new(number("WARPLOOM_FUZZ_SEED").unwrap_or(0x6767_7566));
    let (mut opened, mut decoded, mut slowest) = (0u64, 0, Duration::ZERO);
    for _ in 0..inputs {
        let bytes = mutator.next();
        let start = Instant::now();
        if let Ok(gguf) = open(bytes) {
            opened += 1;
            decoded += read_all(&gguf);
        }
        slowest = slowest.max(start.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "the slowest input took {slowest:?}");
    // If nearly all or nearly none were refused, the mutations would test nothing.
    assert!((inputs / 20..inputs * 19 / 20).contains(&opened), "{opened} of {inputs} opened");
    assert!(decoded > 0, "no tensor was decoded");
}
