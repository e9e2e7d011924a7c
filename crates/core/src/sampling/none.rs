//! Rows of logits that yield no token.

use std::fmt;

use crate::error::Error;

/// Why a row of logits yields no token. A device returns the reason as a word in place of the token
/// id, so that no further download is needed. The two cannot be confused: ids are below 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// A logit is not finite. Holds the index of the first NaN or plus infinity;
    /// [`crate::ir::Op::Greedy`] prefers the first NaN if there is one.
    NotFinite(u32),
    /// Every logit is minus infinity, or the row is empty.
    Forbidden,
}

impl NoToken {
    /// Maximum length of a row. It leaves one bit to mark errors, so that each word is unambiguous.
    pub const MOST_LOGITS: u64 = (1 << 31) - 1;

    const FORBIDDEN: u32 = u32::MAX;
    const MARK: u32 = 1 << 31;

    /// Returns the word that replaces the token.
    pub const fn word(self) -> u32 {
        match self {
            NoToken::NotFinite(index) => NoToken::MARK | index,
            NoToken::Forbidden => NoToken::FORBIDDEN,
        }
    }

    /// Creates the error for a caller that needs the token after `position` tokens.
    pub fn at(self, position: usize) -> Error {
        Error::invalid(format!("no token can be chosen at position {position}: {self}"))
    }

    /// Decodes a word: returns the token, or else the reason for its absence.
    ///
    /// # Errors
    /// The reason, if the word was made by [`NoToken::word`].
    pub const fn check(word: u32) -> Result<u32, NoToken> {
        match word {
            NoToken::FORBIDDEN => Err(NoToken::Forbidden),
            word if word & NoToken::MARK != 0 => Err(NoToken::NotFinite(word & !NoToken::MARK)),
            token => Ok(token),
        }
    }
}

impl fmt::Display for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoToken::NotFinite(index) => write!(f, "logit {index} is NaN or plus infinity"),
            NoToken::Forbidden => write!(f, "every logit is -inf, which forbids its token"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_tokens_or_say_why_not() {
        for token in [0, 1, 151_935, NoToken::MOST_LOGITS as u32 - 1] {
            assert_eq!(NoToken::check(token), Ok(token));
            let why = NoToken::NotFinite(token);
            assert_eq!(NoToken::check(why.word()), Err(why));
            assert_ne!(why.word(), NoToken::Forbidden.word());
        }
        assert_eq!(NoToken::check(NoToken::Forbidden.word()), Err(NoToken::Forbidden));
    }
}
