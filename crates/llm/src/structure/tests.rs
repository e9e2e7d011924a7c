//! Masks, forced tokens and ends of constraints over a small vocabulary, and hostile grammars.

use std::collections::HashMap;
use std::time::Instant;

use super::*;
use crate::tokenizer::{EncodeOptions, TokenizerSpec};
use crate::vocabulary::char_of;

/// Bytes, some words of JSON, an end token and a control token.
fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = (0..=255).map(|byte| char_of(byte).to_string()).collect();
    for word in ["{\"", "\":", "\"}", "true", "name"] {
        tokens.push(word.into());
    }
    let mut types = vec![1; tokens.len()];
    tokens.extend(["<end>".into(), "<call>".into()]);
    types.extend([3, 3]);
    let spec = TokenizerSpec {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        eos: Some(261),
        tokens,
        token_types: types,
        ..TokenizerSpec::default()
    };
    Arc::new(Tokenizer::new(spec).unwrap())
}

fn structure() -> Structure {
    Structure::new(&tokenizer()).unwrap()
}

fn schema(value: serde_json::Value) -> Grammar {
    Grammar::JsonSchema(value.to_string())
}

/// The tokens that may follow.
fn allowed(constraint: &mut Constraint) -> Vec<u32> {
    let mut logits = vec![1.0; 270];
    constraint.mask(&mut logits).unwrap();
    // Beyond the tokenizer's vocabulary there is no token.
    assert!(logits[263..].iter().all(|logit| *logit == f32::NEG_INFINITY));
    (0..263).filter(|id| logits[*id as usize] == 1.0).collect()
}

#[test]
fn masks_allow_what_may_follow() {
    let mut constraint = structure().compile(&Grammar::Regex("(ab|ac)?".into())).unwrap();
    assert_eq!(allowed(&mut constraint), [97, 261]);
    assert!(constraint.may_end() && !constraint.is_finished());
    constraint.accept(97).unwrap();
    assert_eq!(allowed(&mut constraint), [98, 99]);
    assert!(!constraint.may_end());
    let (mut other, mut third) = (constraint.clone(), constraint.unshared());
    constraint.accept(98).unwrap();
    assert!(constraint.is_finished() && constraint.may_end());
    assert_eq!(allowed(&mut constraint), [261]);
    // A clone has its own position.
    for other in [&mut other, &mut third] {
        other.accept(99).unwrap();
        assert!(other.is_finished());
    }
    let mut wrong = structure().compile(&Grammar::Regex("a".into())).unwrap();
    assert!(wrong.accept(98).is_err());
}

#[test]
fn tokens_of_several_bytes_are_allowed_and_forced() {
    let grammar = schema(serde_json::json!({"type": "object", "properties":
        {"name": {"type": "boolean"}}, "required": ["name"], "additionalProperties": false}));
    let mut constraint = structure().compile(&grammar).unwrap();
    let first = allowed(&mut constraint);
    assert!(first.contains(&256) && first.contains(&123) && !first.contains(&97), "{first:?}");
    // The bracket must follow, but as one of two tokens.
    assert!(constraint.accept_forced().unwrap().is_empty());
    constraint.accept(123).unwrap();
    let tokens = tokenizer().encode("\"name\":", EncodeOptions::default()).unwrap();
    for token in tokens {
        constraint.accept(token).unwrap();
    }
    let next = allowed(&mut constraint);
    assert!(next.contains(&259) && !next.contains(&110) && next.contains(&116), "{next:?}");
    constraint.accept(116).unwrap();
    let forced = constraint.accept_forced().unwrap();
    let forced: Vec<u8> =
        forced.iter().flat_map(|id| tokenizer().token_bytes(*id).unwrap().to_vec()).collect();
    assert!(b"rue".starts_with(&forced[..]) && !forced.is_empty(), "{forced:?}");
}

#[test]
fn control_tokens_are_named_by_their_ids() {
    let grammar = Grammar::Lark("start: <[262]> \"x\"".into());
    let mut constraint = structure().compile(&grammar).unwrap();
    assert_eq!(allowed(&mut constraint), [262]);
    constraint.accept(262).unwrap();
    assert_eq!(allowed(&mut constraint), [120]);
    // As text, a control token cannot be written.
    let mut text = structure().compile(&Grammar::Regex("<call>|b".into())).unwrap();
    assert_eq!(allowed(&mut text), [60, 98]);
}

#[test]
fn text_that_is_written_already_is_accepted() {
    let mut constraint = structure().compile(&Grammar::Regex("abc+d".into())).unwrap();
    assert!(constraint.clone().accept_text(b""));
    assert!(!constraint.clone().accept_text(b"ax"));
    assert!(constraint.accept_text(b"abc"));
    assert_eq!(allowed(&mut constraint), [99, 100]);
}

#[test]
fn what_is_not_supported_is_named() {
    let structure = structure();
    let object = |name: &str, value: serde_json::Value| {
        let mut all = serde_json::json!({"type": "array", "items": {"type": "string"}});
        all[name] = value;
        schema(all)
    };
    let rows = [
        (object("uniqueItems", true.into()), "uniqueItems"),
        (object("contains", serde_json::json!({})), "contains"),
        (object("x-guidance", serde_json::json!({})), "x-guidance"),
        (object("$ref", "http://a/b".into()), "http://a/b"),
        (object("$ref", "#/$defs/none".into()), "$defs"),
        (schema(serde_json::json!({"type": "string", "format": "zip code"})), "zip code"),
        (
            schema(serde_json::json!({"type": "integer", "minimum": 3, "maximum": 1})),
            "Unsatisfiable",
        ),
        (schema(serde_json::json!(7)), "must be an object"),
        (Grammar::JsonSchema("{".into()), "the schema is no JSON"),
        (Grammar::Regex("(".into()), ""),
        (Grammar::Lark("start: other".into()), "other"),
    ];
    for (grammar, words) in rows {
        let error = structure.compile(&grammar).unwrap_err();
        let text = error.to_string();
        assert!(error.is_invalid() && text.contains(words), "{grammar:?}: {text}");
        assert!(text.len() < 1000 && !text.contains("backtrace"), "{text}");
    }
}

#[test]
fn hostile_grammars_are_refused_quickly() {
    let nest = |open: &str, close: &str, n: usize| open.repeat(n) + &close.repeat(n);
    let deep =
        (0..60).fold("{}".to_owned(), |inner, _| format!("{{\"properties\":{{\"a\":{inner}}}}}"));
    let chain: String =
        (0..5000).map(|i| format!("\"d{i}\":{{\"$ref\":\"#/$defs/d{}\"}},", i + 1)).collect();
    let chain = format!("{{\"$defs\":{{{chain}\"d5000\":{{}}}},\"$ref\":\"#/$defs/d0\"}}");
    let all_of: String = (0..200).map(|i| format!("{{\"pattern\":\"a{{{i},}}b*\"}},")).collect();
    let all_of = format!("{{\"type\":\"string\",\"allOf\":[{all_of}{{}}]}}");
    let pattern_in_ref: String = (0..40)
        .map(|i| {
            format!("\"d{i}\":{{\"pattern\":\"a{{{i},}}b*\",\"$ref\":\"#/$defs/d{}\"}},", i + 1)
        })
        .collect();
    let pattern_in_ref =
        format!("{{\"$defs\":{{{pattern_in_ref}\"d40\":{{}}}},\"$ref\":\"#/$defs/d0\"}}");
    let keys: String =
        (0..500).map(|i| format!("\"a{{{i},}}b*\":{{\"type\":\"integer\"}},")).collect();
    let keys = format!("{{\"type\":\"object\",\"patternProperties\":{{{keys}\"z\":{{}}}}}}");
    let wide: String = (0..20_000).map(|i| format!("\"k{i}\":{{\"type\":\"integer\"}},")).collect();
    let wide = format!("{{\"type\":\"object\",\"properties\":{{{wide}\"z\":{{}}}}}}");
    let rows: Vec<(&str, Grammar)> = vec![
        ("brackets", Grammar::Regex(nest("(", ")", 5000))),
        ("repeats", Grammar::Regex("((((a{1,9999}){1,9999}){1,9999}){1,9999})b".into())),
        ("alternatives", Grammar::Regex("(.*a.{30}|.*b.{30}|.*c.{30})*d".into())),
        ("classes", Grammar::Regex("(\\w{1,500}\\d{1,500}){1,500}".into())),
        ("lark brackets", Grammar::Lark(format!("start: {}", nest("(", ")", 5000)))),
        ("left recursion", Grammar::Lark("start: start start | \"a\" | \"\"".into())),
        ("too long", Grammar::Lark("x".repeat(MAX_GRAMMAR + 1))),
        ("deep schema", Grammar::JsonSchema(deep)),
        ("deep JSON", Grammar::JsonSchema(nest("[", "]", 5000))),
        ("itself", Grammar::JsonSchema("{\"$ref\":\"#\"}".into())),
        (
            "each other",
            schema(serde_json::json!({"$defs": {"a": {"$ref": "#/$defs/b"},
            "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})),
        ),
        (
            "all of itself",
            schema(serde_json::json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a"})),
        ),
        ("chain", Grammar::JsonSchema(chain)),
        ("all of", Grammar::JsonSchema(all_of)),
        ("patterns in references", Grammar::JsonSchema(pattern_in_ref)),
        ("pattern keys", Grammar::JsonSchema(keys)),
        ("wide", Grammar::JsonSchema(wide)),
        ("long array", schema(serde_json::json!({"type": "array", "minItems": 1_000_000_000}))),
        (
            "long string",
            schema(serde_json::json!({"type": "string", "minLength": 4_000_000_000u32})),
        ),
    ];
    let structure = structure();
    let mut results = HashMap::new();
    for (name, grammar) in rows {
        let begin = Instant::now();
        let result = structure.compile(&grammar).and_then(|mut constraint| {
            let mut logits = vec![0.0; 263];
            // A grammar that compiles may still be too complex for a mask; then that is an error.
            for _ in 0..4 {
                constraint.mask(&mut logits)?;
                let Some(token) = logits.iter().position(|logit| *logit == 0.0) else { break };
                constraint.accept(token as u32)?;
                if constraint.is_finished() {
                    break;
                }
                constraint.accept_forced()?;
                logits.fill(0.0);
            }
            Ok(())
        });
        let seconds = begin.elapsed().as_secs_f64();
        assert!(seconds < 15.0, "{name}: {seconds} s");
        results.insert(name, result.map_err(|error| error.to_string()));
    }
    for name in [
        "brackets",
        "lark brackets",
        "too long",
        "deep JSON",
        "all of",
        "patterns in references",
        "pattern keys",
    ] {
        assert!(results[name].is_err(), "{name}");
    }
}
