//! Parsers of numeric options, most with a special value -1, as in llama.cpp.

use std::hash::{BuildHasher, RandomState};

/// The value of `--seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seed {
    /// A random seed for each run.
    Any,
    Fixed(u64),
}

impl Seed {
    /// Returns the seed, unless it is random.
    pub(crate) fn fixed(self) -> Option<u64> {
        match self {
            Seed::Any => None,
            Seed::Fixed(seed) => Some(seed),
        }
    }
}

/// Returns a random seed of 32 bits, which every JSON reader represents exactly.
pub(crate) fn another_seed() -> u64 {
    RandomState::new().hash_one(()) & 0xffff_ffff
}

pub(crate) fn seed(text: &str) -> Result<Seed, String> {
    match (text, text.parse()) {
        ("-1", _) => Ok(Seed::Any),
        (_, Ok(seed)) => Ok(Seed::Fixed(seed)),
        _ => Err(format!("must be an integer from 0 to {}, or -1 for a random one", u64::MAX)),
    }
}

/// Parses the window of the repetition penalty; -1 is `usize::MAX`.
pub(crate) fn last_n(text: &str) -> Result<usize, String> {
    from(0, text, usize::MAX)
        .ok_or_else(|| "must be an integer of 0 or more, or -1 for the whole context".to_owned())
}

/// Parses a top-k limit; -1 is 0, which means all tokens.
pub(crate) fn top_k(text: &str) -> Result<usize, String> {
    from(0, text, 0)
        .ok_or_else(|| "must be an integer of 0 or more; 0 and -1 mean all tokens".to_owned())
}

/// Parses the maximum number of tokens to generate; -1 is `usize::MAX`.
pub(crate) fn tokens(text: &str) -> Result<usize, String> {
    from(1, text, usize::MAX).ok_or_else(|| {
        "must be an integer above 0, or -1 for as many as the context holds".to_owned()
    })
}

/// Parses an unsigned integer.
pub(crate) fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be an integer of 0 or more".to_owned())
}

/// Parses an integer of at least `least`; -1 returns `all`.
fn from(least: usize, text: &str, all: usize) -> Option<usize> {
    match text {
        "-1" => Some(all),
        _ => text.parse().ok().filter(|number| *number >= least),
    }
}

/// Returns the number as options and JSON show it: -1 for `usize::MAX`.
pub(crate) fn shown(number: usize) -> serde_json::Value {
    match number {
        usize::MAX => (-1).into(),
        number => number.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_means_all_or_random_and_ranges_are_reported() {
        assert_eq!(seed("-1"), Ok(Seed::Any));
        assert_eq!(seed("-1").map(Seed::fixed), Ok(None));
        assert_eq!(seed("18446744073709551615").map(Seed::fixed), Ok(Some(u64::MAX)));
        assert_eq!((last_n("-1"), last_n("0"), last_n("7")), (Ok(usize::MAX), Ok(0), Ok(7)));
        assert_eq!((top_k("-1"), top_k("0"), top_k("40")), (Ok(0), Ok(0), Ok(40)));
        assert_eq!((tokens("-1"), tokens("9")), (Ok(usize::MAX), Ok(9)));
        for text in ["-2", "1.5", "x", "", "18446744073709551616", "--1", " 1"] {
            let words = "from 0 to 18446744073709551615, or -1";
            assert!(seed(text).unwrap_err().contains(words), "{text:?}");
            assert!(last_n(text).unwrap_err().contains("-1 for the whole context"), "{text:?}");
            assert!(top_k(text).unwrap_err().contains("0 or more"), "{text:?}");
            assert!(tokens(text).unwrap_err().contains("above 0, or -1"), "{text:?}");
            assert!(whole(text).unwrap_err().contains("0 or more"), "{text:?}");
        }
        assert!(tokens("0").is_err() && whole("-1").is_err() && whole("0") == Ok(0));
        assert_eq!((shown(usize::MAX), shown(64)), ((-1).into(), 64.into()));
        assert!(another_seed() != another_seed());
    }
}
