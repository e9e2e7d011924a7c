//! Translates the regular expressions of tokenizer.json, which are written for Oniguruma, for
//! `fancy-regex`.

use warploom::{Error, Result};

/// The inside of a character class that matches what `\w` matches in Oniguruma outside a class.
/// Unlike `\w` of `fancy-regex`, it includes the superscripts and fractions of Latin-1 and excludes
/// the joiners U+200C and U+200D.
const WORD: &str = r"\w\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}--\x{200C}\x{200D}";
/// Same as [`WORD`], but for `\w` inside a class, where Oniguruma does not include these characters
/// of Latin-1.
const WORD_IN_CLASS: &str = r"\w--\x{200C}\x{200D}";

/// Translates a regular expression for `fancy-regex`.
///
/// The translated constructs are `^` and `$`, which match at line boundaries in Oniguruma, and
/// `\w`, `\W`, `\b` and `\B`, which have a different set of word characters there. Other constructs
/// with a different meaning are refused.
///
/// # Errors
/// Unsupported, naming the construct, if it is refused.
pub(super) fn translated(pattern: &str) -> Result<String> {
    let refused = |what: &str| {
        Err(Error::unsupported(format!("regular expression {pattern:?}: {what} is not supported")))
    };
    let (mut depth, mut lines) = (0, false);
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        // Bytes of the expression that are copied or replaced in this step.
        let mut taken = first.len_utf8();
        let mut replacement = None;
        match first {
            '\\' => {
                let escaped = rest[1..].chars().next();
                taken += escaped.map_or(0, char::len_utf8);
                replacement = escaped.and_then(|escaped| word_escape(escaped, depth > 0));
            }
            '[' if depth > 0 && rest.starts_with("[:") => return refused("a POSIX class"),
            '[' => {
                depth += 1;
                // A closing bracket without an opening one is literal.
                let skip = 1 + usize::from(rest[1..].starts_with('^'));
                if rest[skip..].starts_with(']') {
                    taken = skip + 1;
                }
            }
            ']' => depth = usize::saturating_sub(depth, 1),
            '-' if depth > 0 && rest.starts_with("--") => return refused("`--` in a class"),
            '~' if depth > 0 && rest.starts_with("~~") => return refused("`~~` in a class"),
            '^' | '$' if depth == 0 => lines = true,
            '(' if depth == 0 && has_other_flags(rest) => {
                return refused("a flag other than `i` and `x`");
            }
            _ => {}
        }
        out.push_str(replacement.as_deref().unwrap_or(&rest[..taken]));
        rest = &rest[taken..];
    }
    Ok(if lines { format!("(?m){out}") } else { out })
}

/// Returns the translation of an escape that depends on the set of word characters, or `None` for
/// every other escape.
fn word_escape(escaped: char, in_class: bool) -> Option<String> {
    match escaped {
        'w' if in_class => Some(format!("[{WORD_IN_CLASS}]")),
        'W' if in_class => Some(format!("[^{WORD_IN_CLASS}]")),
        _ if in_class => None,
        'w' => Some(format!("[{WORD}]")),
        'W' => Some(format!("[^{WORD}]")),
        'b' => Some(format!("(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))")),
        'B' => Some(format!("(?:(?<=[{WORD}])(?=[{WORD}])|(?<![{WORD}])(?![{WORD}]))")),
        _ => None,
    }
}

/// Returns whether an expression begins with a group that sets flags other than `i` and `x`.
fn has_other_flags(group: &str) -> bool {
    let Some(flags) = group.strip_prefix("(?") else { return false };
    let end = flags.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(flags.len());
    let closes = flags[end..].starts_with([':', ')']);
    closes && flags[..end].contains(|flag| !matches!(flag, 'i' | 'x' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of the Python package `tokenizers`, which uses Oniguruma.
    #[test]
    fn word_characters_are_those_of_oniguruma() {
        let matched = |pattern: &str, text: &str| {
            let regex = fancy_regex::Regex::new(&translated(pattern).unwrap()).unwrap();
            regex
                .find_iter(text)
                .map(|found| found.unwrap().as_str().to_owned())
                .collect::<Vec<_>>()
        };
        let text = "a\u{200d}b \u{bd}\u{b2}_\u{e9}\u{661}\u{24b6}-\u{200c}";
        assert_eq!(matched(r"\w+", text), ["a", "b", "\u{bd}\u{b2}_\u{e9}\u{661}\u{24b6}"]);
        assert_eq!(matched(r"\W", text), ["\u{200d}", " ", "-", "\u{200c}"]);
        assert_eq!(matched(r"[^\s\w-]", text), ["\u{200d}", "\u{bd}", "\u{b2}", "\u{200c}"]);
        let class = ["\u{200d}", " ", "\u{bd}", "\u{b2}", "\u{200c}"];
        assert_eq!(matched(r"[\W&&[^-]]", text), class);
        assert_eq!(matched(r"\b.", text), ["a", "\u{200d}", "b", " ", "\u{bd}", "-"]);
        assert_eq!(matched(r"\B.", "ab\u{bd} -"), ["b", "\u{bd}", "-"]);
        // An escaped backslash is not the beginning of an escape.
        assert_eq!(translated(r"\\w[\\b]").unwrap(), r"\\w[\\b]");
    }

    #[test]
    fn ends_of_lines_are_those_of_oniguruma() {
        for same in [r"\s+(?!\S)|\s+", "[^a$]+", r"(?i:'s)| ?\p{L}+", r"\$[\^x]", "[]^]"] {
            assert_eq!(translated(same).unwrap(), same);
        }
        assert_eq!(translated("^a|b$").unwrap(), "(?m)^a|b$");
        for bad in ["[[:alpha:]]", "(?m:.)", "(?im).", "[a--b]", "[~~a]"] {
            assert!(translated(bad).unwrap_err().is_unsupported(), "{bad}");
        }
    }
}
