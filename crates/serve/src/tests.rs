//! Tests the scheduler with a counting model.

use std::time::{Duration, Instant};

use super::test_rig::{Call, Rig, done, done_of, job, read};
use super::{Ended, Failure, Job, Piece, Ticket, after};
use warploom_llm::Sampling;

#[test]
fn answers_of_many_do_not_mix() {
    // Min-p leaves one token: the device samples; with a penalty the host does, from logits.
    let drawn = Sampling::default().min_p(0.5).temperature(1.0);
    let penalised = drawn.clone().repetition_penalty(1.01);
    let all = [Sampling::greedy(), drawn, penalised];
    for mix in [[0, 0], [1, 1], [2, 2], [0, 1], [1, 2]] {
        let mut rig = Rig::new(3);
        let prompts: [&[u8]; 5] = [b"xxxxa", b"f", b"hello w", b"wxyzm", b"u"];
        let mut i = 0;
        let tickets = prompts.map(|p| {
            i += 1;
            rig.ask(Job { sampling: all[mix[i % 2]].clone(), ..job(p, 4) })
        });
        rig.turns();
        let texts = tickets.iter().map(|ticket| done(ticket).0).collect::<Vec<_>>();
        assert_eq!(texts, ["bcde", "ghij", "xyz", "nopq", "vwxy"]);
        let ended = done_of(&mut rig, job(b"hello w", 9));
        assert_eq!((ended.ended, ended.completion_tokens), (Ended::Stop, 4));
    }
}

#[test]
fn a_token_that_cannot_be_chosen_is_that_requests_alone() {
    let drawn = Sampling::default().min_p(0.5).temperature(1.0);
    let penalised = drawn.clone().repetition_penalty(1.01);
    let all = [Sampling::greedy(), drawn, penalised];
    for (one, other) in (0..9).map(|i| (i / 3, i % 3)) {
        let mut rig = Rig::new(2);
        let ask = |p: &[u8], i: usize| rig.ask(Job { sampling: all[i].clone(), ..job(p, 4) });
        let tickets = [ask(b"a\"", one), ask(b"mm", other)];
        rig.turns();
        match read(&tickets[0]) {
            (text, Some(Err(Failure::Model(error)))) => {
                assert_eq!(text, "#");
                let error = error.to_string();
                assert!(error.contains("position 3") && error.contains("36 is NaN"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(done(&tickets[1]).0, "nopq");
        // Its cache is dropped, and the prompt itself may end before a token.
        assert_eq!(done_of(&mut rig, job(b"a\"", 1)).cached_tokens, 0);
        let ticket = rig.ask(Job { sampling: all[one].clone(), ..job(b"a#", 4) });
        rig.turns();
        assert!(matches!(read(&ticket), (text, Some(Err(Failure::Model(_)))) if text.is_empty()));
        assert!(!rig.queue.is_failing());
    }
}

#[test]
fn prompts_are_read_in_pieces_between_tokens() {
    let mut rig = Rig::new(3);
    let writing = rig.ask(job(b"a", 20));
    rig.scheduler.turn();
    let long = [rig.ask(job(&[b'b'; 10], 2)), rig.ask(job(&[b'c'; 10], 2))];
    rig.turns();
    // Chunks of the two alternate, each followed by a token of the first.
    let calls = &rig.scheduler.steps().calls;
    let want = [
        Call::Each(vec![0]),
        Call::One(1, 4),
        Call::Each(vec![0]),
        Call::One(2, 4),
        Call::Each(vec![0]),
        Call::One(1, 4),
        Call::Each(vec![0]),
        Call::One(2, 4),
        Call::Each(vec![0]),
        Call::One(1, 2),
        Call::Each(vec![0, 1]),
        Call::One(2, 2),
    ];
    assert_eq!(calls[..want.len()], want);
    assert_eq!(done(&writing).0, "bcdefghijklmnopqrstu");
    assert_eq!(long.each_ref().map(|ticket| done(ticket).0), ["cd", "de"]);
}

#[test]
fn requests_start_in_order_and_a_full_queue_refuses() {
    let mut rig = Rig::new(1);
    let tickets: Vec<Ticket> = (0..8).map(|i| rig.ask(job(&[b'a' + i], 2))).collect();
    match rig.queue.submit(job(b"x", 1)) {
        Err(Failure::Full(8)) => {}
        other => panic!("{other:?}"),
    }
    for ended in 0..8 {
        while read(&tickets[ended]).1.is_none() {
            assert!(rig.scheduler.turn());
            for later in &tickets[ended + 1..] {
                assert!(later.next(Duration::ZERO).is_none());
            }
        }
    }
    // A cancelled request frees its slot in the queue.
    let mut tickets: Vec<Ticket> = (0..8).map(|_| rig.ask(job(b"q", 1))).collect();
    tickets.pop();
    tickets.push(rig.ask(job(b"q", 1)));
    rig.turns();
    assert!(tickets.iter().all(|ticket| done(ticket).0 == "r"));
}

#[test]
fn a_closed_connection_frees_its_sequence_at_the_next_step() {
    let mut rig = Rig::new(1);
    let first = rig.ask(job(b"a", 20));
    let reading = rig.ask(job(b"b", 1));
    rig.scheduler.turn();
    rig.scheduler.turn();
    assert_eq!((rig.queue.running(), rig.queue.waiting()), (1, 1));
    drop(first);
    rig.scheduler.turn();
    assert_eq!(done(&reading).0, "c");
    // Also in the middle of a prompt.
    let long = rig.ask(job(&[b'c'; 20], 5));
    rig.scheduler.turn();
    drop(long);
    assert!(!rig.scheduler.turn());
    assert_eq!(rig.queue.running(), 0);
}

#[test]
fn a_common_beginning_is_not_read_again() {
    let mut rig = Rig::new(2);
    assert_eq!(done_of(&mut rig, job(b"the cat", 2)).cached_tokens, 0);
    assert_eq!(done_of(&mut rig, job(b"another", 2)).cached_tokens, 0);
    // The generated tokens are in the cache as well, except the last, which never ran.
    let again = done_of(&mut rig, job(b"the catuv!", 2));
    assert_eq!(again.cached_tokens, 8);
    assert_eq!(done_of(&mut rig, job(b"anode", 2)).cached_tokens, 3);
    // The whole prompt is cached: its last token runs again.
    assert_eq!(done_of(&mut rig, job(b"anode", 2)).cached_tokens, 4);
    // Nothing in common: the least recently used sequence is taken, and "anode" stays.
    assert_eq!(done_of(&mut rig, job(b"xyz", 2)).cached_tokens, 0);
    assert_eq!(done_of(&mut rig, job(b"anode", 2)).cached_tokens, 4);
}

#[test]
fn stop_strings_and_limits_end_answers() {
    /// Prompt, maximum tokens and stop strings; expected text and end.
    type Row<'a> = (&'a [u8], usize, &'a [&'a str], &'a str, Ended);
    let rows: [Row<'_>; 7] = [
        (b"a", 9, &["de"], "bc", Ended::Stop),
        (b"a", 9, &["xx", "f"], "bcde", Ended::Stop),
        (b"a", 3, &["dx"], "bcd", Ended::Length),
        (b"a", 3, &["d"], "bc", Ended::Stop),
        (b"w", 9, &["zz"], "xyz", Ended::Stop),
        (b"\xe2", 3, &[], "\u{fffd}\u{fffd}a", Ended::Length),
        (&[b'a'; 31], 9, &[], "bc", Ended::Length),
    ];
    for (prompt, most, stops, want, ended) in rows {
        let mut rig = Rig::new(1);
        let stop = stops.iter().map(|stop| stop.to_string()).collect();
        let ticket = rig.ask(Job { stop, ..job(prompt, most) });
        rig.turns();
        let (text, done) = done(&ticket);
        assert_eq!((text.as_str(), done.ended), (want, ended), "{stops:?}");
    }
}

#[test]
fn characters_are_whole_and_stops_stand_across_them() {
    // The model generates the three bytes of the euro sign only after 0xe1, so the prompt ends in
    // that byte.
    let mut rig = Rig::new(1);
    let ticket = rig.ask(job(b"\xe1", 4));
    let mut pieces = Vec::new();
    while rig.scheduler.turn() {
        while let Some(piece) = ticket.next(Duration::ZERO) {
            let end = matches!(piece, Piece::Done(_));
            if let Piece::Text(text) = piece {
                pieces.push(text);
            }
            if end {
                break;
            }
        }
    }
    assert_eq!(pieces, ["\u{20ac}", "a"]);
    let ticket = rig.ask(Job { stop: vec!["\u{20ac}a".into()], ..job(b"\xe1", 9) });
    rig.turns();
    let (text, done) = done(&ticket);
    assert_eq!((text.as_str(), done.ended, done.completion_tokens), ("", Ended::Stop, 4));
}

#[test]
fn a_device_error_fails_what_runs_and_nothing_else() {
    for fails_at in [1, 3, 6] {
        let mut rig = Rig::new(2);
        rig.scheduler.steps.fails_at = Some(fails_at);
        let running = [rig.ask(job(&[b'a'; 6], 9)), rig.ask(job(b"m", 9))];
        let waiting = rig.ask(job(b"q", 2));
        rig.turns();
        for ticket in &running {
            match read(ticket).1 {
                Some(Err(Failure::Device(error))) => {
                    assert!(error.to_string().contains("planted failure"), "{error}");
                }
                other => panic!("run {fails_at}: {other:?}"),
            }
        }
        assert_eq!(done(&waiting).0, "rs");
        assert!(!rig.queue.is_failing());
        // No cache is valid after it.
        assert_eq!(done_of(&mut rig, job(&[b'a'; 6], 2)).cached_tokens, 0);
    }
}

#[test]
fn deadlines_and_the_end_are_kept() {
    let mut rig = Rig::new(1);
    let soon = Instant::now() + Duration::from_millis(20);
    let (late, waits) = (job(b"a", 20), job(b"b", 20));
    let late = rig.ask(Job { deadline: soon, ..late });
    let waits = rig.ask(Job { deadline: soon, ..waits });
    rig.scheduler.turn();
    std::thread::sleep(Duration::from_millis(25));
    rig.turns();
    for ticket in [&late, &waits] {
        assert!(matches!(read(ticket).1, Some(Err(Failure::Late))));
    }

    let runs = rig.ask(job(b"a", 3));
    rig.scheduler.turn();
    let waits = rig.ask(job(b"b", 3));
    rig.queue.stop(Instant::now() + Duration::from_secs(60));
    assert!(matches!(rig.queue.submit(job(b"c", 1)), Err(Failure::Stopping)));
    rig.scheduler.run();
    assert_eq!(done(&runs).0, "bcd");
    assert!(matches!(read(&waits).1, Some(Err(Failure::Stopping))));

    let mut rig = Rig::new(1);
    let runs = rig.ask(job(b"a", 20));
    rig.scheduler.turn();
    rig.queue.stop(Instant::now());
    rig.scheduler.run();
    assert!(matches!(read(&runs).1, Some(Err(Failure::Stopping))));
}

#[test]
fn what_cannot_run_is_refused() {
    let mut rig = Rig::new(1);
    let wrong = Sampling::default().temperature(-1.0);
    let jobs = [job(b"", 1), job(&[b'a'; 33], 1), Job { sampling: wrong, ..job(b"a", 1) }];
    for job in jobs {
        let ticket = rig.ask(job);
        rig.turns();
        assert!(matches!(read(&ticket).1, Some(Err(Failure::Request(_)))));
    }
    assert!(rig.scheduler.steps().calls.is_empty());
}

#[test]
fn no_time_is_too_long_for_a_clock() {
    let now = Instant::now();
    assert_eq!(after(now, Duration::from_secs(600)), now + Duration::from_secs(600));
    let last = after(now, Duration::MAX);
    assert!(last > now + Duration::from_secs(1_000_000) && after(last, Duration::MAX) > last);
}
