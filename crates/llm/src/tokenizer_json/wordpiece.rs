//! The tokenizer.json of a GGUF file whose tokenizer is BERT's, WordPiece, which GGUF's own keys
//! describe.

use serde_json::{Value as Json, json};

use crate::vocabulary::{CONTROL, TokenizerSpec, UNKNOWN, type_of};
use warploom::{Error, Result};

/// `tokenizer.ggml.model` of WordPiece.
pub(crate) const MODEL: &str = "bert";
/// Begins the text of a token that begins a word.
const BEGINS: char = '\u{2581}';

/// Returns the text of a token as tokenizer.json has it: GGUF marks what begins a word, and
/// tokenizer.json what goes on with one. Names in brackets have no mark.
fn text_of(token: &str) -> String {
    match token.strip_prefix(BEGINS) {
        Some(word) => word.to_owned(),
        None if token.starts_with('[') && token.ends_with(']') => token.to_owned(),
        None => format!("##{token}"),
    }
}

/// Returns the tokenizer.json of a vocabulary: that of BERT without case, as in llama.cpp.
///
/// # Errors
/// Bad file, naming the token, if the vocabulary has no `[UNK]`, or a text twice.
pub(crate) fn json(spec: &TokenizerSpec) -> Result<Json> {
    let texts: Vec<String> = spec.tokens.iter().map(|token| text_of(token)).collect();
    let mut vocabulary = serde_json::Map::with_capacity(texts.len());
    for (id, text) in texts.iter().enumerate() {
        if let Some(first) = vocabulary.insert(text.clone(), json!(id)) {
            return Err(Error::bad_file(format!(
                "tokenizer.ggml.tokens: element {id} repeats element {first}, {text:?}"
            )));
        }
    }
    let named = |name: &str| texts.iter().position(|text| text == name);
    if named("[UNK]").is_none() {
        return Err(Error::bad_file("tokenizer.ggml.tokens: there is no [UNK]"));
    }
    let is_control = |id: &usize| matches!(type_of(spec, *id), CONTROL | UNKNOWN);
    let added = (0..texts.len()).filter(is_control).map(|id| {
        json!({
            "id": id, "content": texts[id], "special": true, "normalized": false,
            "lstrip": false, "rstrip": false, "single_word": false,
        })
    });
    let edge = |key: &str, id: Option<u32>, name: &str| match id {
        None => Ok(named(name).map(|id| texts[id].clone())),
        Some(id) => match texts.get(id as usize) {
            Some(text) => Ok(Some(text.clone())),
            None => Err(Error::bad_file(format!(
                "tokenizer.ggml.{key}_token_id: {id}, but there are {} tokens",
                texts.len()
            ))),
        },
    };
    let special = |name: &String| json!({"SpecialToken": {"id": name, "type_id": 0}});
    // Newer files name the first one as the token that begins a text.
    let begin = match spec.cls {
        Some(id) => edge("cls", Some(id), "")?,
        None => edge("bos", spec.bos, "[CLS]")?,
    };
    let end = edge("seperator", spec.sep, "[SEP]")?;
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let single: Vec<Json> =
        begin.iter().map(special).chain([text]).chain(end.iter().map(special)).collect();
    let second = json!({"Sequence": {"id": "B", "type_id": 1}});
    let pair = single.iter().cloned().chain([second]).chain(end.iter().map(special));
    let pair: Vec<Json> = pair.collect();
    let ids = begin
        .iter()
        .chain(&end)
        .map(|name| (name.clone(), json!({"id": name, "ids": [named(name)], "tokens": [name]})));
    let ids: serde_json::Map<String, Json> = ids.collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    }))
}
