//! Finds the tokens at which generation stops, and makes them control tokens.
//!
//! A file names them by role (`eos_token_id` and others), often incompletely, or with a token type
//! that makes them ordinary text. So tokens with a well-known end-of-turn or end-of-text name also
//! end generation, and become control tokens whatever their type in the file: they are never part
//! of the output, and are recognised in a prompt only where control tokens are, never in message
//! text. The names are those of llama.cpp.

use std::collections::HashSet;

use super::vocabulary::{CONTROL, NORMAL, TokenizerSpec, USER_DEFINED, check_id};
use warploom::Result;

/// Names of tokens that end a text, a turn or a message.
const NAMES: [&str; 23] = [
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|call|>",
    "<|calls|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|flush|>",
    "<|im_end|>",
    "<|return|>",
    "<|tool_response>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "[EOS]",
    "[EOT]",
    "[e~[",
    "_<EOT>",
    "\u{2581}<EOT>",
];

/// Names of padding tokens and of tokens between files or repositories: an answer does not continue
/// after one.
const BETWEEN_FILES: [&str; 11] = [
    "<PAD>",
    "<REPO>",
    "<fim-pad>",
    "<fim-repo>",
    "<fim_pad>",
    "<reponame>",
    "<|file_sep|>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "[PAD]",
];

/// If a vocabulary has both tokens of a pair, `<|end|>` closes a section of an answer, not the
/// answer.
const ENDS_PARTS: [[&str; 2]; 2] = [["<|return|>", "<|call|>"], ["<|calls|>", "<|flush|>"]];
const END_OF_PART: &str = "<|end|>";

/// Yields the tokens in [`NAMES`] and [`BETWEEN_FILES`], with their ids.
fn named(spec: &TokenizerSpec) -> impl Iterator<Item = (u32, &str)> {
    let tokens = (0u32..).zip(spec.tokens.iter().map(String::as_str));
    tokens.filter(|(_, token)| NAMES.contains(token) || BETWEEN_FILES.contains(token))
}

/// Returns the end ids that the file names by role, with their keys.
fn by_role(spec: &TokenizerSpec) -> [(&'static str, Option<u32>); 3] {
    [("eos_token_id", spec.eos), ("eot_token_id", spec.eot), ("eom_token_id", spec.eom)]
}

/// Turns the tokens that end an answer into control tokens, except normal ones that only the file's
/// keys name.
pub(super) fn retype(spec: &mut TokenizerSpec) {
    let by_name: Vec<usize> = named(spec).map(|(id, _)| id as usize).collect();
    let by_role = by_role(spec).into_iter().filter_map(|(_, id)| id).chain(spec.ends.clone());
    // A normal token may occur within other text, so it stays a text token.
    let by_role: Vec<usize> = by_role
        .map(|id| id as usize)
        .filter(|id| spec.token_types.get(*id) == Some(&USER_DEFINED))
        .collect();
    if by_name.is_empty() && by_role.is_empty() {
        return;
    }
    if spec.token_types.is_empty() {
        spec.token_types = vec![NORMAL; spec.tokens.len()];
    }
    for id in by_name.into_iter().chain(by_role) {
        if let Some(kind) = spec.token_types.get_mut(id) {
            *kind = CONTROL;
        }
    }
}

/// Returns the ids of the tokens at which generation stops.
///
/// # Errors
/// Bad file, naming key and id, for an id outside the vocabulary.
pub(super) fn of(spec: &TokenizerSpec) -> Result<HashSet<u32>> {
    let mut ends = HashSet::new();
    let has = |names: &[&str; 2]| names.iter().all(|name| spec.tokens.iter().any(|t| t == name));
    let end_is_of_part = ENDS_PARTS.iter().any(has);
    ends.extend(
        named(spec)
            .filter(|(_, token)| !(end_is_of_part && *token == END_OF_PART))
            .map(|(id, _)| id),
    );
    for (key, id) in by_role(spec) {
        ends.extend(check_id(spec, key, id)?);
    }
    for id in &spec.ends {
        ends.extend(check_id(spec, "end_token_ids", Some(*id))?);
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(tokens: &[&str], types: &[i32]) -> TokenizerSpec {
        TokenizerSpec {
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            token_types: types.to_vec(),
            ..TokenizerSpec::default()
        }
    }

    #[test]
    fn a_name_ends_an_answer_whatever_its_type() {
        for name in NAMES.iter().chain(&BETWEEN_FILES) {
            for kind in [1, 3, 4, 5] {
                let mut spec = spec(&["a", name, "b"], &[1, kind, 1]);
                retype(&mut spec);
                assert_eq!(spec.token_types, [1, CONTROL, 1], "{name} of type {kind}");
                assert_eq!(of(&spec).unwrap(), HashSet::from([1]), "{name}");
            }
            // A file without types.
            let mut spec = spec(&["a", name], &[]);
            retype(&mut spec);
            assert_eq!(spec.token_types, [1, CONTROL]);
        }
        let mut none = spec(&["a", "<|im_start|>"], &[]);
        retype(&mut none);
        assert!(none.token_types.is_empty() && of(&none).unwrap().is_empty());
    }

    #[test]
    fn every_role_and_every_id_of_the_list_counts() {
        let mut spec = spec(&["a", "b", "c", "d", "e", "f"], &[1, 4, 3, 1, 4, 4]);
        (spec.eos, spec.eot, spec.eom, spec.ends) = (Some(0), Some(1), Some(2), vec![3, 4]);
        retype(&mut spec);
        assert_eq!(of(&spec).unwrap(), HashSet::from([0, 1, 2, 3, 4]));
        // Text stays text; a user-defined token becomes a control token.
        assert_eq!(spec.token_types, [1, 3, 3, 1, 3, 4]);
        spec.ends = vec![9];
        let error = of(&spec).unwrap_err().to_string();
        assert!(error.contains("end_token_ids: 9") && error.contains("6 tokens"), "{error}");
    }

    #[test]
    fn the_end_of_a_part_is_no_end() {
        let types = [3, 3, 3];
        for [a, b] in ENDS_PARTS {
            assert_eq!(of(&spec(&[END_OF_PART, a, b], &types)).unwrap(), HashSet::from([1, 2]));
        }
        let phi = spec(&[END_OF_PART, "<|return|>", "x"], &types);
        assert_eq!(of(&phi).unwrap(), HashSet::from([0, 1]));
        // The file may still mark it as an end.
        let said = TokenizerSpec {
            eos: Some(0),
            ..spec(&[END_OF_PART, "<|return|>", "<|call|>"], &types)
        };
        assert_eq!(of(&said).unwrap(), HashSet::from([0, 1, 2]));
    }
}
