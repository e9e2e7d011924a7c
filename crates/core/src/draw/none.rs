//! Rows of logits that give no token.

use std::fmt;

use crate::error::Error;

/// Why a row of logits gives no token. A device returns it in the word of the token, so that the check costs no
/// further download: ids are below 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// A logit is not finite. The index of the first NaN or plus infinity; the best token's choice
    /// ([`crate::ir::Op::Greedy`]) gives that of the first NaN where there is one.
    NotFinite(u32),
    /// Every logit is minus infinity, or there is none.
    Forbidden,
}

impl NoToken {
    /// Longest row, so that each index fits beside the mark and no word means two things.
    pub const MOST_LOGITS: u64 = (1 << 31) - 1;

    const FORBIDDEN: u32 = u32::MAX;
    const MARK: u32 = 1 << 31;

    /// The word that stands in the place of a token.
    pub const fn word(self) -> u32 {
        match self {
            NoToken::NotFinite(index) => NoToken::MARK | index,
            NoToken::Forbidden => NoToken::FORBIDDEN,
        }
    }

    /// The error of those who need the token at a position: so many tokens are before it.
    pub fn at(self, position: usize) -> Error {
        Error::invalid(format!("no token can be chosen at position {position}: {self}"))
    }

    /// The token of a word, or why it is none.
    ///
    /// # Errors
    /// The word is one that [`NoToken::word`] gives.
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
            NoToken::NotFinite(index) => write!(f, "logit {index} is NaN or infinite"),
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
