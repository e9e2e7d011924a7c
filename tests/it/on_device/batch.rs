//! Sequences of different lengths in a batch over one KV cache: each gives what it gives alone.

use std::sync::Arc;

use warploom::provider::DeviceKind;
use warploom::runtime::Runtime;
use warploom_core::base::ComputeMode;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{MAX_SEQUENCES, Model, Output, Session, StepRequest};

use crate::plans::embedded;
use crate::{devices, tell};

const CONTEXT: usize = 96;
const PROMPTS: [&str; 9] = [
    "Once upon a time",
    "Tom",
    "The little dog ran to the park and saw a big red ball under a tree. The dog",
    "One day, Lily and her mom went to",
    "A",
    "There was a bird who could not fly. Every day the other birds laughed, and the bird",
    "The sun was",
    "Ben likes to play with his cars. He has a red car, a blue car and",
    "It was raining",
];

fn session(runtime: &Runtime, model: &Arc<Model>, sequences: usize) -> Session {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(CONTEXT);
    builder.sequences(sequences).compute(ComputeMode::F32).build().unwrap()
}

/// The best token after these of a sequence.
fn best(session: &mut Session, sequence: usize, tokens: &[u32]) -> u32 {
    session.step(StepRequest::tokens(sequence, tokens, Output::Greedy)).unwrap().token().unwrap()
}

fn fill(session: &mut Session, sequence: usize, tokens: &[u32]) {
    session.step(StepRequest::tokens(sequence, tokens, Output::Nothing)).unwrap();
}

fn best_each(session: &mut Session, tokens: &[(usize, u32)]) -> warploom::Result<Vec<u32>> {
    session.step(StepRequest::batch(tokens, Output::Greedy))?.tokens()
}

/// Tokens of each, by runs.
fn run_ahead(
    session: &mut Session,
    sequences: &[usize],
    count: usize,
) -> warploom::Result<Vec<u32>> {
    session.step(StepRequest::run_ahead(sequences, count, Output::Greedy))?.tokens()
}

fn prompt(model: &Model, i: usize) -> Vec<u32> {
    let options = EncodeOptions::default().add_bos(true);
    model.tokenizer().encode(PROMPTS[i], options).unwrap()
}

/// The tokens that follow a prompt, and the gap of each logit to the second best.
fn alone(session: &mut Session, prompt: &[u32], count: usize) -> Vec<(u32, f32)> {
    session.truncate(0).unwrap();
    let mut next = prompt.to_vec();
    let mut tokens = Vec::new();
    for _ in 0..count {
        let logits = session.step(StepRequest::tokens(0, &next, Output::Logits)).unwrap();
        let logits = logits.into_logits();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.select_nth_unstable_by(1, |a, b| logits[*b].total_cmp(&logits[*a]));
        let gap = logits[order[0]] - logits[order[1]];
        tokens.push((order[0] as u32, gap));
        next = vec![order[0] as u32];
    }
    tokens
}

/// Sequences with different starts, prompt lengths and ends; then others in their places.
#[test]
fn each_sequence_is_what_it_is_alone() {
    let model = embedded();
    for (label, runtime) in devices::every(false) {
        let slow = runtime.device().profile().kind == DeviceKind::Software;
        let sequences = if slow { 4 } else { PROMPTS.len() };
        let count = if slow { 6 } else { 20 };
        let mut one = session(&runtime, &model, 1);
        let want: Vec<Vec<(u32, f32)>> =
            (0..sequences).map(|i| alone(&mut one, &prompt(&model, i), count)).collect();
        drop(one);
        let mut all = session(&runtime, &model, sequences);
        for round in 0..2 {
            let mut have: Vec<Vec<u32>> = vec![Vec::new(); sequences];
            // In the second round each prompt has another's place.
            let place = |i: usize| (i + round) % sequences;
            for turn in 0..count + sequences {
                for i in (0..sequences).filter(|i| turn == *i) {
                    all.truncate_sequence(place(i), 0).unwrap();
                    let tokens = prompt(&model, i);
                    have[i].push(best(&mut all, place(i), &tokens));
                }
                let running: Vec<usize> = (0..sequences)
                    .rev()
                    .filter(|i| !have[*i].is_empty() && have[*i].len() < count)
                    .collect();
                if running.is_empty() {
                    continue;
                }
                let last = |i: &usize| (place(*i), *have[*i].last().unwrap());
                let tokens: Vec<(usize, u32)> = running.iter().map(last).collect();
                let next = best_each(&mut all, &tokens).unwrap();
                assert_eq!(next.len(), running.len());
                running.iter().zip(next).for_each(|(i, token)| have[*i].push(token));
            }
            for i in 0..sequences {
                let clear = want[i].iter().take_while(|(_, gap)| *gap > 1e-3).count();
                let expected: Vec<u32> = want[i].iter().map(|(token, _)| *token).collect();
                assert_eq!(have[i].len(), count);
                assert_eq!(have[i][..clear], expected[..clear], "{label}: sequence {i}");
                assert!(clear > 2, "{label}: {:?}", want[i]);
            }
        }
        tell(&format!("batch: {label}: {sequences} sequences as each alone"));
    }
}

#[test]
fn logits_of_each_come_in_their_order() {
    let model = embedded();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let mut one = session(&runtime, &model, 1);
    let mut all = session(&runtime, &model, 4);
    let vocabulary = model.config().vocabulary;
    for i in [3, 0, 2] {
        fill(&mut all, i, &prompt(&model, i));
    }
    let tokens = [(2, 5), (3, 9), (0, 7)];
    let each = all.step(StepRequest::batch(&tokens, Output::Logits)).unwrap();
    assert_eq!(each.logits().len(), 3 * vocabulary);
    assert_eq!(each.rows().len(), 3);
    for ((row, (i, token)), have) in tokens.into_iter().enumerate().zip(each.rows()) {
        one.truncate(0).unwrap();
        fill(&mut one, 0, &prompt(&model, i));
        let want = one.step(StepRequest::tokens(0, &[token], Output::Logits)).unwrap();
        let want = want.into_logits();
        let most = want.iter().zip(have).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 1e-4, "row {row}: {most}");
        assert_eq!(all.past_of(i), prompt(&model, i).len() + 1);
    }
    assert_eq!(all.past_of(1), 0);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let model = embedded();
    let runtime = Runtime::builder().device("null").build().unwrap();
    let mut session = session(&runtime, &model, 3);
    fill(&mut session, 1, &vec![5; CONTEXT]);
    let mut refused = |tokens: &[(usize, u32)], part: &str| {
        let error = best_each(&mut session, tokens).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(part), "{error}");
        assert_eq!([0, 1, 2, 3].map(|i| session.past_of(i)), [0, CONTEXT, 0, 0]);
    };
    refused(&[], "no tokens");
    refused(&[(0, 1), (3, 1)], "sequence 3 of 3");
    refused(&[(0, 1), (2, 1), (0, 1)], "sequence 0 twice");
    refused(&[(0, 1), (1, 1)], "do not fit a context of 96");
    refused(&[(0, 1), (2, 1 << 30)], "vocabulary");
    let error = session.truncate_sequence(2, 1).unwrap_err().to_string();
    assert!(error.contains("0 are filled"), "{error}");
    assert!(session.truncate_sequence(9, 0).unwrap_err().is_invalid());
    for sequences in [0, MAX_SEQUENCES + 1] {
        let builder = Session::builder(model.clone()).runtime(runtime.clone());
        let new = builder.sequences(sequences).build();
        assert!(new.err().unwrap().to_string().contains("1 to 64"));
    }
}

/// After the first, a batched run is one submit and one wait, like a single one.
#[test]
fn a_steady_run_of_each_is_one_submit() {
    let model = embedded();
    let runtime = Runtime::builder().device("null").build().unwrap();
    let mut session = session(&runtime, &model, 8);
    let run = |session: &mut Session, count: usize| {
        let tokens: Vec<(usize, u32)> = (0..count).map(|i| (i, 3)).collect();
        let before = session.device().counters();
        best_each(session, &tokens).unwrap();
        let after = session.device().counters();
        [
            after.submits - before.submits,
            after.waits - before.waits,
            after.allocations - before.allocations,
            after.compiles - before.compiles,
            after.downloaded_bytes - before.downloaded_bytes,
        ]
    };
    run(&mut session, 8);
    for count in [8, 2, 5, 8] {
        assert_eq!(run(&mut session, count), [1, 1, 0, 0, 4 * count as u64]);
    }
}

/// Run-ahead tokens equal those chosen one at a time.
#[test]
fn tokens_ahead_are_those_of_single_runs() {
    let model = embedded();
    for (label, runtime) in devices::every(false) {
        if devices::compiles_slowly(&label, &runtime) {
            continue;
        }
        let mut one = session(&runtime, &model, 1);
        let slow = runtime.device().profile().kind == DeviceKind::Software;
        let want = alone(&mut one, &prompt(&model, 0), 18);
        let clear = want.iter().take_while(|(_, gap)| *gap > 1e-3).count();
        assert!(clear > 2, "{label}: {want:?}");
        let want: Vec<u32> = want.into_iter().map(|(token, _)| token).collect();
        for (sequences, sequence) in [(1, 0), (3, 2)].into_iter().skip(usize::from(slow)) {
            let mut session = session(&runtime, &model, sequences);
            let tokens = prompt(&model, 0);
            let mut have = vec![best(&mut session, sequence, &tokens)];
            for count in [1, 8, 3] {
                have.extend(run_ahead(&mut session, &[sequence], count).unwrap());
            }
            // Back in the midst of them, and on by hand.
            let past = session.past_of(sequence);
            assert_eq!(past, tokens.len() + have.len() - 1);
            session.truncate_sequence(sequence, past - 4).unwrap();
            have.truncate(have.len() - 4);
            for _ in 0..2 {
                let last = *have.last().unwrap();
                have.push(best(&mut session, sequence, &[last]));
            }
            have.extend(run_ahead(&mut session, &[sequence], 4).unwrap());
            let clear = clear.min(have.len());
            assert_eq!(have[..clear], want[..clear], "{label}: sequence {sequence}");
        }
    }
}

#[test]
fn tokens_ahead_need_a_chosen_one_and_room() {
    let model = embedded();
    let runtime = Runtime::builder().device("null").build().unwrap();
    let mut session = session(&runtime, &model, 2);
    let refused = |session: &mut Session, sequence: usize, count: usize, part: &str| {
        let error = run_ahead(session, &[sequence], count).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(part), "{error}");
    };
    refused(&mut session, 1, 1, "chose none");
    refused(&mut session, 2, 1, "sequence 2 of 2");
    best(&mut session, 1, &[1, 2]);
    refused(&mut session, 0, 1, "chose none");
    refused(&mut session, 1, CONTEXT - 1, "do not fit");
    let before = session.device().counters();
    run_ahead(&mut session, &[1], 4).unwrap();
    run_ahead(&mut session, &[1], 4).unwrap();
    let after = session.device().counters();
    assert_eq!(after.submits - before.submits, 8);
    assert_eq!(after.downloaded_bytes - before.downloaded_bytes, 32);
    session.truncate_sequence(1, 5).unwrap();
    refused(&mut session, 1, 1, "chose none");
    session.step(StepRequest::tokens(1, &[1], Output::Logits)).unwrap();
    refused(&mut session, 1, 1, "chose none");
}

/// Run-ahead tokens of several sequences, in any order, mixed with single runs.
#[test]
fn tokens_of_each_ahead_are_what_they_are_alone() {
    let model = embedded();
    for (label, runtime) in devices::every(false) {
        if devices::compiles_slowly(&label, &runtime) {
            continue;
        }
        let slow = runtime.device().profile().kind == DeviceKind::Software;
        let sequences = if slow { 3 } else { PROMPTS.len() };
        let counts: &[usize] = if slow { &[1, 3] } else { &[1, 8, 3] };
        let total = 3 + counts.iter().sum::<usize>();
        let mut one = session(&runtime, &model, 1);
        let want: Vec<_> =
            (0..sequences).map(|i| alone(&mut one, &prompt(&model, i), total)).collect();
        drop(one);
        let mut all = session(&runtime, &model, sequences);
        let mut have: Vec<Vec<u32>> = Vec::new();
        for i in 0..sequences {
            have.push(vec![best(&mut all, i, &prompt(&model, i))]);
        }
        let mut order: Vec<usize> = (0..sequences).collect();
        for count in counts {
            let tokens = run_ahead(&mut all, &order, *count).unwrap();
            assert_eq!(tokens.len(), *count * sequences);
            for run in tokens.chunks(sequences) {
                order.iter().zip(run).for_each(|(i, token)| have[*i].push(*token));
            }
            order.rotate_left(1);
        }
        // By hand for all, then ahead for one.
        let last: Vec<(usize, u32)> =
            order.iter().map(|i| (*i, *have[*i].last().unwrap())).collect();
        let next = best_each(&mut all, &last).unwrap();
        order.iter().zip(next).for_each(|(i, token)| have[*i].push(token));
        for (i, tokens) in have.iter_mut().enumerate() {
            tokens.extend(run_ahead(&mut all, &[i], 1).unwrap());
            let clear = want[i].iter().take_while(|(_, gap)| *gap > 1e-3).count();
            let expected: Vec<u32> = want[i].iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens.len(), total);
            assert_eq!(tokens[..clear], expected[..clear], "{label}: sequence {i}");
        }
        tell(&format!("batch: {label}: {sequences} sequences ahead as each alone"));
    }
}

#[test]
fn tokens_of_each_ahead_need_chosen_ones_and_room() {
    let model = embedded();
    let runtime = Runtime::builder().device("null").build().unwrap();
    let mut session = session(&runtime, &model, 3);
    let refused = |session: &mut Session, sequences: &[usize], count: usize, part: &str| {
        let error = run_ahead(session, sequences, count).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(part), "{error}");
    };
    best(&mut session, 1, &[1, 2]);
    fill(&mut session, 0, &[1, 2]);
    refused(&mut session, &[], 1, "no sequences");
    refused(&mut session, &[1, 0], 1, "chose none");
    refused(&mut session, &[1, 1], 1, "twice");
    refused(&mut session, &[3], 1, "sequence 3 of 3");
    refused(&mut session, &[1], CONTEXT - 1, "do not fit");
    best_each(&mut session, &[(0, 3), (1, 4)]).unwrap();
    let before = session.device().counters();
    run_ahead(&mut session, &[1, 0], 4).unwrap();
    let after = session.device().counters();
    assert_eq!(after.submits - before.submits, 4);
    assert_eq!(after.downloaded_bytes - before.downloaded_bytes, 4 * 8);
    assert_eq!([0, 1].map(|i| session.past_of(i)), [7, 7]);
    session.step(StepRequest::batch(&[(0, 3), (1, 4)], Output::Logits)).unwrap();
    refused(&mut session, &[0], 1, "chose none");
    refused(&mut session, &[0, 1], 1, "chose none");
    let request = StepRequest::run_ahead(&[0, 1], 2, Output::Sample(&[]));
    let error = session.step(request).unwrap_err();
    assert!(error.to_string().contains("0 sampling parameters for 4 tokens"), "{error}");
    let error = session.step(StepRequest::run_ahead(&[0], 1, Output::Logits)).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("goes on from a token"), "{error}");
}
