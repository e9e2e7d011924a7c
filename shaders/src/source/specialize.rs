//! Specialisation: parameter words known at compile time become constants in the text.

use std::collections::BTreeMap;

/// Replaces uses of fields of `params` with constants: the given words, by index in the block. The
/// block's declaration is unchanged. Non-finite floats stay fields: WGSL has no such constants.
pub(super) fn settle(text: &str, words: &BTreeMap<u32, u32>) -> String {
    let numbers = numbers(text, words);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("params.") {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let field = &found["params.".len()..];
        let end = field.find(|c: char| !is_name(c)).unwrap_or(field.len());
        let part_of_another = before.chars().next_back().is_some_and(|c| is_name(c) || c == '.');
        match numbers.get(&field[..end]).filter(|_| !part_of_another) {
            Some(number) => out.push_str(number),
            None => out.push_str(&found[.."params.".len() + end]),
        }
        rest = &field[end..];
    }
    out.push_str(rest);
    out
}

/// Returns, by field name, the WGSL constant of each field whose word is given.
fn numbers<'a>(text: &'a str, words: &BTreeMap<u32, u32>) -> BTreeMap<&'a str, String> {
    let Some((_, block)) = text.split_once("struct Params {") else { return BTreeMap::new() };
    let block = block.split_once('}').map_or(block, |(block, _)| block);
    let fields = block.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let fields = fields.filter_map(|line| line.trim_end_matches(',').split_once(": "));
    let known = fields.enumerate().filter_map(|(place, (name, of))| {
        let bits = *words.get(&(place as u32))?;
        let number = match of.trim() {
            "u32" => format!("{bits}u"),
            "f32" if f32::from_bits(bits).is_finite() => format!("bitcast<f32>({bits}u)"),
            _ => return None,
        };
        Some((name.trim(), number))
    });
    known.collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::settle;

    #[test]
    fn known_words_take_the_place_of_fields() {
        let text = "struct Params {\n    rows: u32,\n    // A comment: of its own.\n    k: u32,\n    eps: f32,\n    k2: u32,\n}\n\
                    let a = params.rows + params.k * params.k2 + my_params.k + params.eps;";
        let body = |words: &[(u32, u32)]| {
            let all = settle(text, &words.iter().copied().collect());
            all.split_once("}\n").unwrap().1.to_string()
        };
        assert_eq!(
            body(&[(1, 64), (2, 1.5f32.to_bits())]),
            "let a = params.rows + 64u * params.k2 + my_params.k + bitcast<f32>(1069547520u);"
        );
        assert_eq!(
            body(&[(0, 7), (3, 8), (2, f32::INFINITY.to_bits())]),
            "let a = 7u + params.k * 8u + my_params.k + params.eps;"
        );
        assert_eq!(settle("no block", &[(0, 1)].into_iter().collect()), "no block");
    }
}
