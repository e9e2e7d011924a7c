//! Tests a small vocabulary trained by the Python package: the ids of unusual strings, and variants
//! that must be refused.

use serde_json::Value as Json;

use super::*;
use crate::tokenizer::{EncodeOptions, Tokenizer};

const TEXT: EncodeOptions = EncodeOptions { add_bos: false, parse_special: false };

fn golden() -> Json {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let text = std::fs::read_to_string(root.join("tests/golden/tokenizer/sentencepiece.json"));
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn list<T: serde::de::DeserializeOwned>(json: &Json) -> Vec<T> {
    serde_json::from_value(json.clone()).unwrap()
}

/// Returns the spec of this vocabulary; `prefix` is its `add_space_prefix`.
fn spec(prefix: bool) -> TokenizerSpec {
    let golden = golden();
    TokenizerSpec {
        model: "llama".into(),
        tokens: list(&golden["tokens"]),
        scores: list(&golden["scores"]),
        token_types: list(&golden["types"]),
        bos: Some(1),
        eos: Some(2),
        add_space_prefix: Some(prefix),
        ..TokenizerSpec::default()
    }
}

#[test]
fn ids_are_those_of_the_python_package() {
    let golden = golden();
    for (prefix, key) in [(true, "with_prefix"), (false, "without")] {
        let by_scores = Tokenizer::new(spec(prefix)).unwrap();
        // Merges in a file give the same result.
        let merges = list(&golden["merges"]);
        let by_merges =
            Tokenizer::new(TokenizerSpec { merges, scores: Vec::new(), ..spec(prefix) }).unwrap();
        let strings: Vec<String> = list(&golden["strings"]);
        assert!(strings.len() > 60);
        for (text, want) in strings.iter().zip(golden[key].as_array().unwrap()) {
            let want: Vec<u32> = list(want);
            // After a user-defined token, the package adds no space prefix, but llama.cpp does.
            let user_defined = want.iter().skip(1).any(|id| [3, 4].contains(id));
            if prefix && user_defined {
                continue;
            }
            for tokenizer in [&by_scores, &by_merges] {
                let got = tokenizer.encode(text, TEXT).unwrap();
                assert_eq!(got, want, "{key}: {text:?}");
                // U+2581 decodes to a space.
                let back = text.replace(SPACE, " ");
                assert_eq!(tokenizer.decode(&got).unwrap(), back, "{key}: {text:?}");
            }
        }
    }
    let tokenizer = Tokenizer::new(spec(false)).unwrap();
    let prompt = golden["prompt"].as_str().unwrap();
    assert_eq!(tokenizer.encode(prompt, TEXT).unwrap(), list::<u32>(&golden["prompt_without"]));
}

#[test]
fn control_tokens_bytes_and_prefixes_are_distinguished() {
    let tokenizer = Tokenizer::new(TokenizerSpec { add_space_prefix: None, ..spec(true) }).unwrap();
    assert!(tokenizer.adds_bos() && tokenizer.is_stop(2));
    let chat = EncodeOptions { add_bos: true, parse_special: true };
    let ids = tokenizer.encode("it</s>it", chat).unwrap();
    let it = tokenizer.encode("it", TEXT).unwrap();
    assert_eq!(ids, [&[1], &it[..], &[2], &it[..]].concat());
    // Each part of text has a space prefix, which `decode` removes at the start only.
    assert_eq!(tokenizer.token_bytes(it[0]).unwrap()[0], b' ');
    assert_eq!(tokenizer.decode(&ids).unwrap(), "it it");
    // One character in four bytes, and its first two.
    let ids = tokenizer.encode("\u{1f600}", TEXT).unwrap();
    assert_eq!(ids.len(), 5);
    assert_eq!(tokenizer.token_bytes(ids[1]).unwrap(), [0xf0]);
    assert_eq!(tokenizer.decode(&ids[..3]).unwrap(), "\u{fffd}");
    // The name of a byte token in text is not a byte.
    let ids = tokenizer.encode("<0x41>", TEXT).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "<0x41>");
    let long = "word ".repeat(1 << 14);
    assert_eq!(tokenizer.decode(&tokenizer.encode(&long, TEXT).unwrap()).unwrap(), long);
}

#[test]
fn a_text_without_tokens_for_it_is_an_error_that_says_where() {
    let mut lacking = spec(true);
    // No byte fallback.
    for kind in lacking.token_types.iter_mut().filter(|kind| **kind == 6) {
        *kind = 3;
    }
    let tokenizer = Tokenizer::new(lacking).unwrap();
    let error = tokenizer.encode("it \u{2581}is \u{1f600}", TEXT).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("byte 0xf0 at offset 9"), "{error}");
}

#[test]
fn each_fault_is_named() {
    type Change = fn(&mut TokenizerSpec);
    let rows: [(Change, &str); 6] = [
        (|s| s.scores.truncate(9), "scores: 9 entries for 640 tokens"),
        (|s| s.scores.clear(), "scores: 0 entries for 640 tokens"),
        (|s| s.scores[7] = f32::NAN, "scores: element 7 is NaN"),
        (|s| s.tokens[5] = "<0x-1>".into(), "element 5, \"<0x-1>\", is of type byte"),
        (|s| s.tokens[300] = "x".repeat(300), "element 300 has 300 bytes"),
        (|s| s.merges = vec!["a zz".into()], "names \"zz\", which is not a token"),
    ];
    for (change, words) in rows {
        let mut spec = spec(true);
        change(&mut spec);
        let error = Tokenizer::new(spec).unwrap_err();
        assert!(error.is_bad_file() && error.to_string().contains(words), "{words:?}: {error}");
    }
}

#[test]
fn only_two_capital_digits_are_a_byte() {
    assert_eq!(byte(0, "<0x0A>").unwrap(), 10);
    assert_eq!(byte(0, "<0xFF>").unwrap(), 255);
    for token in ["<0x-1>", "<0x+1>", "<0x0a>", "<0x100>", "<0x1>", "0x01", "<0x01> ", ""] {
        let error = byte(7, token).unwrap_err();
        assert!(error.is_bad_file() && error.to_string().contains("element 7"), "{error}");
    }
}

#[test]
fn a_place_in_the_plain_spelling_is_found_in_the_text() {
    let text = "a\u{2581}\u{e9}x";
    let plain = plain(text);
    assert_eq!(plain, "a \u{e9}x");
    let places: Vec<usize> = (0..=plain.len()).map(|at| origin(text, at)).collect();
    assert_eq!(places, [0, 1, 4, 5, 6, 7]);
}
