//! `tokenizer.json` of SentencePiece's kind in each of the ways that it is written.

use serde_json::json;

use super::*;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use warploom_models::gguf::Gguf;

fn golden() -> Json {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join("tests/golden/tokenizer/sentencepiece.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A file with the trained vocabulary, as the library's converter writes it.
fn file(golden: &Json, normalizer: Json, pre_tokenizer: Json) -> Json {
    let tokens: Vec<String> = serde_json::from_value(golden["tokens"].clone()).unwrap();
    let types: Vec<i32> = serde_json::from_value(golden["types"].clone()).unwrap();
    let vocab: serde_json::Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let added: Vec<Json> = (0..tokens.len())
        .filter(|id| (2..=4).contains(&types[*id]))
        .map(|id| json!({"id": id, "content": tokens[id], "special": types[id] != 4}))
        .collect();
    json!({
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": {
            "type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>",
            "vocab": vocab, "merges": golden["merges"]
        }
    })
}

/// The tokenizer that a folder with this file has.
fn tokenizer(test: &str, file: &Json) -> Result<(Gguf, Tokenizer)> {
    let folder = std::env::temp_dir().join(format!("warploom-spm-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), file.to_string()).unwrap();
    let config: Config = serde_json::from_value(json!({
        "model_type": "gemma3_text", "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "vocab_size": 642, "bos_token_id": 1, "eos_token_id": 2
    }))
    .unwrap();
    let mut writer = Writer::new();
    let described = describe(&folder, &config, &mut writer);
    std::fs::remove_dir_all(&folder).unwrap();
    described?;
    let gguf = Gguf::from_bytes(writer.begin(Vec::new())?.finish()?, "made")?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    Ok((gguf, tokenizer))
}

#[test]
fn each_way_of_writing_gives_the_same_ids() {
    let golden = golden();
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
    let both = json!({"type": "Sequence", "normalizers": [prepend, replace.clone()]});
    let split = json!({
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"
    });
    let meta = |scheme: &str| {
        json!({
            "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme,
            "split": false
        })
    };
    let rows = [
        ("gemma", replace, split, "without"),
        ("llama", both, Json::Null, "with_prefix"),
        ("first", Json::Null, meta("first"), "with_prefix"),
        ("never", Json::Null, meta("never"), "without"),
    ];
    let strings: Vec<String> = serde_json::from_value(golden["strings"].clone()).unwrap();
    for (name, normalizer, pre, key) in rows {
        let (gguf, tokenizer) = tokenizer(name, &file(&golden, normalizer, pre)).unwrap();
        let options = EncodeOptions { add_bos: false, parse_special: false };
        for (text, want) in strings.iter().zip(golden[key].as_array().unwrap()) {
            let want: Vec<u32> = serde_json::from_value(want.clone()).unwrap();
            // Behind a token that users defined, the package's prefix is another.
            if key == "with_prefix" && want.iter().skip(1).any(|id| [3, 4].contains(id)) {
                continue;
            }
            assert_eq!(tokenizer.encode(text, options).unwrap(), want, "{name}: {text:?}");
        }
        let types: Vec<i64> = gguf.integers("tokenizer.ggml.token_type").unwrap().collect();
        let mut want: Vec<i64> = serde_json::from_value(golden["types"].clone()).unwrap();
        want.extend([5, 5]);
        assert_eq!(types, want);
        // Scores, for readers that have no merges for such a model, order tokens alike.
        let scores: Vec<f32> = gguf.floats("tokenizer.ggml.scores").unwrap().collect();
        let theirs: Vec<f32> = serde_json::from_value(golden["scores"].clone()).unwrap();
        let made = |id: &usize| scores[*id] != 0.0;
        let ids: Vec<usize> = (0..640).filter(made).collect();
        assert!(ids.len() > 200);
        for pair in ids.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            assert_eq!(scores[a] > scores[b], theirs[a] > theirs[b], "{a} {b}");
        }
    }
}

#[test]
fn another_way_of_cutting_is_refused_by_name() {
    let golden = golden();
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let rows = [
        (json!({"type": "NFKC"}), Json::Null),
        (json!({"type": "Lowercase"}), Json::Null),
        (Json::Null, Json::Null),
        (replace.clone(), json!({"type": "Whitespace"})),
        (replace, json!({"type": "Metaspace", "replacement": "_", "split": false})),
    ];
    for (normalizer, pre) in rows {
        let error = tokenizer("refused", &file(&golden, normalizer, pre)).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("tokenizer.json: normalizer"), "{error}");
    }
}
