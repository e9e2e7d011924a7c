//! Tests constraints, log probabilities, edits and several answers in the scheduler, with the
//! counting model: the next letter follows each token.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::test_rig::{Call, Rig, byte_tokenizer, done, job, read};
use super::{Begin, Ended, Failure, Guard, Job, LogitEdits, Piece};
use warploom_llm::structure::{Constraint, Grammar, Structure};

fn constraint(pattern: &str) -> Constraint {
    let structure = Structure::new(&byte_tokenizer()).unwrap();
    structure.compile(&Grammar::Regex(pattern.into())).unwrap()
}

fn guarded(prompt: &[u8], most: usize, guard: Guard) -> Job {
    job(prompt, most).guard(Some(guard))
}

#[test]
fn an_answer_follows_its_constraint_and_ends_with_it() {
    // The model would write "bcdef..".
    for (pattern, most, want, ended) in [
        ("[a-c]{3}", 9, "bca", Ended::Stop),
        ("x?b[c-e]+!", 4, "bcde", Ended::Length),
        ("b(c|q)d", 9, "bcd", Ended::Stop),
        ("[0-9]{2}", 9, "01", Ended::Stop),
        ("hello", 9, "hello", Ended::Stop),
        ("hello", 3, "hel", Ended::Length),
        ("hello", 5, "hello", Ended::Stop),
    ] {
        let mut rig = Rig::new(1);
        let ticket = rig.ask(guarded(b"a", most, Guard::new(constraint(pattern))));
        rig.turns();
        let (text, done) = done(&ticket);
        assert_eq!((text.as_str(), done.ended), (want, ended), "{pattern}");
        assert_eq!(done.completion_tokens, want.len());
    }
}

#[test]
fn forced_tokens_run_as_one_chunk() {
    let mut rig = Rig::new(1);
    let ticket = rig.ask(guarded(b"a", 30, Guard::new(constraint("[bx]12345[67]890z*"))));
    rig.turns();
    assert_eq!(done(&ticket).0, "b123456890");
    // The prompt; the four and one forced tokens after "b", in pieces of four; the two after "6".
    let want = [Call::Each(vec![0]), Call::One(0, 4), Call::One(0, 2), Call::One(0, 4)];
    assert_eq!(rig.scheduler.steps().calls, want);
}

#[test]
fn a_constraint_may_begin_in_the_middle_of_an_answer() {
    let guard = Guard::new(constraint("[0-9]z")).begin(Begin::After("de".into()));
    let mut rig = Rig::new(2);
    let once = rig.ask(guarded(b"a", 9, guard.clone()));
    let free = rig.ask(job(b"a", 9));
    rig.turns();
    assert_eq!(done(&once).0, "bcde0z");
    assert_eq!(done(&free).0, "bcdefghij");
    // The model ends after "z", or the text goes on to the next marker.
    let guard = Guard::new(constraint("[0-9]c")).begin(Begin::After("de".into())).repeats(true);
    let ticket = rig.ask(guarded(b"a", 12, guard));
    rig.turns();
    assert_eq!(done(&ticket).0, "bcde0cde0cde");
}

#[test]
fn others_are_not_disturbed() {
    let mut rig = Rig::new(3);
    let tickets = [
        rig.ask(guarded(b"a", 9, Guard::new(constraint("[0-9]{3}[xy]1111[78]")))),
        rig.ask(job(b"f", 6)),
        rig.ask(guarded(b"m", 4, Guard::new(constraint("n[op]*[qr]")))),
    ];
    rig.turns();
    let texts = tickets.each_ref().map(|ticket| done(ticket).0);
    assert_eq!(texts, ["012x11117", "ghijkl", "nopq"]);
}

#[test]
fn log_probabilities_come_with_each_token() {
    let mut rig = Rig::new(1);
    let ticket = rig.ask(job(b"a", 3).logprobs(Some(2)));
    rig.turns();
    let mut entries = Vec::new();
    while let Some(piece) = ticket.next(Duration::ZERO) {
        match piece {
            Piece::Logprob(entry) => entries.push(*entry),
            Piece::Done(_) => break,
            _ => {}
        }
    }
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.bytes.clone()).collect();
    assert_eq!(bytes, b"bcd");
    // One logit is 20, the other 255 are 0.
    let want = -(1.0 + 255.0 * (-20f32).exp()).ln();
    for entry in &entries {
        assert!((entry.logprob - want).abs() < 1e-6, "{entry:?}");
        assert_eq!(entry.top[0], (entry.token, entry.bytes.clone(), entry.logprob));
        assert_eq!(entry.top.len(), 2);
        assert!((entry.top[1].2 + 20.0).abs() < 1e-3, "{entry:?}");
    }
    // They are those of the model, not of the constraint, and each token has its own.
    let guard = Guard::new(constraint("xyz"));
    let ticket = rig.ask(guarded(b"a", 9, guard).logprobs(Some(0)));
    rig.turns();
    let mut count = 0;
    while let Some(Piece::Logprob(_) | Piece::Started { .. } | Piece::Text(_)) = ticket
        .next(Duration::ZERO)
        .inspect(|piece| count += usize::from(matches!(piece, Piece::Logprob(_))))
    {}
    assert_eq!(count, 3);
}

#[test]
fn edits_change_what_is_chosen() {
    let mut rig = Rig::new(1);
    let mut ask = |job: Job| {
        let ticket = rig.ask(job);
        rig.turns();
        done(&ticket)
    };
    let biased =
        LogitEdits::default().bias(vec![(u32::from(b'b'), -100.0), (u32::from(b'q'), 1.0)]);
    assert_eq!(ask(job(b"a", 2).edits(biased)).0, "qr");
    // The model would end after "z".
    let least = LogitEdits::default().min_tokens(3).ends(vec![0]);
    let (text, ended) = ask(job(b"y", 9).edits(least));
    assert!(text.starts_with('z') && ended.completion_tokens >= 4, "{text:?}");
    assert_eq!(ask(job(b"y", 9)).1.completion_tokens, 2);
    let (text, ended) = ask(job(b"y", 4).ignore_end(true));
    assert_eq!((text.as_str(), ended.completion_tokens), ("z\u{0}\u{1}\u{2}", 4));
    // After "b", the letter that was written is far less likely.
    let often = LogitEdits::default().frequency_penalty(2.0).presence_penalty(2.0);
    assert_eq!(ask(job(b"a", 3).edits(often)).0, "bcd");
    let shown = HashMap::from([(u32::from(b'c'), Arc::from("[mark]"))]);
    assert_eq!(ask(job(b"a", 3).shown(Arc::new(shown))).0, "b[mark]d");
}

#[test]
fn answers_of_one_request_arrive_together() {
    let mut rig = Rig::new(2);
    let jobs = vec![job(b"a", 2), job(b"k", 3), job(b"t", 1)];
    let ticket = rig.queue.submit_all(jobs).unwrap();
    rig.turns();
    let mut texts = [String::new(), String::new(), String::new()];
    let mut ended = 0;
    while let Some((index, piece)) = ticket.next_of_all(Duration::ZERO) {
        match piece {
            Piece::Text(text) => texts[index].push_str(&text),
            Piece::Done(_) => ended += 1,
            _ => {}
        }
        if ended == 3 {
            break;
        }
    }
    assert_eq!(texts, ["bc", "lmn", "u"]);
    // All or none fit into the queue of 8.
    let many = || (0..6).map(|_| job(b"a", 1)).collect::<Vec<_>>();
    let first = rig.queue.submit_all(many()).unwrap();
    assert!(matches!(rig.queue.submit_all(many()), Err(Failure::Full(8))));
    assert_eq!(rig.queue.waiting(), 6);
    drop(first);
    rig.queue.submit_all(many()).unwrap();
}

#[test]
fn a_constraint_that_fails_is_that_requests_alone() {
    let mut rig = Rig::new(2);
    // At the marker the grammar is already left: the text goes on without it.
    let guard = Guard::new(constraint("1")).begin(Begin::After("c".into()));
    let ticket = rig.ask(guarded(b"a", 5, guard));
    let other = rig.ask(job(b"m", 4));
    rig.turns();
    assert_eq!(done(&ticket).0, "bc1");
    assert_eq!(done(&other).0, "nopq");
    // A bias outside the vocabulary.
    let wrong = LogitEdits::default().bias(vec![(999, 1.0)]);
    let ticket = rig.ask(job(b"a", 5).edits(wrong));
    rig.turns();
    match read(&ticket).1 {
        Some(Err(Failure::Request(error))) => {
            assert!(error.to_string().contains("token 999"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!rig.queue.is_failing());
}
