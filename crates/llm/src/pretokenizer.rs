//! Splits text into words, by the rules that `tokenizer.ggml.pre` names. Byte-level BPE then merges
//! inside each word.
//!
//! A pre-tokenizer has one or more patterns. Each splits every part that the previous pattern
//! produced into its matches and the text between them. The patterns are those that the models were
//! trained with: changing one character can change token ids.

use warploom::{Error, Result};

/// GPT-2's pattern: contractions, and runs of letters, of digits or of other symbols, each run with
/// an optional leading space.
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's pattern: numbers in groups of up to three digits; line ends stay with the punctuation
/// before them.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's pattern: Llama 3's, but with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5's pattern: Qwen 2's, but combining marks count as letters.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o's pattern: words are split at capitals, and contractions stay with their word.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's Tekken pattern: GPT-4o's, but without contractions and with single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek V3's last pattern: ASCII punctuation keeps the Latin letters after it.
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Seed-Coder's pattern: Qwen 2's, but line ends are separate from the punctuation before them.
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Ling's pattern: Qwen 2's, written with possessive quantifiers.
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// BLOOM's pattern: anything but white space, parentheses, `|` and the punctuation that ends a
/// phrase.
const BLOOM: &str = " ?[^(\\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+";
/// Matches a single digit.
pub(super) const DIGIT: &str = r"\p{N}";

/// A pre-tokenizer: how a text is split into words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    /// The values of `tokenizer.ggml.pre` that select it.
    pub(super) names: &'static [&'static str],
    /// Split patterns, in the order in which they are applied.
    pub(super) patterns: &'static [&'static str],
    /// Whether a word that is itself a token becomes that token without any merges.
    pub(super) ignore_merges: bool,
    /// Whether a BOS token is added before a text by default.
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// Creates a pre-tokenizer whose words are always merged from bytes, without a BOS token.
    const fn new(
        names: &'static [&'static str],
        patterns: &'static [&'static str],
    ) -> PreTokenizer {
        PreTokenizer { names, patterns, ignore_merges: false, add_bos: false }
    }

    /// Creates a pre-tokenizer whose words are first looked up whole, with a BOS token.
    const fn whole(
        names: &'static [&'static str],
        patterns: &'static [&'static str],
    ) -> PreTokenizer {
        PreTokenizer { names, patterns, ignore_merges: true, add_bos: true }
    }
}

/// Every supported pre-tokenizer.
pub(super) static ALL: [PreTokenizer; 16] = [
    PreTokenizer::new(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    PreTokenizer::new(
        &[
            "gpt-2",
            "mpt",
            "olmo",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[GPT2],
    ),
    PreTokenizer::whole(
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        &[LLAMA3],
    ),
    PreTokenizer::new(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    PreTokenizer::new(
        &[
            "qwen2",
            "stablelm2",
            "deepseek-r1-qwen",
            "megrez",
            "kormo",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    PreTokenizer::new(&["qwen35"], &[QWEN35]),
    PreTokenizer::new(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    PreTokenizer::whole(&["tekken"], &[TEKKEN]),
    PreTokenizer::new(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[r"\p{N}{1,3}", "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", DEEPSEEK3],
    ),
    PreTokenizer::new(
        &["deepseek-coder"],
        &[
            "[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            DIGIT,
        ],
    ),
    PreTokenizer::new(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    PreTokenizer::new(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    PreTokenizer::new(&["viking"], &[BLOOM, DIGIT]),
    PreTokenizer::new(&["seed-coder"], &[SEED]),
    PreTokenizer::new(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    PreTokenizer::new(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
];

/// Returns the pre-tokenizer with this name. An empty name, as in files without the key, means
/// `default`.
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
