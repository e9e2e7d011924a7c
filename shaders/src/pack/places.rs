//! Renumbers the bindings of a shader in its text, preserving line numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use warploom_wgsl::source::{Scan, is_word, without_comments};

/// Returns the text with the group and binding of each variable in `places` replaced with group 0
/// and the given binding.
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
                let place = (scan.word() == "var").then(|| variable(&mut scan)).and_then(|name| {
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

/// Scans the rest of a declaration after `var`, up to the variable's name, and returns the name.
fn variable<'a>(scan: &mut Scan<'a>) -> &'a str {
    if scan.peek() == Some(b'<') {
        let rest = &scan.code[scan.at..];
        scan.at += rest.find('>').map_or(rest.len(), |end| end + 1);
    }
    scan.word()
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
