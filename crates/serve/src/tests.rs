//! Tests the scheduler with a counting model, in which the next letter follows each token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Done, Ended, Failure, Job, Piece, Queue, Scheduler, Sequences, Ticket, after};
use warploom::{Error, Result};
use warploom_core::sampling::NoToken;
use warploom_llm::tokenizer::{Tokenizer, TokenizerSpec};
use warploom_llm::{NextToken, Output, Sampling, StepInput, StepOutput, StepRequest};

/// The end token, which follows `z`. All tokens are bytes.
const END: u32 = 0;
/// A token after which the logits yield none.
const BROKEN: u8 = b'#';
/// Number of tokens.
const VOCABULARY: u32 = 256;

/// A run of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// One sequence: its index and the number of tokens.
    One(usize, usize),
    /// One token of each of these sequences.
    Each(Vec<usize>),
    /// The states of a sequence held, at a position.
    Hold(usize, usize),
    /// From one sequence to another, a number of tokens.
    Copy(usize, usize, usize),
    /// A sequence and a number of tokens, to and from host memory.
    Save(usize, usize),
    Load(usize, usize),
}

pub(super) struct Counting {
    held: Vec<Vec<u32>>,
    context: usize,
    pub(super) calls: Vec<Call>,
    /// Number of the call that fails, counted from 1.
    pub(super) fails_at: Option<usize>,
    /// In a model with recurrent layers, where the states of each sequence were held.
    recurrent: Option<Vec<Option<usize>>>,
}

impl Counting {
    fn next(last: u32) -> u32 {
        match last {
            0x7a => END,
            // The bytes of a three-byte character.
            0xe2 => 0x82,
            0x82 => 0xac,
            0xac => u32::from(b'a'),
            other => other + 1,
        }
    }

    /// Returns the logits after a token.
    fn logits(last: u32) -> impl Iterator<Item = f32> {
        let next = Counting::next(last);
        (0..VOCABULARY).map(move |id| match id == next {
            // No token follows this one.
            true if last == u32::from(BROKEN) => f32::NAN,
            true => 20.0,
            false => 0.0,
        })
    }

    fn chosen(&self, sequence: usize, last: u32) -> NextToken {
        let token = match last == u32::from(BROKEN) {
            true => Err(NoToken::NotFinite(Counting::next(last))),
            false => Ok(Counting::next(last)),
        };
        NextToken::new(sequence, self.held[sequence].len(), token)
    }

    fn called(&mut self, call: Call) -> Result<()> {
        self.calls.push(call);
        match self.fails_at == Some(self.calls.len()) {
            true => Err(Error::device("a planted failure")),
            false => Ok(()),
        }
    }
}

impl Sequences for Counting {
    /// The tokens.
    type Saved = Vec<u32>;

    fn is_recurrent(&self) -> bool {
        self.recurrent.is_some()
    }

    fn resumable(&self, sequence: usize, most: usize) -> usize {
        let past = self.held[sequence].len();
        match &self.recurrent {
            None => most.min(past),
            // Every run leaves the states at its end.
            Some(_) if past <= most => past,
            Some(held) => held[sequence].filter(|held| *held <= most).unwrap_or(0),
        }
    }

    fn hold_states(&mut self, sequence: usize) -> Result<()> {
        let past = self.held[sequence].len();
        if let Some(held) = &mut self.recurrent {
            held[sequence] = Some(past);
        }
        self.called(Call::Hold(sequence, past))
    }

    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()> {
        self.held[to] = self.held[from][..positions].to_vec();
        self.called(Call::Copy(from, to, positions)).inspect_err(|_| self.held[to].clear())
    }

    fn save_prefix(&mut self, sequence: usize, positions: usize) -> Result<Vec<u32>> {
        self.called(Call::Save(sequence, positions))?;
        Ok(self.held[sequence][..positions].to_vec())
    }

    fn load_prefix(&mut self, sequence: usize, saved: &Vec<u32>, positions: usize) -> Result<()> {
        self.held[sequence] = saved[..positions].to_vec();
        self.called(Call::Load(sequence, positions)).inspect_err(|_| self.held[sequence].clear())
    }

    fn saved_bytes(saved: &Vec<u32>) -> u64 {
        saved.len() as u64
    }

    fn sequences(&self) -> usize {
        self.held.len()
    }

    fn context(&self) -> usize {
        self.context
    }

    fn past_of(&self, sequence: usize) -> usize {
        self.held[sequence].len()
    }

    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()> {
        assert!(past <= self.held[sequence].len());
        self.held[sequence].truncate(past);
        if let Some(held) = &mut self.recurrent {
            held[sequence] = held[sequence].filter(|held| *held <= past);
        }
        Ok(())
    }

    fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        let last: Vec<(usize, u32)> = match request.input {
            StepInput::Tokens { sequence, tokens } => {
                self.called(Call::One(sequence, tokens.len()))?;
                self.held[sequence].extend_from_slice(tokens);
                vec![(sequence, *tokens.last().unwrap())]
            }
            StepInput::Batch(tokens) => {
                self.called(Call::Each(tokens.iter().map(|(sequence, _)| *sequence).collect()))?;
                tokens.iter().for_each(|(sequence, token)| self.held[*sequence].push(*token));
                tokens.to_vec()
            }
            other => panic!("{other:?} is not for a scheduler"),
        };
        assert!(self.held.iter().all(|held| held.len() <= self.context));
        match request.output {
            Output::Nothing => Ok(StepOutput::default()),
            Output::Logits => {
                let rows = last.iter().flat_map(|(_, token)| Counting::logits(*token)).collect();
                Ok(StepOutput::from_logits(rows, VOCABULARY as usize))
            }
            output => {
                if let Output::Sample(params) = output {
                    // Sampling depends on the text so far, including the new tokens.
                    let positions = params.iter().map(|params| params.position as usize);
                    let held = last.iter().map(|(sequence, _)| self.held[*sequence].len());
                    assert!(positions.eq(held), "{params:?}");
                }
                let next = last.iter().map(|(sequence, token)| self.chosen(*sequence, *token));
                Ok(StepOutput::from_next(next.collect()))
            }
        }
    }

    fn bytes_of(&self, token: u32) -> Result<&[u8]> {
        static BYTES: [u8; 256] = {
            let mut bytes = [0; 256];
            let mut i = 0;
            while i < 256 {
                bytes[i] = i as u8;
                i += 1;
            }
            bytes
        };
        Ok(&BYTES[token as usize..=token as usize])
    }

    fn is_stop(&self, token: u32) -> bool {
        token == END
    }
}

/// Tokens that are single bytes; [`END`] ends an answer.
pub(crate) fn byte_tokenizer() -> Arc<Tokenizer> {
    // The byte alphabet of GPT-2: printable bytes stand for themselves, the others follow U+00FF.
    let mut others = (256..).filter_map(char::from_u32);
    let tokens = (0..=255u8).map(|byte| match byte {
        33..=126 | 161..=172 | 174..=255 => char::from(byte).to_string(),
        _ => others.next().map(String::from).unwrap_or_default(),
    });
    let mut spec = TokenizerSpec::default();
    (spec.model, spec.pre) = ("gpt2".into(), "gpt-2".into());
    spec.tokens = tokens.collect();
    spec.token_types = vec![1; 256];
    spec.token_types[END as usize] = 3;
    spec.eos = Some(END);
    Arc::new(Tokenizer::new(spec).unwrap())
}

pub(super) struct Rig {
    pub(super) queue: Arc<Queue>,
    pub(super) scheduler: Scheduler<Counting>,
}

impl Rig {
    /// Creates a scheduler with `sequences` sequences, a queue of 8 jobs, chunks of 4 tokens and a
    /// context of 32.
    pub(super) fn new(sequences: usize) -> Rig {
        Rig::with(sequences, 32, 4, false)
    }

    /// Creates a scheduler with a context of `context` and chunks of `piece` tokens.
    pub(super) fn with(sequences: usize, context: usize, piece: usize, recurrent: bool) -> Rig {
        let queue = Arc::new(Queue::new(8));
        let held = vec![Vec::new(); sequences];
        let recurrent = recurrent.then(|| vec![None; sequences]);
        let steps = Counting { held, context, calls: Vec::new(), fails_at: None, recurrent };
        let scheduler = Scheduler::new(steps, queue.clone(), piece);
        Rig { queue, scheduler }
    }

    pub(super) fn ask(&self, job: Job) -> Ticket {
        self.queue.submit(job).unwrap()
    }

    pub(super) fn turns(&mut self) -> usize {
        let mut turns = 0;
        while self.scheduler.turn() {
            turns += 1;
            assert!(turns < 1000);
        }
        turns
    }
}

pub(super) fn job(prompt: &[u8], max_tokens: usize) -> Job {
    let prompt = prompt.iter().map(|byte| u32::from(*byte)).collect();
    Job::new(prompt, Instant::now() + Duration::from_secs(60))
        .max_tokens(max_tokens)
        .sampling(Sampling::greedy())
}

/// Reads the text so far, and how the answer ended if it has.
pub(super) fn read(ticket: &Ticket) -> (String, Option<Result<Done, Failure>>) {
    let mut text = String::new();
    loop {
        match ticket.next(Duration::ZERO) {
            None => return (text, None),
            Some(Piece::Started | Piece::Logprob(_)) => {}
            Some(Piece::Text(more)) => text.push_str(&more),
            Some(Piece::Done(done)) => return (text, Some(Ok(done))),
            Some(Piece::Failed(failure)) => return (text, Some(Err(failure))),
        }
    }
}

pub(super) fn done(ticket: &Ticket) -> (String, Done) {
    match read(ticket) {
        (text, Some(Ok(done))) => (text, done),
        other => panic!("{other:?}"),
    }
}

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

pub(super) fn done_of(rig: &mut Rig, job: Job) -> Done {
    let ticket = rig.ask(job);
    rig.turns();
    done(&ticket).1
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
