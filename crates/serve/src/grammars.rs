//! Compiled grammars, kept for later requests with the same text.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use warploom::{Error, Result};
use warploom_llm::structure::{Constraint, Grammar, Structure};
use warploom_llm::tokenizer::Tokenizer;

/// Number of grammars that are kept: an agent sends the same tools in each request.
const KEPT: usize = 32;

/// Compiles grammars and keeps the latest ones.
#[derive(Debug)]
pub(super) struct Grammars {
    tokenizer: Arc<Tokenizer>,
    /// Built for the first request with a constraint.
    structure: OnceLock<Result<Structure, String>>,
    /// The most recently used first.
    kept: Mutex<VecDeque<(blake3::Hash, Constraint)>>,
}

impl Grammars {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Grammars {
        Grammars { tokenizer, structure: OnceLock::new(), kept: Mutex::default() }
    }

    /// Compiles a grammar, or takes the compiled one.
    ///
    /// # Errors
    /// Unsupported if the model's vocabulary cannot be constrained, else the errors of
    /// [`Structure::compile`].
    pub(super) fn compile(&self, grammar: &Grammar) -> Result<Constraint> {
        let key = blake3::hash(format!("{grammar:?}").as_bytes());
        if let Some(constraint) = self.find(key) {
            return Ok(constraint);
        }
        let build = || Structure::new(&self.tokenizer).map_err(|error| error.to_string());
        let structure = self.structure.get_or_init(build).as_ref().map_err(Error::unsupported)?;
        let constraint = structure.compile(grammar)?;
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.retain(|(other, _)| *other != key);
        kept.push_front((key, constraint.unshared()));
        kept.truncate(KEPT);
        Ok(constraint)
    }

    fn find(&self, key: blake3::Hash) -> Option<Constraint> {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = kept.iter().position(|(other, _)| *other == key)?;
        let entry = kept.remove(at)?;
        let constraint = entry.1.unshared();
        kept.push_front(entry);
        Some(constraint)
    }
}
