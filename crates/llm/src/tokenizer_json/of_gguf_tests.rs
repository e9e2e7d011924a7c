//! Vocabularies in GGUF's own keys give the ids of the tokenizer.json that they were made of.

use std::collections::HashSet;
use std::path::Path;

use base64::Engine as _;
use serde_json::{Value as Json, json};

use super::{Guard, Pipeline, unigram, wordpiece};
use crate::vocabulary::{CONTROL, NORMAL, TokenizerSpec, UNKNOWN};

fn read(name: &str) -> Json {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizers");
    serde_json::from_str(&std::fs::read_to_string(root.join(name)).unwrap()).unwrap()
}

fn ids(pipeline: &Pipeline, text: &str, parse_special: bool) -> Vec<u32> {
    let guard = Guard { marks: &[], parse_special, from: 0, before: None };
    pipeline.encode(text, &guard).unwrap()
}

/// Compares the 200 strings of the golden files in both.
fn compare(file: &Json, spec: &TokenizerSpec, made: &Json) {
    let count = spec.tokens.len();
    let [want, got] = [file, made].map(|json| Pipeline::new(json, count, HashSet::new()).unwrap());
    let strings = read("cases.json");
    let strings = strings["strings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    let own = ["a [SEP] b", "[MASK]", "[CLS]x", "[UNK][SEP]", "x[MASK]y", "[SEP][SEP] z"];
    let strings = strings.chain(own);
    let mut different = 0;
    for text in strings {
        let expected = ids(&want, text, false);
        assert_eq!(ids(&got, text, false), expected, "{text:?}");
        let special = ids(&want, text, true);
        assert_eq!(ids(&got, text, true), special, "{text:?}");
        different += usize::from(special != expected);
    }
    assert!(different > 3, "{different} strings have control tokens");
    assert_eq!(got.around(), want.around());
}

/// Keeps the control tokens among the added tokens, as plain ones: GGUF knows no others of these
/// tokenizers.
fn plain(file: &mut Json) -> Vec<(usize, String)> {
    let added: Vec<Json> = file["added_tokens"].as_array().unwrap().clone();
    let special = added.into_iter().filter(|token| token["special"] == true);
    let mut kept = Vec::new();
    let plain = special.map(|token| {
        let text = token["content"].as_str().unwrap().to_owned();
        kept.push((token["id"].as_u64().unwrap() as usize, text));
        json!({
            "id": token["id"], "content": token["content"], "special": true, "normalized": false,
            "lstrip": false, "rstrip": false, "single_word": false,
        })
    });
    let plain: Vec<Json> = plain.collect();
    file["added_tokens"] = plain.into();
    kept
}

#[test]
fn wordpiece_of_gguf_is_that_of_its_file() {
    let mut file = read("wordpiece-bert.json");
    let added = plain(&mut file);
    let vocabulary = file["model"]["vocab"].as_object().unwrap();
    let count = vocabulary.len().max(added.iter().map(|(id, _)| id + 1).max().unwrap());
    let mut spec = TokenizerSpec {
        model: wordpiece::MODEL.into(),
        tokens: (0..count).map(|id| format!("[unused{id}]")).collect(),
        token_types: vec![NORMAL; count],
        ..TokenizerSpec::default()
    };
    for (text, id) in vocabulary {
        // As llama.cpp's converter writes it.
        let token = match text.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if text.starts_with('[') && text.ends_with(']') => text.clone(),
            None => format!("\u{2581}{text}"),
        };
        spec.tokens[id.as_u64().unwrap() as usize] = token;
    }
    // A name in brackets, which is how control tokens are recognised in such files.
    let is_named = |text: &str| text.starts_with('[') && text.ends_with(']');
    for (id, text) in added.iter().filter(|(_, text)| is_named(text)) {
        spec.tokens[*id].clone_from(text);
        spec.token_types[*id] = CONTROL;
    }
    let kept = file["added_tokens"].as_array_mut().unwrap();
    kept.retain(|token| is_named(token["content"].as_str().unwrap()));
    // GGUF has no key for it, and all files of BERT have this one.
    file["model"]["max_input_chars_per_word"] = json!(100);
    compare(&file, &spec, &wordpiece::json(&spec).unwrap());
}

#[test]
fn unigram_of_gguf_is_that_of_its_file() {
    let mut file = read("unigram-precompiled.json");
    let added = plain(&mut file);
    let vocabulary = file["model"]["vocab"].as_array().unwrap();
    let text = |entry: &Json| entry[0].as_str().unwrap().to_owned();
    let charsmap = file["normalizer"]["precompiled_charsmap"].as_str().unwrap();
    let mut spec = TokenizerSpec {
        model: unigram::MODEL.into(),
        tokens: vocabulary.iter().map(text).collect(),
        scores: vocabulary.iter().map(|entry| entry[1].as_f64().unwrap() as f32).collect(),
        token_types: vec![NORMAL; vocabulary.len()],
        unknown: file["model"]["unk_id"].as_u64().map(|id| id as u32),
        charsmap: base64::engine::general_purpose::STANDARD.decode(charsmap).unwrap(),
        removes_spaces: Some(false),
        ..TokenizerSpec::default()
    };
    let outside: Vec<usize> =
        added.iter().map(|(id, _)| *id).filter(|id| *id >= spec.tokens.len()).collect();
    for (id, text) in &added {
        if let Some(kind) = spec.token_types.get_mut(*id) {
            *kind = if Some(*id as u32) == spec.unknown { UNKNOWN } else { CONTROL };
            spec.tokens[*id].clone_from(text);
        }
    }
    let kept = file["added_tokens"].as_array_mut().unwrap();
    kept.retain(|token| !outside.contains(&(token["id"].as_u64().unwrap() as usize)));
    // Scores have the precision of GGUF.
    for (entry, score) in
        file["model"]["vocab"].as_array_mut().unwrap().iter_mut().zip(&spec.scores)
    {
        entry[1] = json!(score);
    }
    compare(&file, &spec, &unigram::json(&spec).unwrap());
    spec.scores.pop();
    assert!(unigram::json(&spec).unwrap_err().to_string().contains("tokenizer.ggml.scores"));
    spec.scores.push(f32::NAN);
    assert!(unigram::json(&spec).unwrap_err().to_string().contains("NaN"));
    spec.scores.pop();
    spec.scores.push(-1.0);
    (spec.unknown, spec.token_types) = (None, vec![NORMAL; spec.tokens.len()]);
    assert!(unigram::json(&spec).unwrap_err().to_string().contains("unknown_token_id"));
}
