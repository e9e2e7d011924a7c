//! Writes the patterns of `pretokenizer` in the syntax of JavaScript's regular expressions.

/// Translates a pattern for `RegExp` with the flag `u`.
///
/// The translated constructs are `\s` and `\S`, which have other characters in JavaScript; groups
/// with `(?i:`, which not every browser supports; and possessive quantifiers, which none supports.
/// In the patterns of this crate, possessive quantifiers match the same text as greedy ones, since
/// no part after them can match the characters that they consumed.
pub(super) fn for_javascript(pattern: &str) -> String {
    let mut out = String::with_capacity(2 * pattern.len());
    let mut rest = pattern.chars().peekable();
    let (mut depth, mut in_class, mut after_quantifier) = (0_usize, false, false);
    // Depth of the group whose letters stand for both cases.
    let mut folded: Option<usize> = None;
    while let Some(c) = rest.next() {
        let quantified = std::mem::take(&mut after_quantifier);
        match c {
            '\\' => match rest.next() {
                Some('s') => out.push_str(r"\p{White_Space}"),
                Some('S') => out.push_str(r"\P{White_Space}"),
                Some(property @ ('p' | 'P')) => {
                    out.extend(['\\', property]);
                    // The name of a property is no text to translate.
                    for c in rest.by_ref() {
                        out.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
                escaped => out.extend(std::iter::once('\\').chain(escaped)),
            },
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            '[' if !in_class => {
                in_class = true;
                out.push(c);
            }
            '(' if !in_class => {
                depth += 1;
                out.push(c);
                if rest.clone().take(3).eq("?i:".chars()) {
                    folded = Some(depth);
                    rest.nth(2);
                    out.push_str("?:");
                } else if rest.next_if_eq(&'?').is_some() {
                    out.push('?');
                }
            }
            ')' if !in_class => {
                folded = folded.filter(|group| *group != depth);
                depth = depth.saturating_sub(1);
                out.push(c);
            }
            '+' if quantified => {}
            '?' | '*' | '+' if !in_class => {
                after_quantifier = true;
                out.push(c);
            }
            c if folded.is_some() && c.is_ascii_alphabetic() => {
                let both = [c.to_ascii_lowercase(), c.to_ascii_uppercase()];
                // By Unicode's folding the long s is an s too.
                let long = c.eq_ignore_ascii_case(&'s').then_some('\u{17f}');
                let letters: String = both.into_iter().chain(long).collect();
                match in_class {
                    true => out.push_str(&letters),
                    false => out.extend(["[", letters.as_str(), "]"]),
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_that_javascript_lacks_are_written_with_others() {
        let rows = [
            (
                r" ?[^\s\p{L}]+|\s+(?!\S)",
                r" ?[^\p{White_Space}\p{L}]+|\p{White_Space}+(?!\P{White_Space})",
            ),
            ("(?i:'s|'Re|(a))?s", "(?:'[sS\u{17f}]|'[rR][eE]|([aA]))?s"),
            ("'(?i:[sd]|ll)", "'(?:[sS\u{17f}dD]|[lL][lL])"),
            (r"[^\r]?+\p{Lu}++[\r+]*", r"[^\r]?\p{Lu}+[\r+]*"),
            (r"[\]\\(?]+\$\+", r"[\]\\(?]+\$\+"),
            ("a{1,3}(?:b)", "a{1,3}(?:b)"),
        ];
        for (pattern, want) in rows {
            assert_eq!(for_javascript(pattern), want, "{pattern}");
        }
    }
}
