//! Tests which sequence a request takes, and what is copied to it.

use super::test_rig::{Call, Rig, done, done_of, job};

/// A prompt: `count` times a letter, then a text.
fn prompt(letter: u8, count: usize, text: &str) -> Vec<u8> {
    [vec![letter; count].as_slice(), text.as_bytes()].concat()
}

/// Returns the calls that are no runs.
fn copies(rig: &Rig) -> Vec<Call> {
    let calls = rig.scheduler.steps().calls.iter();
    calls.filter(|call| !matches!(call, Call::One(..) | Call::Each(_))).cloned().collect()
}

#[test]
fn a_prefix_is_copied_from_a_sequence_that_writes() {
    let mut rig = Rig::with(2, 256, 64, false);
    let first = rig.ask(job(&prompt(b's', 50, "first?"), 8));
    rig.scheduler.turn();
    let second = rig.ask(job(&prompt(b's', 50, "Ask"), 2));
    rig.turns();
    assert_eq!(copies(&rig), [Call::Copy(0, 1, 50)]);
    let (text, ended) = done(&second);
    assert_eq!((text.as_str(), ended.cached_tokens), ("lm", 50));
    assert_eq!(done(&first).1.cached_tokens, 0);
}

#[test]
fn a_conversation_outlives_requests_that_share_its_beginning() {
    let mut rig = Rig::with(2, 256, 64, false);
    let long = prompt(b's', 50, &"a long talk ".repeat(8));
    done_of(&mut rig, job(&long, 2));
    for other in ["x", "y", "z"] {
        assert_eq!(done_of(&mut rig, job(&prompt(b's', 50, other), 2)).cached_tokens, 50);
    }
    // All four share the second sequence's beginning, which is copied once.
    assert_eq!(copies(&rig), [Call::Copy(0, 1, 50)]);
    let more = [long.as_slice(), b"!"].concat();
    assert_eq!(done_of(&mut rig, job(&more, 2)).cached_tokens, long.len());
}

#[test]
fn a_short_common_beginning_is_not_worth_a_copy() {
    let mut rig = Rig::with(2, 256, 64, false);
    done_of(&mut rig, job(&prompt(b's', 20, &"one".repeat(20)), 2));
    assert_eq!(done_of(&mut rig, job(&prompt(b's', 20, "two"), 2)).cached_tokens, 0);
    assert_eq!(copies(&rig), []);
}

#[test]
fn a_conversation_comes_back_from_host_memory() {
    let mut rig = Rig::with(1, 256, 64, false);
    rig.scheduler = rig.scheduler.prefix_memory(150);
    let talks: Vec<Vec<u8>> = (b'a'..b'e').map(|letter| prompt(letter, 60, "?")).collect();
    done_of(&mut rig, job(&talks[0], 1));
    done_of(&mut rig, job(&talks[1], 1));
    assert_eq!(copies(&rig), [Call::Save(0, 61)]);
    assert_eq!(done_of(&mut rig, job(&talks[0], 1)).cached_tokens, 60);
    assert_eq!(copies(&rig)[1..], [Call::Save(0, 61), Call::Load(0, 60)]);
    // The first is there still, so it is not kept again.
    done_of(&mut rig, job(&talks[2], 1));
    assert_eq!(copies(&rig)[3..], []);
    // The third takes the room of the first, which was used before the second was kept.
    done_of(&mut rig, job(&talks[3], 1));
    assert_eq!(copies(&rig)[3..], [Call::Save(0, 61)]);
    assert!(rig.queue.metrics.text(&rig.queue).contains("warploom:prefix_memory_bytes 122"));
    assert_eq!(done_of(&mut rig, job(&talks[0], 1)).cached_tokens, 0);
}

/// A copy to the host has all tokens, whatever part of them would be lost.
#[test]
fn what_others_have_for_the_most_part_is_not_kept() {
    let mut rig = Rig::with(2, 256, 64, false);
    rig.scheduler = rig.scheduler.prefix_memory(1000);
    for question in b'a'..b'h' {
        done_of(&mut rig, job(&prompt(b's', 100, &char::from(question).to_string().repeat(40)), 1));
    }
    // Each goes on after the beginning; 40 of 140 tokens are lost.
    assert_eq!(copies(&rig), []);
    // What shares 20 tokens takes a sequence, and then those two.
    for question in *b"zyx" {
        done_of(&mut rig, job(&prompt(b's', 20, &char::from(question).to_string().repeat(120)), 1));
    }
    assert_eq!(copies(&rig), [Call::Save(0, 140), Call::Save(1, 140)]);
}

#[test]
fn nothing_is_kept_while_requests_wait() {
    let mut rig = Rig::with(1, 256, 64, false);
    rig.scheduler = rig.scheduler.prefix_memory(1000);
    let tickets: Vec<_> = (b'a'..b'd').map(|c| rig.ask(job(&prompt(c, 60, "?"), 1))).collect();
    rig.turns();
    // Only before the last of them nothing waited.
    assert_eq!(copies(&rig), [Call::Save(0, 61)]);
    assert!(tickets.iter().all(|ticket| done(ticket).0 == "@"));
}

#[test]
fn recurrent_states_are_held_before_the_end_of_a_prompt() {
    let mut rig = Rig::with(2, 512, 64, true);
    let first = prompt(b's', 100, "What is it?");
    done_of(&mut rig, job(&first, 4));
    assert_eq!(copies(&rig), [Call::Hold(0, first.len() - 32)]);
    // Its answer comes back in other words, and 111 - 32 tokens are known.
    let second = prompt(b's', 100, "What is it? It is another answer, and so on. And now?");
    assert_eq!(done_of(&mut rig, job(&second, 4)).cached_tokens, first.len() - 32);
    assert_eq!(copies(&rig)[1..], [Call::Hold(0, second.len() - 32)]);
    // A request that shares less than was held reads everything.
    assert_eq!(done_of(&mut rig, job(&prompt(b's', 90, "No"), 4)).cached_tokens, 0);
}

#[test]
fn a_copy_that_fails_costs_time_alone() {
    let mut rig = Rig::with(2, 256, 64, false);
    let first = rig.ask(job(&prompt(b's', 50, "a"), 8));
    rig.scheduler.turn();
    let calls = rig.scheduler.steps().calls.len();
    rig.scheduler.steps.fails_at = Some(calls + 1);
    let second = rig.ask(job(&prompt(b's', 50, "b"), 2));
    rig.turns();
    let (text, ended) = done(&second);
    assert_eq!((text.as_str(), ended.cached_tokens), ("cd", 0));
    assert_eq!(done(&first).0, "bcdefghi");
}
