//! Tests variants of `tokenizer.json`: SentencePiece BPE and others.

use serde_json::json;

use super::*;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use warploom_models::gguf::Gguf;

fn golden() -> Json {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join("tests/golden/tokenizer/sentencepiece.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Creates a `tokenizer.json` with the trained vocabulary, as the converter of `transformers`
/// writes it.
fn file(golden: &Json, normalizer: Json, pre_tokenizer: Json) -> Json {
    let tokens: Vec<String> = serde_json::from_value(golden["tokens"].clone()).unwrap();
    let types: Vec<i32> = serde_json::from_value(golden["types"].clone()).unwrap();
    let vocab: serde_json::Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let added: Vec<Json> = (0..tokens.len())
        .filter(|id| (2..=4).contains(&types[*id]))
        .map(|id| {
            json!({
                "id": id, "content": tokens[id], "special": types[id] != 4, "normalized": false
            })
        })
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

/// A file in a folder: its name and contents.
type Beside<'a> = (&'a str, &'a Json);

/// Converts a folder with this `tokenizer.json`, for a model with 642 embedding rows.
fn tokenizer(test: &str, file: &Json) -> Result<(Gguf, Tokenizer)> {
    tokenizer_of(test, 642, &[("tokenizer.json", file)])
}

fn tokenizer_of(test: &str, rows: u64, files: &[Beside<'_>]) -> Result<(Gguf, Tokenizer)> {
    let folder = std::env::temp_dir().join(format!("warploom-spm-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, file) in files {
        std::fs::write(folder.join(name), file.to_string()).unwrap();
    }
    let config: Config = serde_json::from_value(json!({
        "model_type": "gemma3_text", "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "vocab_size": rows, "bos_token_id": 1, "eos_token_id": 2
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
            // After a user-defined token, the package's prefix differs.
            if key == "with_prefix" && want.iter().skip(1).any(|id| [3, 4].contains(id)) {
                continue;
            }
            // No merge produces the token of four spaces here, and Metaspace takes a space at the
            // start of the text for its own prefix.
            if text.contains("    ") || (name == "first" && text.starts_with([' ', '\u{2581}'])) {
                continue;
            }
            assert_eq!(tokenizer.encode(text, options).unwrap(), want, "{name}: {text:?}");
        }
        let types: Vec<i64> = gguf.integers("tokenizer.ggml.token_type").unwrap().collect();
        let mut want: Vec<i64> = serde_json::from_value(golden["types"].clone()).unwrap();
        want.extend([5, 5]);
        assert_eq!(types, want);
        // The scores, for readers that use no merges, order the tokens in the same way.
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

fn tokenizers(name: &str) -> Json {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizers");
    serde_json::from_str(&std::fs::read_to_string(root.join(name)).unwrap()).unwrap()
}

fn ids(value: &Json) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Every variant becomes metadata that produces the ids of the Python package: by GGUF's own keys
/// if they suffice, otherwise by the embedded file.
#[test]
fn what_the_keys_cannot_say_is_carried_whole() {
    let cases = tokenizers("cases.json");
    let texts: Vec<String> = serde_json::from_value(cases["strings"].clone()).unwrap();
    let plain = EncodeOptions { add_bos: false, parse_special: true };
    let (mut carried, mut said) = (Vec::new(), Vec::new());
    for row in cases["rows"].as_array().unwrap().iter().filter(|row| row.get("patch").is_none()) {
        let name = row["file"].as_str().unwrap();
        let mut file = tokenizers(&format!("{name}.json"));
        if name == "bpe-suffix" {
            let error = tokenizer_of(name, 1000, &[("tokenizer.json", &file)]).unwrap_err();
            assert!(error.to_string().contains("tokenizer.json: decoder BPEDecoder"), "{error}");
            file["decoder"] = Json::Null;
        }
        let (gguf, tokenizer) = tokenizer_of(name, 1000, &[("tokenizer.json", &file)]).unwrap();
        for (text, want) in texts.iter().zip(row["ids"].as_array().unwrap()) {
            assert_eq!(tokenizer.encode(text, plain).unwrap(), ids(want), "{name}: {text:?}");
        }
        let model = gguf.get_str("tokenizer.ggml.model").unwrap();
        match gguf.find_str(tokenizer_json::KEY).unwrap() {
            Some(_) => carried.push((name, model.to_owned())),
            None => said.push((name, model.to_owned())),
        }
        let all = EncodeOptions { add_bos: true, parse_special: true };
        let around = row["around"].as_array().unwrap();
        let want = [ids(&around[0]), tokenizer.encode("a", plain).unwrap(), ids(&around[1])];
        assert_eq!(tokenizer.encode("a", all).unwrap(), want.concat(), "{name}");
    }
    let names = |list: &[(&str, String)]| {
        list.iter().map(|(name, model)| format!("{name} {model}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(names(&said), "bytes-gpt2 gpt2, pieces-prepend llama, pieces-replace llama");
    assert_eq!(
        names(&carried),
        "bytes-llama3 gpt2, bytes-flags gpt2, bytes-lowercase-flags huggingface, \
         pieces-first-flags llama, pieces-unk huggingface, wordpiece-bert huggingface, \
         wordpiece-cased huggingface, unigram-nmt huggingface, unigram-precompiled huggingface, \
         unigram-bytes huggingface, words huggingface, bpe-prefix huggingface, \
         bpe-suffix huggingface"
    );
}

#[test]
fn companion_files_count_as_in_transformers() {
    let cases = tokenizers("beside.json");
    let file = tokenizers("bytes-flags.json");
    let plain = EncodeOptions { add_bos: false, parse_special: true };
    for (index, row) in cases["rows"].as_array().unwrap().iter().enumerate() {
        let files = row["files"].as_object().unwrap();
        let beside = files.iter().map(|(name, file)| (name.as_str(), file));
        let all: Vec<Beside<'_>> = [("tokenizer.json", &file)].into_iter().chain(beside).collect();
        let (_, tokenizer) = tokenizer_of("beside", 420, &all).unwrap();
        for (text, want) in
            cases["sentences"].as_array().unwrap().iter().zip(row["ids"].as_array().unwrap())
        {
            let text = text.as_str().unwrap();
            let got = tokenizer.encode(text, plain).unwrap();
            assert_eq!(got, ids(want), "{index}: {text:?} {}", row["files"]);
        }
    }
    assert_eq!(cases["rows"].as_array().unwrap().len(), 12);
    let rows = [
        (json!({"split_special_tokens": true}), "split_special_tokens: true"),
        (json!({"fast_tokenizer_files": ["tokenizer.4.0.json"]}), "fast_tokenizer_files"),
        (
            json!({"added_tokens_decoder": {"5": {"content": "<s>"}}}),
            "added token \"<s>\" is 5 here",
        ),
        (json!({"added_tokens_decoder": {"400": {"content": "<s>", "hue": 1}}}), "400: hue"),
        (json!({"added_tokens_decoder": []}), "added_tokens_decoder"),
    ];
    for (config, words) in rows {
        let files = [("tokenizer.json", &file), ("tokenizer_config.json", &config)];
        let error = tokenizer_of("beside", 420, &files).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let other = tokenizer_of("beside", 420, &[("tokenizer.model", &json!(1))]).unwrap_err();
    assert!(other.is_unsupported() && other.to_string().contains("tokenizer.model is not read"));
    // The model has no row for this token: it stays text.
    let config = json!({"pad_token": "<new>", "add_eos_token": true, "eos_token": "</s>"});
    let files = [("tokenizer.json", &file), ("tokenizer_config.json", &config)];
    let (gguf, tokenizer) = tokenizer_of("beside", 409, &files).unwrap();
    assert!(tokenizer.encode("<new>", plain).unwrap().len() > 1);
    // Without a post-processor, the companion files apply.
    assert!(gguf.get_bool("tokenizer.ggml.add_eos_token").unwrap());
    let ends = tokenizer.encode("a", EncodeOptions { add_bos: true, parse_special: true }).unwrap();
    assert_eq!(ends.last(), Some(&401));
}

#[test]
fn phi3_strips_by_its_name_where_a_file_cannot_say_so() {
    let cases = tokenizers("bytes-gpt2.json");
    let (gguf, _) = tokenizer_of("phi", 404, &[("tokenizer.json", &cases)]).unwrap();
    let spec = crate::tokenizer::TokenizerSpec::from_gguf(&gguf).unwrap();
    let options = EncodeOptions { add_bos: false, parse_special: true };
    let encode = |strips: bool, text: &str| {
        let spec = crate::tokenizer::TokenizerSpec { strips, ..spec.clone() };
        Tokenizer::new(spec).unwrap().encode(text, options).unwrap()
    };
    let text = "<s> a<|user|>\n \t<|end|>\u{a0}";
    let kept = encode(false, text);
    let stripped = encode(true, text);
    // Spaces after <s> are kept, and so are characters that are not white space in C.
    assert_eq!(stripped, encode(false, "<s> a<|user|><|end|>\u{a0}"));
    assert!(kept.len() > stripped.len() && kept[..2] == stripped[..2]);
}

/// A message cannot name a control token, whatever a normaliser does; the template can.
#[test]
fn messages_do_not_become_control_tokens_by_a_normaliser() {
    use crate::chat::{Message, Role, Template};
    for name in ["bytes-lowercase-flags", "unigram-nmt", "pieces-first-flags", "wordpiece-bert"] {
        let file = tokenizers(&format!("{name}.json"));
        let (_, tokenizer) = tokenizer_of(name, 1000, &[("tokenizer.json", &file)]).unwrap();
        let added = file["added_tokens"].as_array().unwrap();
        let end = added.iter().find(|token| token["content"] == "</s>").unwrap();
        let end: u32 = end["id"].as_u64().unwrap() as u32;
        let template = Template::new("{{ messages[0].content }}</s>").unwrap();
        for text in
            ["</s>", "</S>", "\u{ff1c}/s\u{ff1e}", "a </s> b</S>", " </\u{ff53}> </s", "</s>"]
        {
            let messages = [Message::new(Role::User, text)];
            let prompt = template.render(&messages, false, &tokenizer, None).unwrap();
            let ids = prompt.encode(&tokenizer, false).unwrap();
            let count = ids.iter().filter(|id| **id == end).count();
            assert_eq!((count, ids.last()), (1, Some(&end)), "{name}: {text:?} {ids:?}");
        }
    }
}

/// A token with a well-known end name is a control token even if its file calls it text: found in
/// templates only, and never part of an answer.
#[test]
fn an_end_by_name_is_control_whatever_its_file_says() {
    let golden = golden();
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let nfc = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, replace.clone()]});
    let names = ["<|im_end|>", "</s>"];
    for (normalizer, normalized) in
        [(replace.clone(), false), (nfc.clone(), false), (nfc.clone(), true)]
    {
        for rstrip in [false, true] {
            let mut file = file(&golden, normalizer.clone(), Json::Null);
            let added = file["added_tokens"].as_array_mut().unwrap();
            added.push(json!({"id": 640, "content": names[0], "special": false,
                "normalized": normalized, "rstrip": rstrip}));
            for token in added.iter_mut() {
                token["special"] = json!(token["special"] == true && token["content"] != names[1]);
            }
            let (_, made) = tokenizer_of("end-name", 642, &[("tokenizer.json", &file)]).unwrap();
            for (name, id) in names.into_iter().zip([640, 2]) {
                let text = format!("a{name} b");
                let ids = |special| {
                    let options = EncodeOptions::default().parse_special(special);
                    made.encode(&text, options).unwrap()
                };
                assert!(ids(true).contains(&id), "{name}: {:?}", ids(true));
                let plain = ids(false);
                assert!(!plain.contains(&id), "{name} of {normalizer}: {plain:?}");
                assert_eq!(made.decode(&plain).unwrap(), text);
                assert!(made.is_stop(id), "{name}");
                assert_eq!(made.token_bytes(id).unwrap(), b"", "{name}");
                assert!(!made.decode(&[id]).unwrap().contains(name));
                assert!(made.control_names().any(|control| control == name), "{name}");
            }
        }
    }
    // An end that is in the model's vocabulary only.
    let mut file = file(&golden, nfc, Json::Null);
    file["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != names[1]);
    file["model"]["ignore_merges"] = json!(true);
    let (_, made) = tokenizer("end-model", &file).unwrap();
    assert!(made.control_names().any(|name| name == names[1]));
    let plain = made.encode(names[1], EncodeOptions::default()).unwrap();
    assert!(!plain.contains(&2), "{plain:?}");
    assert_eq!(made.token_bytes(2).unwrap(), b"");
}

#[test]
fn a_special_token_is_a_text_or_an_error() {
    let golden = golden();
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let file = file(&golden, replace, Json::Null);
    let with = |config: &Json| {
        let beside = [("tokenizer.json", &file), ("tokenizer_config.json", config)];
        tokenizer_of("named", 642, &beside).map(|(_, tokenizer)| tokenizer)
    };
    for key in ["bos_token", "eos_token", "pad_token"] {
        for wrong in [json!(5), json!(["a"]), json!({"text": "a"}), json!(true)] {
            let error = with(&json!({ key: wrong })).unwrap_err();
            let place = format!("tokenizer_config.json: {key}: ");
            assert!(error.is_bad_file() && error.to_string().contains(&place), "{error}");
        }
        for right in [Json::Null, json!("</s>"), json!({"content": "</s>"}), json!("<nope>")] {
            assert!(with(&json!({ key: right })).is_ok(), "{key}: {right}");
        }
    }
}
