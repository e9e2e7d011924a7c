//! Regular expressions of tokenizer.json: written for Oniguruma, run by `fancy-regex`.

use warploom::error::{Error, Result};

/// Translates an expression for `fancy-regex`.
///
/// The one translated difference is `^` and `$`, which match line boundaries in Oniguruma. Other
/// differences are refused.
///
/// # Errors
/// Unsupported, naming the construct.
pub(super) fn translated(pattern: &str) -> Result<String> {
    let refused = |what: &str| {
        Err(Error::unsupported(format!("regular expression {pattern:?}: {what} is not supported")))
    };
    let bytes = pattern.as_bytes();
    let (mut at, mut depth, mut lines) = (0, 0usize, false);
    while at < bytes.len() {
        let rest = &pattern.as_bytes()[at..];
        match rest[0] {
            b'\\' => at += 1,
            b'[' if depth > 0 && rest.starts_with(b"[:") => return refused("a POSIX class"),
            b'[' => {
                depth += 1;
                // A closing bracket without an opening one is literal.
                let skip = 1 + usize::from(rest.get(1) == Some(&b'^'));
                if rest.get(skip) == Some(&b']') {
                    at += skip;
                }
            }
            b']' => depth = depth.saturating_sub(1),
            b'-' if depth > 0 && rest.starts_with(b"--") => return refused("`--` in a class"),
            b'~' if depth > 0 && rest.starts_with(b"~~") => return refused("`~~` in a class"),
            b'^' | b'$' if depth == 0 => lines = true,
            b'(' if depth == 0 && rest.starts_with(b"(?") => {
                let flags = rest[2..].iter().take_while(|b| b.is_ascii_alphabetic() || **b == b'-');
                let count = flags.clone().count();
                let closes = matches!(rest.get(2 + count), Some(b':' | b')'));
                if closes && flags.clone().any(|flag| !matches!(flag, b'i' | b'x' | b'-')) {
                    return refused("a flag other than `i` and `x`");
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(if lines { format!("(?m){pattern}") } else { pattern.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

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
