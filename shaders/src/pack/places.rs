//! Gives the bindings of a shader other numbers, in its text, so that lines stay where they are.

use std::collections::BTreeMap;
use std::ops::Range;

/// The text with `@group(0) @binding(n)` for each variable in `places`, whatever stood there.
pub(super) fn renumber(text: &str, places: &BTreeMap<String, u32>) -> String {
    let code = without_comments(text);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut scan = Scan { code: &code, at: 0 };
    let mut attributes: Vec<(&str, Range<usize>)> = Vec::new();
    while let Some(byte) = scan.peek() {
        match byte {
            b'@' => {
                let start = scan.at;
                scan.at += 1;
                let name = scan.word();
                if scan.peek() == Some(b'(') {
                    scan.skip_brackets();
                }
                attributes.push((name, start..scan.at));
            }
            _ if is_word(byte) => {
                let place = (scan.word() == "var").then(|| scan.variable()).and_then(|name| {
                    let place = places.get(name)?;
                    Some(*place)
                });
                for (name, range) in attributes.drain(..) {
                    let by = match (place, name) {
                        (Some(_), "group") => "@group(0)".to_string(),
                        (Some(place), "binding") => format!("@binding({place})"),
                        _ => continue,
                    };
                    let lines = text[range.clone()].matches('\n').count();
                    edits.push((range, by + &"\n".repeat(lines)));
                }
            }
            _ => {
                scan.at += 1;
                attributes.clear();
            }
        }
    }
    let mut out = String::with_capacity(text.len() + 16 * edits.len());
    let mut done = 0;
    for (range, by) in edits {
        out.push_str(&text[done..range.start]);
        out.push_str(&by);
        done = range.end;
    }
    out.push_str(&text[done..]);
    out
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Comments as blanks, byte for byte.
fn without_comments(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let (mut depth, mut line, mut i) = (0_usize, false, 0);
    while let Some(byte) = bytes.get(i) {
        let pair = bytes.get(i..i + 2).unwrap_or_default();
        let opens = !line && pair == b"/*";
        let closes = depth > 0 && pair == b"*/";
        line = depth == 0 && *byte != b'\n' && (line || pair == b"//");
        if opens || closes {
            depth = if opens { depth + 1 } else { depth - 1 };
            out.extend_from_slice(b"  ");
            i += 2;
            continue;
        }
        out.push(if (depth > 0 || line) && *byte != b'\n' { b' ' } else { *byte });
        i += 1;
    }
    // Bytes of comments went one by one, so that what is left are whole characters.
    String::from_utf8(out).unwrap_or_default()
}

struct Scan<'a> {
    code: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.code.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn word(&mut self) -> &'a str {
        self.peek();
        let rest = &self.code[self.at..];
        let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// From an opening bracket behind its closing one.
    fn skip_brackets(&mut self) {
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

    /// The name of a variable, behind `var`.
    fn variable(&mut self) -> &'a str {
        if self.peek() == Some(b'<') {
            let rest = &self.code[self.at..];
            self.at += rest.find('>').map_or(rest.len(), |end| end + 1);
        }
        self.word()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_of_named_variables_change() {
        let text = "\
/* @binding(9) /* nested */ var<storage> a */
@group(2) @binding(7) // @binding(8)
var<storage, read> a: array<f32>;
@binding(
  3 + (1)
) @group(1) var<uniform> ü_b: u32;
@group(0) @binding(5) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64) fn main() { var a = 1; }
";
        let places = BTreeMap::from([("a".into(), 1), ("ü_b".into(), 0)]);
        let want = "\
/* @binding(9) /* nested */ var<storage> a */
@group(0) @binding(1) // @binding(8)
var<storage, read> a: array<f32>;
@binding(0)

 @group(0) var<uniform> ü_b: u32;
@group(0) @binding(5) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64) fn main() { var a = 1; }
";
        assert_eq!(renumber(text, &places), want);
    }

    #[test]
    fn broken_text_is_left_alone() {
        for text in ["@binding(", "@", "var<", "/* a", "@binding(0) var<storage", "*/ //"] {
            let places = BTreeMap::from([("a".into(), 1)]);
            assert_eq!(renumber(text, &places), text, "{text}");
        }
    }
}
