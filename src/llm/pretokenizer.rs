//! How text is cut into words before BPE merges inside each: `tokenizer.ggml.pre`.
//!
//! A name stands for one or more patterns. They are applied in turn, each to the pieces of the
//! one before; what a pattern leaves between its matches is a piece too. The patterns are those
//! that the models were trained with: changing a character changes ids.

use crate::error::{Error, Result};

/// GPT-2's words: contractions, letters, numbers, other signs, each with one leading space.
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: numbers in threes, line ends kept with the signs before them.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's: the same with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Each digit alone.
pub(super) const DIGIT: &str = r"\p{N}";

/// One way to cut text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    /// Values of `tokenizer.ggml.pre` that mean it.
    pub(super) names: &'static [&'static str],
    /// Applied in this order.
    pub(super) patterns: &'static [&'static str],
    /// A word that is a token as a whole is taken as such, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether text begins with the begin token where the file does not say.
    pub(super) add_bos: bool,
}

/// Every pre-tokenizer that is known.
pub(super) static ALL: [PreTokenizer; 5] = [
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        patterns: &[DIGIT, GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["gpt-2", "mpt", "olmo", "phi-2"],
        patterns: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"],
        patterns: &[QWEN2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
];

/// The pre-tokenizer of a name; an empty name is `default`, as files without the key are.
pub(super) fn by_name(pre: &str) -> Result<&'static PreTokenizer> {
    let name = if pre.is_empty() { "default" } else { pre };
    ALL.iter().find(|p| p.names.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().flat_map(|p| p.names).copied().collect();
        let known = known.join(", ");
        Error::unsupported(format!(
            "tokenizer.ggml.pre: unknown pre-tokenizer {name:?}; known: {known}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut seen = std::collections::HashSet::new();
        for pre in &ALL {
            for name in pre.names {
                assert!(seen.insert(name), "{name} twice");
                assert_eq!(by_name(name).unwrap(), pre);
            }
        }
        assert_eq!(by_name("").unwrap().names, ["default"]);
    }

    #[test]
    fn an_unknown_name_is_unsupported_and_lists_the_known() {
        let error = by_name("klingon").unwrap_err();
        assert!(error.is_unsupported());
        assert!(error.to_string().contains("\"klingon\""), "{error}");
        assert!(error.to_string().contains("smollm, ") && error.to_string().contains("qwen2"));
    }
}
