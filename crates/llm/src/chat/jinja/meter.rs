//! What a render may spend, and why it ends without a text.

use std::cell::Cell;

/// Of a value, besides its text: about what it takes in memory.
pub(super) const NODE: u64 = 64;
/// Bytes that one value may have, besides those of the conversation.
const MAX_VALUE: u64 = 512 << 10;
/// Bytes of everything that is made or walked through, besides the share of the conversation.
const MAX_TOTAL: u64 = 64 << 20;
/// Bytes of everything that is written, also into variables.
const MAX_WRITTEN: u64 = 4 << 20;
/// Expressions and statements, besides those for each message.
const MAX_STEPS: u64 = 400_000;
const STEPS_PER_MESSAGE: u64 = 20_000;
/// Values in values.
pub(super) const MAX_DEPTH: u32 = 32;
/// Expressions in expressions, statements and macros while it runs: a level takes stack.
pub(super) const MAX_LEVELS: u32 = 200;

/// Why there is no text.
#[derive(Debug)]
pub(in crate::chat) enum Fault {
    /// `raise_exception`: the template itself refuses the conversation.
    Raised(String),
    /// The template is at fault; a line is put before when one is known.
    Failed(String, Option<u32>),
}

pub(super) type Result<T> = std::result::Result<T, Fault>;

/// A fault of the template.
pub(super) fn fault<T>(what: impl Into<String>) -> Result<T> {
    Err(error(what))
}

pub(super) fn error(what: impl Into<String>) -> Fault {
    // Names and texts of the template may stand in it.
    let what: String = what.into();
    Fault::Failed(what.chars().take(300).collect(), None)
}

/// Counts down.
#[derive(Debug)]
pub(super) struct Meter {
    value: u64,
    total: Cell<u64>,
    written: Cell<u64>,
    steps: Cell<u64>,
    levels: Cell<u32>,
}

impl Meter {
    /// For a conversation of this many messages and bytes.
    pub(super) fn new(messages: usize, bytes: usize) -> Meter {
        let (count, bytes) = (messages as u64, bytes as u64);
        let input = bytes.saturating_add(count.saturating_mul(8 * NODE));
        let share = |most: u64, times: u64| most.saturating_add(times.saturating_mul(input));
        Meter {
            value: share(MAX_VALUE, 4),
            total: Cell::new(share(MAX_TOTAL, 16 + 4 * count)),
            written: Cell::new(share(MAX_WRITTEN, 16)),
            steps: Cell::new(MAX_STEPS.saturating_add(STEPS_PER_MESSAGE.saturating_mul(count))),
            levels: Cell::new(0),
        }
    }

    /// A piece of work of this many steps.
    pub(super) fn step(&self, steps: u64) -> Result<()> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => fault("it runs for longer than the limit of a template"),
        }
    }

    /// Bytes that are walked through.
    pub(super) fn spend(&self, bytes: u64) -> Result<()> {
        match self.total.get().checked_sub(bytes) {
            Some(left) => {
                self.total.set(left);
                Ok(())
            }
            None => fault("all that is computed together goes beyond the limit of a template"),
        }
    }

    /// A text or list of this many bytes, before it is made.
    pub(super) fn fits(&self, bytes: Option<usize>) -> Result<()> {
        match bytes {
            Some(bytes) if bytes as u64 <= self.value => self.spend(bytes as u64 + NODE),
            _ => fault("a value goes beyond the limit of a template"),
        }
    }

    /// Items of a list or dictionary, before it is made.
    pub(super) fn items(&self, count: usize) -> Result<()> {
        self.fits(count.checked_mul(NODE as usize))
    }

    /// Bytes that are written.
    pub(super) fn write(&self, bytes: usize) -> Result<()> {
        match self.written.get().checked_sub(bytes as u64) {
            Some(left) => {
                self.written.set(left);
                Ok(())
            }
            None => fault("the text goes beyond the limit of a template"),
        }
    }

    /// One level deeper; [`Meter::leave`] goes back.
    pub(super) fn enter(&self) -> Result<()> {
        let levels = self.levels.get() + 1;
        if levels > MAX_LEVELS {
            return fault(format!("recursion of more than {MAX_LEVELS} levels"));
        }
        self.levels.set(levels);
        self.step(1)
    }

    pub(super) fn leave(&self) {
        self.levels.set(self.levels.get().saturating_sub(1));
    }
}
