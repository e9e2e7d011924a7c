//! Constrained decoding: an answer that follows a JSON schema, a regular expression or a grammar.
//!
//! [`Structure`] is built once for a tokenizer and compiles each [`Grammar`] to a [`Constraint`],
//! which masks the logits of the next token, accepts the chosen token and says which tokens are
//! forced and whether the text may or must end. The grammars, the lexer and the masks are those of
//! the crate `llguidance`.
//!
//! Grammars are untrusted: their size and nesting, the compiler's work, the lexer's states and the
//! work for one mask are limited (`limits`). A grammar is compiled on a thread of its own with a
//! deep stack; a keyword of a schema that is not supported is an error that names it.

mod constraint;
mod grammar;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory, panic_utils};
use toktrie::{InferenceCapabilities, TokEnv};

use crate::tokenizer::Tokenizer;
use vocabulary::Vocabulary;
use warploom::{Error, Result};

pub use constraint::Constraint;
pub use grammar::{Grammar, MAX_GRAMMAR};

/// Stack of the threads that compile: the compiler recurses into schemas and expressions.
const STACK: usize = 128 << 20;
/// Maximum number of grammars that are compiled at once.
const MAX_COMPILING: usize = 4;
/// How long a caller waits for a compilation. The limits end it much earlier.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// The limits of grammars and of the work for one token. Speeds are those of `llguidance`'s
/// documentation.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2000,
        // 50,000 a millisecond.
        initial_lexer_fuel: 1_000_000,
        // 14,000 a millisecond.
        step_lexer_fuel: 100_000,
        // 20,000 a millisecond.
        step_max_items: 50_000,
        // 1 to 2 kB each.
        max_lexer_states: 20_000,
        max_grammar_size: 300_000,
        precompute_large_lexemes: true,
        // Errors are for clients: without the state of the parser.
        verbose_errors: false,
    }
}

/// Compiles grammars for one tokenizer. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Structure {
    factory: Arc<ParserFactory>,
    compiling: Arc<Compiling>,
}

warploom_core::base::debug_as!(Structure, |this| vocabulary: this.factory.tok_env().tok_trie().vocab_size());

impl Structure {
    /// Builds the search tree of the tokens' bytes, which takes some 100 ms for a vocabulary of
    /// 150,000 tokens.
    ///
    /// # Errors
    /// Unsupported if the tokenizer has no end token, or its tokens do not fit the tree.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Structure> {
        let vocabulary = Vocabulary::new(tokenizer)?;
        let environment: TokEnv = Arc::new(vocabulary);
        let built = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let capabilities = InferenceCapabilities { ff_tokens: true, ..Default::default() };
            let slices = SlicedBiasComputer::general_slices();
            ParserFactory::new(&environment, capabilities, &slices)
        }));
        let mut factory = built.map_err(|e| Error::unsupported(first_line(&e.to_string())))?;
        *factory.limits_mut() = limits();
        factory.quiet();
        Ok(Structure { factory: Arc::new(factory), compiling: Arc::default() })
    }

    /// Compiles a grammar, on another thread.
    ///
    /// # Errors
    /// Invalid, with the compiler's message, if the grammar is not valid, uses what is not
    /// supported, or exceeds a limit.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint> {
        let grammar = grammar.prepare()?;
        let late = || {
            let text = format!("it takes longer than {} seconds to compile", MAX_WAIT.as_secs());
            Error::invalid(text)
        };
        let place = Compiling::take(&self.compiling).ok_or_else(late)?;
        let factory = self.factory.clone();
        let (out, result) = channel();
        let work = move || {
            let _place = place;
            let matcher = Matcher::new(factory.create_parser(grammar));
            let matcher = match matcher.get_error() {
                Some(text) => Err(Error::invalid(first_line(&text))),
                None => Ok(Constraint::new(matcher)),
            };
            // The caller may have stopped waiting.
            let _ = out.send(matcher);
        };
        let thread = std::thread::Builder::new().name("warploom-grammar".into()).stack_size(STACK);
        thread.spawn(work).map_err(|e| Error::io("cannot start a thread for a grammar", e))?;
        match result.recv_timeout(MAX_WAIT) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(late()),
            Err(RecvTimeoutError::Disconnected) => Err(Error::invalid("its compiler has failed")),
        }
    }
}

/// The number of grammars that are being compiled.
#[derive(Debug, Default)]
struct Compiling {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Compiling {
    /// Waits for the permission to compile; `None` if it does not come in time.
    fn take(compiling: &Arc<Compiling>) -> Option<Place> {
        let count = compiling.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_full = |count: &mut usize| *count >= MAX_COMPILING;
        let waited = compiling.ended.wait_timeout_while(count, MAX_WAIT, is_full);
        let (mut count, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        (*count < MAX_COMPILING).then(|| {
            *count += 1;
            Place(compiling.clone())
        })
    }
}

/// A permission to compile, returned on drop.
struct Place(Arc<Compiling>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) -= 1;
        self.0.ended.notify_one();
    }
}

/// Returns a message of the compiler without the appended state and backtrace, of bounded length.
fn first_line(text: &str) -> String {
    let end = text.find("\n<").unwrap_or(text.len());
    let text = text[..end].trim();
    match text.char_indices().nth(600) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text.to_owned(),
    }
}
