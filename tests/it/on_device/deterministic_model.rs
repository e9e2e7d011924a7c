//! Deterministic mode of a session: logits of a text are equal bit for bit token by token, in
//! chunks, as one prompt, in a batch, with any number of threads, and in every run.

use std::sync::Arc;

use warploom::provider::DeviceKind;
use warploom::runtime::{Runtime, TuneMode};
use warploom_core::base::ComputeMode;
use warploom_llm::{Model, Output, Session, StepOutput, StepRequest};

use crate::plans::embedded;
use crate::{devices, tell};

const CONTEXT: usize = 160;

fn session(runtime: &Runtime, model: &Arc<Model>, n: usize, mode: ComputeMode) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(CONTEXT);
    builder.sequences(n).compute(mode).deterministic(true).build().unwrap()
}

/// The words of each row of logits.
fn words(output: &StepOutput) -> Vec<Vec<u32>> {
    output.rows().map(|row| bytemuck::cast_slice(row).to_vec()).collect()
}

/// Arbitrary tokens, different for each number.
fn text(model: &Model, number: usize, len: usize) -> Vec<u32> {
    let vocabulary = model.config().vocabulary;
    (0..len).map(|i| ((i * 7919 + 31 * number + i * i) % (vocabulary - 3) + 3) as u32).collect()
}

/// The words of logits after each token, with the text split into chunks of these lengths in turn.
fn logits(session: &mut Session, tokens: &[u32], pieces: &[usize]) -> Vec<Vec<u32>> {
    let (mut rest, mut all) = (tokens, Vec::new());
    session.truncate(0).unwrap();
    for piece in pieces.iter().cycle() {
        let (now, after) = rest.split_at((*piece).min(rest.len()));
        let output = session.step(StepRequest::tokens(0, now, Output::AllLogits)).unwrap();
        assert_eq!(output.rows().len(), now.len());
        all.extend(words(&output));
        rest = after;
        if rest.is_empty() {
            return all;
        }
    }
    unreachable!("pieces are not empty")
}

fn assert_equal(what: &str, have: &[Vec<u32>], want: &[Vec<u32>]) {
    assert_eq!(have.len(), want.len(), "{what}");
    for (token, (have, want)) in have.iter().zip(want).enumerate() {
        let differ = (0..want.len()).filter(|i| have[*i] != want[*i]).count();
        assert_eq!(differ, 0, "{what}: {differ} of {} logits after token {token}", want.len());
    }
}

/// The tested modes: only one if each kernel compiles slowly.
fn modes(runtime: &Runtime) -> &'static [ComputeMode] {
    let all = &[ComputeMode::F32, ComputeMode::Int8];
    &all[..if devices::sample(runtime.device().profile(), 2) == 1 { 2 } else { 1 }]
}

fn slow(runtime: &Runtime) -> bool {
    runtime.device().profile().kind == DeviceKind::Software
}

fn runtimes() -> Vec<(String, Runtime)> {
    devices::every(false)
}

#[test]
fn a_text_has_the_same_logits_in_any_pieces() {
    let model = embedded();
    for (label, runtime) in runtimes() {
        let len = if slow(&runtime) { 24 } else { 140 };
        let tokens = text(&model, 0, len);
        for mode in modes(&runtime) {
            let mut session = session(&runtime, &model, 1, *mode);
            let want = logits(&mut session, &tokens, &[1]);
            let ways: [&[usize]; 4] = [&[512], &[2], &[1, 9, 3, 30], &[8, 64]];
            for pieces in &ways[..2 * modes(&runtime).len()] {
                let have = logits(&mut session, &tokens, pieces);
                assert_equal(&format!("{label}: {mode}: pieces {pieces:?}"), &have, &want);
            }
        }
        tell(&format!("deterministic: {label}: {len} tokens in pieces of 1 to {len}"));
    }
}

#[test]
fn sequences_of_a_batch_have_the_logits_that_each_has_alone() {
    let model = embedded();
    for (label, runtime) in runtimes() {
        let (most, count) = if slow(&runtime) { (3, 2) } else { (8, 4) };
        for mode in modes(&runtime) {
            let texts: Vec<_> = (0..most).map(|i| text(&model, i, 3 * i + 2 + count)).collect();
            let mut one = session(&runtime, &model, 1, *mode);
            let want: Vec<_> = texts.iter().map(|t| logits(&mut one, t, &[1])).collect();
            let mut all = session(&runtime, &model, most, *mode);
            for batch in 1..=most {
                // The last ones, so that each has another place among rows than in the cache.
                let members: Vec<usize> = (most - batch..most).rev().collect();
                for i in &members {
                    all.truncate_sequence(*i, 0).unwrap();
                    let prompt = &texts[*i][..texts[*i].len() - count];
                    all.step(StepRequest::tokens(*i, prompt, Output::Nothing)).unwrap();
                }
                for turn in 0..count {
                    let at = |i: usize| texts[i].len() - count + turn;
                    let tokens: Vec<_> = members.iter().map(|i| (*i, texts[*i][at(*i)])).collect();
                    let output = all.step(StepRequest::batch(&tokens, Output::Logits)).unwrap();
                    assert_eq!(output.rows().len(), batch);
                    for (i, row) in members.iter().zip(words(&output)) {
                        let what = format!("{label}: {mode}: sequence {i} of {batch}");
                        assert_equal(&what, &[row], &want[*i][at(*i)..=at(*i)]);
                    }
                }
            }
        }
        tell(&format!("deterministic: {label}: batches of 1 to {most}"));
    }
}

#[test]
fn threads_change_no_bit() {
    let model = embedded();
    let tokens = text(&model, 3, 70);
    for mode in [ComputeMode::F32, ComputeMode::Int8] {
        let mut all = Vec::new();
        for threads in [1, 2, 3, 7] {
            let runtime = Runtime::builder().device("cpu").threads(Some(threads));
            let runtime = Arc::new(runtime.tune(TuneMode::Off).build().unwrap());
            let mut session = session(&runtime, &model, 1, mode);
            let mut have = logits(&mut session, &tokens, &[40, 1]);
            have.extend(logits(&mut session, &tokens[..20], &[3]));
            all.push(have);
        }
        for have in &all[1..] {
            assert_equal(&format!("{mode}: threads"), have, &all[0]);
        }
    }
}

/// Repetitions of a token: `WARPLOOM_REPEATS`, else 1,000, and few on an emulated device.
fn repeats(runtime: &Runtime) -> usize {
    let asked = std::env::var("WARPLOOM_REPEATS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if slow(runtime) { 20 } else { 1000 })
}

#[test]
fn a_token_has_the_same_logits_each_time() {
    let model = embedded();
    for (label, runtime) in runtimes() {
        let repeats = repeats(&runtime);
        let mode = Session::default_mode(runtime.device().profile());
        let mut session = session(&runtime, &model, 1, mode);
        let tokens = text(&model, 1, 12);
        let want = logits(&mut session, &tokens, &[12]);
        for _ in 0..repeats {
            session.truncate(11).unwrap();
            let last = StepRequest::tokens(0, &tokens[11..], Output::Logits);
            let have = words(&session.step(last).unwrap());
            assert_equal(&format!("{label}: repeated"), &have, &want[11..]);
        }
        tell(&format!("deterministic: {label}: a token {repeats} times"));
    }
}
