//! Mixtures of experts, recurrent states and layers that differ, in sessions: taken back, in batches of ragged sequences,
//! and decoded ahead of the host.

use std::sync::Arc;

use serde_json::Value as Json;
use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_llm::{Model, Output, Session, StepRequest};

use super::architecture_files::{gguf, golden, label, logits, prompts};
use super::architectures::difference;
use crate::{devices, tell};

/// Maximum difference of a logit; the largest is 2.
const LOGIT: f64 = 1e-4;

/// Models with experts, with recurrent states, with layers that differ or share keys, and with soft
/// caps or factors of queries.
const MODELS: [&str; 10] = [
    "qwen3moe",
    "qwen35",
    "qwen35moe",
    "gpt-oss",
    "gemma2",
    "gemma4",
    "gemma4 (large)",
    "gemma4 (experts)",
    "lfm2",
    "mistral3 (yarn)",
];

fn models() -> Vec<(Json, Arc<Model>)> {
    let is_one = |row: &Json| MODELS.contains(&&*label(row));
    let rows: Vec<Json> = golden().into_iter().filter(is_one).collect();
    assert_eq!(rows.len(), MODELS.len());
    rows.into_iter().map(|row| (row.clone(), Model::from_gguf(gguf(&row)).unwrap())).collect()
}

fn session(runtime: &Runtime, model: &Arc<Model>, sequences: usize) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(32);
    builder.sequences(sequences).compute(ComputeMode::F32).build().unwrap()
}

/// The longest prompt of a model, and the logits after it.
fn longest(row: &Json) -> (Vec<u32>, Vec<f64>) {
    let mut all = prompts(row);
    let at = all.len() - 1;
    (all.swap_remove(at), logits(row, at))
}

/// The logits after tokens of one sequence.
fn after(session: &mut Session, sequence: usize, tokens: &[u32]) -> Vec<f32> {
    let request = StepRequest::tokens(sequence, tokens, Output::Logits);
    session.step(request).unwrap().into_logits()
}

fn check(what: &str, expected: &[f64], found: &[f32]) {
    let difference = difference(expected, found.iter().map(|v| f64::from(*v)));
    assert!(difference <= LOGIT, "{what}: {difference}");
}

#[test]
fn a_text_that_is_taken_back_goes_on_as_another() {
    for (device, runtime) in devices::every(false) {
        for (row, model) in models() {
            let what = format!("{device}: {}", label(&row));
            let (prompt, expected) = longest(&row);
            let mut session = session(&runtime, &model, 1);
            // Tokens of another text, from the tenth on.
            let other: Vec<u32> = prompt[..10].iter().copied().chain([3, 1, 4, 1, 5]).collect();
            after(&mut session, 0, &other);
            session.truncate(10).unwrap();
            check(&what, &expected, &after(&mut session, 0, &prompt[10..]));
            // All of it, and to the last token alone.
            session.truncate(0).unwrap();
            check(&what, &expected, &after(&mut session, 0, &prompt));
            session.truncate(prompt.len() - 1).unwrap();
            check(&what, &expected, &after(&mut session, 0, &prompt[prompt.len() - 1..]));
        }
        tell(&format!("taken back: {device}"));
    }
}

#[test]
fn ragged_sequences_do_not_touch_each_other() {
    for (device, runtime) in devices::every(false) {
        for (row, model) in models() {
            let (prompt, expected) = longest(&row);
            let mut session = session(&runtime, &model, 3);
            let last = prompt.len() - 1;
            // Sequence 1 is two tokens behind, sequence 2 has another text.
            after(&mut session, 0, &prompt[..last]);
            after(&mut session, 1, &prompt[..last - 2]);
            after(&mut session, 2, &[9, 8, 7, 6, 5]);
            let mut found = Vec::new();
            for step in 0..3 {
                let at = (last + step).min(prompt.len() - 1);
                let tokens = [(2, step as u32 + 11), (0, prompt[at]), (1, prompt[last - 2 + step])];
                let out = session.step(StepRequest::batch(&tokens, Output::Logits)).unwrap();
                found.push(out.rows().map(<[f32]>::to_vec).collect::<Vec<_>>());
            }
            let what = format!("{device}: {}", label(&row));
            check(&format!("{what}, ahead"), &expected, &found[0][1]);
            check(&format!("{what}, behind"), &expected, &found[2][2]);
            // The other text by itself.
            let mut alone = self::session(&runtime, &model, 1);
            let text = [9, 8, 7, 6, 5, 11, 12, 13];
            let expected: Vec<f64> =
                after(&mut alone, 0, &text).iter().map(|v| f64::from(*v)).collect();
            check(&format!("{what}, other"), &expected, &found[2][0]);
        }
        tell(&format!("ragged sequences: {device}"));
    }
}

#[test]
fn tokens_chosen_on_the_device_are_those_of_single_steps() {
    for (device, runtime) in devices::every(false) {
        for (row, model) in models() {
            let prompt = &longest(&row).0[..12];
            let mut steps = session(&runtime, &model, 1);
            let mut next = steps
                .step(StepRequest::tokens(0, prompt, Output::Greedy))
                .unwrap()
                .token()
                .unwrap();
            let mut expected = Vec::new();
            for _ in 0..8 {
                let request = StepRequest::tokens(0, std::slice::from_ref(&next), Output::Greedy);
                next = steps.step(request).unwrap().token().unwrap();
                expected.push(next);
            }
            let mut ahead = session(&runtime, &model, 2);
            for sequence in 0..2 {
                ahead.step(StepRequest::tokens(sequence, prompt, Output::Greedy)).unwrap();
            }
            let request = StepRequest::run_ahead(&[0], 8, Output::Greedy);
            let found = ahead.step(request).unwrap().tokens().unwrap();
            assert_eq!(found, expected, "{device}: {}", label(&row));
            // Both sequences: the second as far as the first was, the first further on.
            let request = StepRequest::run_ahead(&[0, 1], 4, Output::Greedy);
            let found = ahead.step(request).unwrap().tokens().unwrap();
            let second: Vec<u32> = found.iter().skip(1).step_by(2).copied().collect();
            assert_eq!(second, expected[..4], "{device}: {}", label(&row));
        }
        tell(&format!("run-ahead of mixtures: {device}"));
    }
}
