//! Limits the steps, bytes and nesting of a render, and defines its errors.

use std::cell::Cell;

/// Bytes charged per value: about its size in memory, without its text.
pub(super) const NODE: u64 = 64;
/// Maximum bytes of one value, plus an allowance that grows with the conversation.
const MAX_VALUE: u64 = 512 << 10;
/// Maximum bytes created or read, plus an allowance that grows with the conversation.
const MAX_TOTAL: u64 = 64 << 20;
/// Maximum bytes written, including into variables, plus an allowance that grows with the
/// conversation.
const MAX_WRITTEN: u64 = 4 << 20;
/// Maximum number of evaluated expressions and statements, plus [`STEPS_PER_MESSAGE`] for each
/// message.
const MAX_STEPS: u64 = 400_000;
const STEPS_PER_MESSAGE: u64 = 20_000;
/// Maximum nesting of values.
pub(super) const MAX_DEPTH: u32 = 32;
/// Maximum nesting of running expressions, statements and macros: each level uses stack.
pub(super) const MAX_LEVELS: u32 = 200;

/// Why a render failed.
#[derive(Debug)]
pub(in crate::chat) enum Fault {
    /// `raise_exception`: the template refuses the conversation.
    Raised(String),
    /// An error of the template, with its line if known.
    Failed(String, Option<u32>),
}

pub(super) type Result<T> = std::result::Result<T, Fault>;

/// Returns an error of the template.
pub(super) fn fault<T>(what: impl Into<String>) -> Result<T> {
    Err(error(what))
}

pub(super) fn error(what: impl Into<String>) -> Fault {
    // The message may contain names and strings of the template, so its length is limited.
    let what: String = what.into();
    Fault::Failed(what.chars().take(300).collect(), None)
}

/// The remaining budgets of a render.
#[derive(Debug)]
pub(super) struct Meter {
    value: u64,
    total: Cell<u64>,
    written: Cell<u64>,
    steps: Cell<u64>,
    levels: Cell<u32>,
}

impl Meter {
    /// Creates the budgets for a conversation with this number of messages and bytes.
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

    /// Charges steps; a fault if they exceed the limit.
    pub(super) fn step(&self, steps: u64) -> Result<()> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => fault("it runs for longer than the limit of a template"),
        }
    }

    /// Charges bytes that are created or read.
    pub(super) fn spend(&self, bytes: u64) -> Result<()> {
        match self.total.get().checked_sub(bytes) {
            Some(left) => {
                self.total.set(left);
                Ok(())
            }
            None => fault("all values together exceed the limit of a template"),
        }
    }

    /// Checks and charges the size of a string or list, in bytes, before it is created. `None`
    /// stands for a size that overflowed, which is refused.
    pub(super) fn fits(&self, bytes: Option<usize>) -> Result<()> {
        match bytes {
            Some(bytes) if bytes as u64 <= self.value => self.spend(bytes as u64 + NODE),
            _ => fault("a value exceeds the limit of a template"),
        }
    }

    /// Checks and charges a list or dictionary of `count` items before it is created.
    pub(super) fn items(&self, count: usize) -> Result<()> {
        self.fits(count.checked_mul(NODE as usize))
    }

    /// Charges bytes written.
    pub(super) fn write(&self, bytes: usize) -> Result<()> {
        match self.written.get().checked_sub(bytes as u64) {
            Some(left) => {
                self.written.set(left);
                Ok(())
            }
            None => fault("the text exceeds the limit of a template"),
        }
    }

    /// Enters a nesting level; [`Meter::leave`] leaves it.
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
