//! A counting model for tests of the scheduler, in which the next letter follows each token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Done, Failure, Job, Piece, Queue, Scheduler, Sequences, Ticket};
use warploom::{Error, Result};
use warploom_core::sampling::NoToken;
use warploom_llm::tokenizer::{Tokenizer, TokenizerSpec};
use warploom_llm::{NextToken, Output, Sampling, StepInput, StepOutput, StepRequest};

/// The end token, which follows `z`. All tokens are bytes.
pub(super) const END: u32 = 0;
/// A token after which the logits yield none.
pub(super) const BROKEN: u8 = b'#';
/// Number of tokens.
pub(super) const VOCABULARY: u32 = 256;

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
            Some(Piece::Started { .. } | Piece::Logprob(_)) => {}
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

pub(super) fn done_of(rig: &mut Rig, job: Job) -> Done {
    let ticket = rig.ask(job);
    rig.turns();
    done(&ticket).1
}
