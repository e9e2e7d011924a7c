//! What models that make vectors expect before a text, by its part in a search.

use super::embedder::Embedder;
use warploom::{Error, Result};

/// The part of a text in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextKind {
    /// What is looked for.
    Query,
    /// What is searched.
    Document,
}

impl TextKind {
    /// Returns the kind with this name, `query` or `document`.
    ///
    /// # Errors
    /// Invalid, listing the names, for another one.
    pub fn of(name: &str) -> Result<TextKind> {
        match name {
            "query" => Ok(TextKind::Query),
            "document" => Ok(TextKind::Document),
            _ => Err(Error::invalid(format!("{name:?}: known are query and document"))),
        }
    }
}

impl Embedder {
    /// Returns a text with what the model expects before one of this kind. Vectors of queries and of
    /// documents are made to be compared with each other.
    ///
    /// # Errors
    /// Unsupported if nothing is known of the model's architecture.
    pub fn prompted(&self, kind: TextKind, text: &str) -> Result<String> {
        let architecture = self.model().config().architecture;
        let [query, document] = architecture.prompts.ok_or_else(|| {
            Error::unsupported(format!(
                "{}: no prompt of architecture {} is known: give the texts with what the model's \
                 card says before them",
                self.model().file().name(),
                architecture.name
            ))
        })?;
        let before = if kind == TextKind::Query { query } else { document };
        Ok(format!("{before}{text}"))
    }
}
