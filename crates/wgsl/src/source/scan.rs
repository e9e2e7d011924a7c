//! Scans WGSL text for what the parser does not report: positions of comments, words and `override`
//! declarations.

use std::ops::Range;

/// Replaces comments and non-ASCII white space with spaces; byte offsets stay the same.
pub fn without_comments(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let (mut depth, mut line, mut i) = (0_usize, false, 0);
    while let Some(byte) = bytes.get(i) {
        let pair = bytes.get(i..i + 2).unwrap_or_default();
        let opens = !line && pair == b"/*";
        let closes = depth > 0 && pair == b"*/";
        line = depth == 0 && !ends_line(&bytes[i..]) && (line || pair == b"//");
        if opens || closes {
            depth = if opens { depth + 1 } else { depth - 1 };
            out.extend_from_slice(b"  ");
            i += 2;
            continue;
        }
        let space = wide_space(&bytes[i..]);
        if space > 0 {
            out.resize(out.len() + space, b' ');
            i += space;
            continue;
        }
        out.push(if (depth > 0 || line) && *byte != b'\n' { b' ' } else { *byte });
        i += 1;
    }
    // Comments were blanked byte by byte, so only whole characters are left.
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the length of the non-ASCII white space character that the bytes start with (next line,
/// direction mark, line or paragraph separator), or 0.
fn wide_space(bytes: &[u8]) -> usize {
    match bytes {
        [0xc2, 0x85, ..] => 2,
        [0xe2, 0x80, 0x8e | 0x8f | 0xa8 | 0xa9, ..] => 3,
        _ => 0,
    }
}

/// Returns whether the bytes start with a line break of WGSL: line feed, vertical tab, form feed,
/// carriage return, next line, line or paragraph separator.
fn ends_line(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'\n' | 0x0b | 0x0c | b'\r', ..] | [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..]
    )
}

/// A scanner over text without comments.
pub struct Scan<'a> {
    /// The text, with comments blanked.
    pub code: &'a str,
    /// Byte offset of the next character.
    pub at: usize,
}

impl<'a> Scan<'a> {
    /// Skips blanks, and returns the next byte without consuming it.
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.code.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Consumes and returns the next word; empty if there is none.
    pub fn word(&mut self) -> &'a str {
        self.peek();
        let rest = &self.code[self.at..];
        let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Moves from an opening round bracket to just after its closing one.
    pub fn skip_brackets(&mut self) {
        let mut depth = 0_usize;
        for (i, byte) in self.code.bytes().enumerate().skip(self.at) {
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                self.at = i + 1;
                return;
            }
        }
        self.at = self.code.len();
    }
}

/// Returns whether a byte belongs to an identifier.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// An `override` declaration in the text.
#[derive(Debug, PartialEq)]
pub(super) struct Declaration {
    /// Byte ranges of its `@id(..)` attributes.
    pub ids: Vec<Range<usize>>,
    /// Byte range of the word `override`.
    pub keyword: Range<usize>,
    /// Byte range of the name.
    pub name: Range<usize>,
    /// Whether a type follows the name.
    pub typed: bool,
    /// Byte offset of the semicolon, or of the end of the text.
    pub end: usize,
}

/// Returns every `override` declaration of a text without comments, in order. The word is reserved,
/// so it occurs nowhere else.
pub(super) fn declarations(code: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut scan = Scan { code, at: 0 };
    let mut ids = Vec::new();
    while let Some(byte) = scan.peek() {
        let start = scan.at;
        match byte {
            b'@' => {
                scan.at += 1;
                let name = scan.word();
                if scan.peek() == Some(b'(') {
                    scan.skip_brackets();
                }
                if name == "id" {
                    ids.push(start..scan.at);
                }
            }
            _ if is_word(byte) => {
                let word = scan.word();
                let ids = std::mem::take(&mut ids);
                if word != "override" {
                    continue;
                }
                let keyword = start..scan.at;
                scan.peek();
                let begin = scan.at;
                scan.word();
                let name = begin..scan.at;
                let typed = scan.peek() == Some(b':');
                let rest = &code[scan.at..];
                let end = scan.at + rest.find(';').unwrap_or(rest.len());
                scan.at = end;
                found.push(Declaration { ids, keyword, name, typed, end });
            }
            _ => {
                scan.at += 1;
                ids.clear();
            }
        }
    }
    found
}

/// Iterates over the words of a text without comments, each with its byte offset.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut scan = Scan { code, at: 0 };
    std::iter::from_fn(move || {
        while let Some(byte) = scan.peek() {
            let start = scan.at;
            if is_word(byte) {
                return Some((start, scan.word()));
            }
            scan.at += 1;
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_with_their_parts() {
        let text = "/* override a; */ @id(1 + (2)) override b: u32 = 3u;\noverride c\n= 4;\
                    \n@must_use @id(9)\noverride d : f32 ; var<private> overrides: u32; // override e;\n";
        let code = without_comments(text);
        let found = declarations(&code);
        let part = |range: &Range<usize>| &text[range.clone()];
        let rows: Vec<_> = (found.iter())
            .map(|d| (d.ids.iter().map(part).collect::<Vec<_>>(), part(&d.name), d.typed))
            .collect();
        let want =
            [(vec!["@id(1 + (2))"], "b", true), (vec![], "c", false), (vec!["@id(9)"], "d", true)];
        assert_eq!(rows, want);
        assert!(
            found.iter().all(|d| part(&d.keyword) == "override" && &text[d.end..=d.end] == ";")
        );
    }

    #[test]
    fn comments_end_where_lines_of_wgsl_end() {
        for end in ["\n", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
            let code = without_comments(&format!("// a{end}override b;"));
            assert_eq!(declarations(&code).len(), 1, "{end:?}");
        }
        let code = without_comments("var<private> a: u32;\u{200e}override b = 1;");
        assert_eq!(declarations(&code).len(), 1);
        assert!(declarations("override").len() == 1 && declarations("override x").len() == 1);
    }
}
