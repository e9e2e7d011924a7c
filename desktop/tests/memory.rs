//! The memory of the program stays flat while a user changes models and talks to them. A test of
//! its own, so that the process has no other tests.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::{Duration, Instant};

use eframe::egui::Context;
use warploom_desktop::engine::{Ask, Place, Source, Turn};
use warploom_desktop::worker::{Command, Event, Worker};
use warploom_llm::Sampling;

/// Longest time that a command may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Growth in bytes that the allocator and caches of texts may cause. One model that is not freed is
/// 5 MB of weights and 2 MB of cache, and 14 of them would be 98 MB.
const BOUND: u64 = 24 << 20;

/// Returns the number of models that are loaded one after the other, with two conversations each.
fn models() -> usize {
    match std::env::var("WARPLOOM_TEST_ALL").is_ok_and(|all| all == "1") {
        true => 50,
        false => 20,
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Waits for the event that ends a command.
fn wait<T>(worker: &Worker, end: impl Fn(Event) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        match worker.event() {
            Some(Event::NotLoaded(failure, _) | Event::Stopped(failure)) => panic!("{failure:?}"),
            Some(event) => {
                if let Some(done) = end(event) {
                    return done;
                }
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(begin.elapsed() < PATIENCE, "a command takes longer than a minute");
    }
}

fn switch(worker: &Worker, source: Source) {
    let place = Place { device: Some("cpu".into()), exact: true, context: None };
    worker.send(Command::Load(source, place));
    wait(worker, |event| matches!(event, Event::Loaded(_)).then_some(()));
}

/// A conversation of three turns, another one for each number.
fn talk(worker: &Worker, number: u64) {
    let turns = [
        (true, format!("Who are you? I ask for the {number}th time.")),
        (false, "I am a small model.".to_owned()),
        (true, "What is the capital of France?".to_owned()),
    ];
    let turns = turns.map(|(user, text)| Turn { user, text }).to_vec();
    let (sampling, system) = (Sampling::greedy(), None);
    worker.send(Command::Answer(number, Ask { system, turns, sampling, max_tokens: 6 }));
    let answered = wait(worker, |event| match event {
        Event::Answered(of, done) if of == number => Some(done),
        _ => None,
    });
    assert!(answered.unwrap().tokens > 0);
}

#[test]
fn memory_is_flat_over_models_and_conversations() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let sources = [
        Source::Embedded,
        Source::File(models.join("warploom-tiny-bitnet-TQ2_0.gguf")),
        Source::File(models.join("warploom-tiny-llama-Q4_K_M.gguf")),
    ];
    let worker = Worker::start(Context::default()).unwrap();
    let begin = Instant::now();
    let mut conversations = 0;
    let mut after_first = 0;
    let switches = self::models();
    for round in 0..switches {
        switch(&worker, sources[round % sources.len()].clone());
        for _ in 0..2 {
            conversations += 1;
            talk(&worker, conversations);
        }
        // Each model twice: threads, kernels and tables are there from then on.
        if round == 5 {
            after_first = resident();
        }
    }
    let (end, mega) = (resident(), |bytes: u64| bytes as f64 / 1e6);
    println!(
        "{switches} models and {conversations} conversations in {:.1} s: {:.1} MB resident after the first \
         6 models, {:.1} MB at the end",
        begin.elapsed().as_secs_f64(),
        mega(after_first),
        mega(end)
    );
    assert!(end < after_first + BOUND, "{end} bytes, {after_first} after the first models");
}
