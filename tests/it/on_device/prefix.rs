//! Prefixes of sequences: copied to another sequence, through host memory, and with the states of
//! recurrent layers where they were held. What follows is equal to the last bit, since the cache is.

use std::sync::Arc;

use warploom::runtime::Runtime;
use warploom_core::base::{ComputeMode, DType};
use warploom_llm::{Model, Output, Session, StepRequest};

use super::architecture_files::{gguf, golden, name, prompts};
use crate::plans::embedded;
use crate::{devices, tell};

/// A model and tokens for it, of which the first [`KNOWN`] are the prefix.
fn models() -> Vec<(&'static str, Arc<Model>, Vec<u32>)> {
    let golden = golden();
    let mut models = vec![("embedded", embedded(), (300..320).collect())];
    // Gated delta nets, and short convolutions.
    for recurrent in ["qwen35", "lfm2"] {
        let row = golden.iter().find(|row| name(row) == recurrent).unwrap();
        let tokens: Vec<u32> = prompts(row).concat().into_iter().cycle().take(20).collect();
        models.push((recurrent, Model::from_gguf(gguf(row)).unwrap(), tokens));
    }
    models
}

const KNOWN: usize = 13;

fn session(runtime: &Runtime, model: &Arc<Model>, cache: DType) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(48);
    builder.sequences(3).compute(ComputeMode::F32).cache(cache).build().unwrap()
}

fn read(session: &mut Session, sequence: usize, tokens: &[u32]) {
    session.step(StepRequest::tokens(sequence, tokens, Output::Nothing)).unwrap();
}

fn logits(session: &mut Session, sequence: usize, tokens: &[u32]) -> Vec<f32> {
    let request = StepRequest::tokens(sequence, tokens, Output::Logits);
    session.step(request).unwrap().into_logits()
}

#[test]
fn what_follows_a_moved_prefix_is_what_follows_it() {
    for (device, runtime) in devices::every(true) {
        for (name, model, tokens) in models() {
            for cache in [DType::F32, DType::F16] {
                check(&mut session(&runtime, &model, cache), &tokens);
            }
            tell(&format!("prefix: {device}: {name}"));
        }
    }
}

fn check(session: &mut Session, tokens: &[u32]) {
    let (first, rest) = tokens.split_at(KNOWN);
    let recurrent = session.model().config().is_recurrent();
    read(session, 2, first);
    let want = logits(session, 2, rest);
    assert!(want.iter().all(|v| v.is_finite()));
    // From a sequence that ends there.
    read(session, 0, first);
    session.hold_states(0).unwrap();
    read(session, 1, &rest[..3]);
    session.copy_prefix(0, 1, KNOWN).unwrap();
    assert_eq!(session.past_of(1), KNOWN);
    assert!(logits(session, 1, rest) == want);
    // The source goes on as if nothing had happened, and is copied where it was held.
    assert!(logits(session, 0, rest) == want);
    session.copy_prefix(0, 1, KNOWN).unwrap();
    assert!(logits(session, 1, rest) == want);
    // Through host memory, after which the sequence has other contents.
    let saved = session.save_prefix(0, KNOWN).unwrap();
    assert_eq!(saved.tokens(), first);
    session.truncate_sequence(0, 0).unwrap();
    read(session, 0, rest);
    session.load_prefix(0, &saved, KNOWN).unwrap();
    assert!(logits(session, 0, rest) == want);
    // States are held at one position; a run of the tokens since is not the same launch.
    session.hold_states(1).unwrap();
    assert_eq!(session.resumable(1, tokens.len()), tokens.len());
    session.truncate_sequence(1, 0).unwrap();
    read(session, 1, first);
    session.hold_states(1).unwrap();
    read(session, 1, &rest[..4]);
    session.truncate_sequence(1, KNOWN + 2).unwrap();
    let near = logits(session, 1, &rest[2..]);
    let most = near.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(most < 1e-2, "{most}");
    // What is not known is not copied.
    assert_eq!(session.resumable(2, KNOWN), if recurrent { 0 } else { KNOWN });
    assert_eq!(session.copy_prefix(2, 1, KNOWN).is_err(), recurrent);
    assert_eq!(session.load_prefix(1, &saved, KNOWN - 1).is_err(), recurrent);
    for wrong in [
        session.copy_prefix(0, 3, 1),
        session.copy_prefix(3, 0, 1),
        session.copy_prefix(2, 1, tokens.len() + 1),
        session.load_prefix(1, &saved, KNOWN + 1),
        session.save_prefix(2, tokens.len() + 1).map(drop),
    ] {
        assert!(wrong.is_err());
    }
    session.truncate_sequence(1, 0).unwrap();
    read(session, 1, first);
    assert!(logits(session, 1, rest) == want);
}

#[test]
fn a_prefix_of_another_model_is_refused() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let [(_, one, tokens), (_, other, _), _]: [_; 3] = models().try_into().ok().unwrap();
    let mut one = session(&runtime, &one, DType::F32);
    read(&mut one, 0, &tokens);
    let saved = one.save_prefix(0, 5).unwrap();
    let error = session(&runtime, &other, DType::F32).load_prefix(0, &saved, 5).unwrap_err();
    assert!(error.to_string().contains("of"), "{error}");
    let halves = one.model().clone();
    let error = session(&runtime, &halves, DType::F16).load_prefix(0, &saved, 5).unwrap_err();
    assert!(error.to_string().contains("bytes a position"), "{error}");
}
