//! The tokenizer.json of a GGUF file whose tokenizer is SentencePiece's Unigram, as XLM-RoBERTa has it,
//! which GGUF's own keys describe.

use base64::Engine as _;
use serde_json::{Value as Json, json};

use crate::vocabulary::{CONTROL, TokenizerSpec, UNKNOWN, USER_DEFINED, type_of};
use warploom::{Error, Result};

/// `tokenizer.ggml.model` of Unigram.
pub(crate) const MODEL: &str = "t5";
/// Stands for a space.
const SPACE: &str = "\u{2581}";

/// Returns the tokenizer.json of a vocabulary.
///
/// # Errors
/// Bad file, naming the key, if there are not as many scores as tokens, or none is the token of
/// unknown text.
pub(crate) fn json(spec: &TokenizerSpec) -> Result<Json> {
    let (tokens, scores) = (&spec.tokens, &spec.scores);
    if scores.len() != tokens.len() {
        let (scores, tokens) = (scores.len(), tokens.len());
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.scores: {scores} entries for {tokens} tokens"
        )));
    }
    if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
        let score = scores[at];
        return Err(Error::bad_file(format!("tokenizer.ggml.scores: element {at} is {score}")));
    }
    let first_unknown = || (0..tokens.len()).find(|id| type_of(spec, *id) == UNKNOWN);
    let unknown = spec.unknown.map(|id| id as usize).or_else(first_unknown);
    let unknown = unknown.filter(|id| *id < tokens.len()).ok_or_else(|| {
        Error::bad_file("tokenizer.ggml.unknown_token_id: no token stands for unknown text")
    })?;
    let vocabulary: Vec<Json> =
        tokens.iter().zip(scores).map(|(token, score)| json!([token, score])).collect();
    let is_added = |id: &usize| {
        matches!(type_of(spec, *id), CONTROL | UNKNOWN | USER_DEFINED) && !tokens[*id].is_empty()
    };
    let added = (0..tokens.len()).filter(is_added).map(|id| {
        let special = type_of(spec, id) != USER_DEFINED;
        json!({
            "id": id, "content": tokens[id], "special": special, "normalized": false,
            "lstrip": false, "rstrip": false, "single_word": false,
        })
    });
    let mut normalizers = Vec::new();
    if !spec.charsmap.is_empty() {
        let map = base64::engine::general_purpose::STANDARD.encode(&spec.charsmap);
        normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
    }
    let removes = spec.removes_spaces.unwrap_or(true);
    if removes {
        normalizers.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    }
    let prefix = spec.add_space_prefix.unwrap_or(true);
    let space = json!({
        "type": "Metaspace", "replacement": SPACE, "split": true,
        "prepend_scheme": if prefix { "always" } else { "never" },
    });
    // Also without white space around the text.
    let splits = removes.then(|| json!({"type": "WhitespaceSplit"}));
    let splits: Vec<Json> = splits.into_iter().chain([space.clone()]).collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": null,
        "decoder": space,
        "model": {
            "type": "Unigram", "unk_id": unknown, "byte_fallback": false, "vocab": vocabulary,
        },
    }))
}
