//! A compiled grammar with its position in an answer.

use llguidance::Matcher;

use super::first_line;
use warploom::{Error, Result};

/// A compiled grammar with its position in an answer. A clone has its own position and shares the
/// states of the lexer, which are made as they are needed; [`Constraint::unshared`] copies them too.
pub struct Constraint {
    matcher: Box<Matcher>,
}

warploom_core::base::debug_as!(Constraint, |this| finished: this.is_finished());

impl Clone for Constraint {
    fn clone(&self) -> Constraint {
        Constraint { matcher: self.matcher.clone() }
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher) -> Constraint {
        Constraint { matcher: Box::new(matcher) }
    }

    /// Returns a copy that shares nothing, so that the lexer of this constraint does not grow with
    /// that of the copy.
    pub fn unshared(&self) -> Constraint {
        Constraint { matcher: Box::new(self.matcher.deep_clone()) }
    }

    /// Sets the logits of all tokens that may not follow to minus infinity. A token that ends the
    /// answer may follow if the text is complete.
    ///
    /// # Errors
    /// Invalid if the grammar exceeds its limits at this position.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<()> {
        let mask = self.matcher.compute_mask_or_eos().map_err(failed)?;
        let words = mask.as_slice().iter().copied().chain(std::iter::repeat(0));
        for (row, word) in logits.chunks_mut(u32::BITS as usize).zip(words) {
            match word {
                0 => row.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                _ => {
                    for (bit, logit) in row.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Advances by the chosen token.
    ///
    /// # Errors
    /// Invalid if the token may not follow.
    pub fn accept(&mut self, token: u32) -> Result<()> {
        self.matcher.consume_token(token).map_err(failed)
    }

    /// Advances by text that is already written; returns whether it follows the grammar. If not, the
    /// constraint cannot be used any more.
    pub fn accept_text(&mut self, text: &[u8]) -> bool {
        let Ok(environment) = self.matcher.tok_env() else { return false };
        let tokens = environment.tokenize_bytes(text);
        self.matcher.try_consume_tokens(&tokens).is_ok_and(|count| count == tokens.len())
    }

    /// Advances by the tokens that must follow, and returns them; empty if there is a choice.
    ///
    /// # Errors
    /// Invalid if the grammar exceeds its limits at this position.
    pub fn accept_forced(&mut self) -> Result<Vec<u32>> {
        if self.is_finished() {
            return Ok(Vec::new());
        }
        let tokens = self.matcher.consume_ff_tokens();
        match self.matcher.get_error() {
            Some(text) => Err(Error::invalid(first_line(&text))),
            None => Ok(tokens),
        }
    }

    /// Returns whether the text so far is complete, so that it may end.
    pub fn may_end(&mut self) -> bool {
        self.is_finished() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Returns whether the text is complete and nothing can follow, so that it must end.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("constrained decoding: {}", first_line(&error.to_string())))
}
