//! Compares small tokenizers of every kind with the Python package, and tests the table of keys and
//! malicious files.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::keys::{Rule, TABLE, check_file, check_keys, rule};
use super::{Guard, Pipeline};
use warploom::Result;

fn read(name: &str) -> Json {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizers");
    let path = root.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Reads the file of a row and applies its patch.
fn file_of(row: &Json) -> Json {
    let mut file = read(&format!("{}.json", row["file"].as_str().unwrap()));
    for (part, value) in row["patch"].as_object().into_iter().flatten() {
        file[part] = value.clone();
    }
    file
}

fn pipeline(file: &Json, count: &Json) -> Result<Pipeline> {
    Pipeline::new(file, count.as_u64().unwrap() as usize, HashSet::new())
}

const ALL: Guard<'_> = Guard { marks: &[], parse_special: true, from: 0, before: None };

fn ids(value: &Json) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_kind_gives_the_ids_of_the_python_package() {
    let cases = read("cases.json");
    let strings: Vec<&str> =
        cases["strings"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(strings.len(), 200);
    let (mut whole, mut refused, mut compared) = (0, Vec::new(), 0);
    for row in cases["rows"].as_array().unwrap() {
        let name = format!("{} {}", row["file"].as_str().unwrap(), row["patch"]);
        let mut file = file_of(row);
        if row["file"] == "bpe-suffix" {
            let error = pipeline(&file, &row["count"]).err().unwrap();
            assert!(error.is_unsupported(), "{error}");
            refused.push(error.to_string());
            file["decoder"] = Json::Null;
        }
        if row.get("error").is_some() {
            assert!(pipeline(&file, &row["count"]).is_err(), "{name}");
            continue;
        }
        let made = pipeline(&file, &row["count"]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let want = row["ids"].as_array().unwrap();
        let step = if row.get("patch").is_some() { 6 } else { 1 };
        let texts: Vec<&str> = strings.iter().copied().step_by(step).collect();
        assert_eq!(texts.len(), want.len());
        for (text, want) in texts.iter().zip(want) {
            let got = made.encode(text, &ALL).unwrap_or_else(|e| panic!("{name}: {text:?}: {e}"));
            assert_eq!(got, ids(want), "{name}: {text:?}");
            compared += 1;
        }
        if step > 1 {
            continue;
        }
        whole += 1;
        let around = row["around"].as_array().unwrap();
        assert_eq!(made.around(), (&ids(&around[0])[..], &ids(&around[1])[..]), "{name}");
        if row["file"] == "bpe-suffix" {
            continue;
        }
        for (want, text) in want.iter().step_by(4).zip(row["decoded"].as_array().unwrap()) {
            let bytes = made.decode(&ids(want)).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), text.as_str().unwrap(), "{name}");
        }
    }
    assert!(whole >= 16 && compared > 5000, "{whole} {compared}");
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains("decoder BPEDecoder") && refused[0].contains("after the last"));
}

#[test]
fn the_table_has_every_key_that_the_packages_know() {
    let known = read("keys.json");
    let mut seen = HashSet::new();
    for (section, keys) in known.as_object().unwrap() {
        for key in keys.as_array().unwrap() {
            let key = key.as_str().unwrap();
            assert!(rule(section, key).is_some(), "{section}: {key} is not in the table");
            seen.insert((section.clone(), key.to_owned()));
        }
    }
    assert!(seen.len() > 150, "{}", seen.len());
    let mut rows = HashSet::new();
    for row in TABLE {
        assert!(rows.insert((row.section, row.key)), "{}: {} twice", row.section, row.key);
        if let Rule::NoEffect(why) | Rule::Refused(why) | Rule::Only(_, why) = row.rule {
            assert!(!why.is_empty(), "{}: {}: no reason", row.section, row.key);
        }
    }
}

#[test]
fn each_row_of_the_table_acts_as_it_says() {
    for row in TABLE {
        let check = |value: Json| {
            let object = Map::from_iter([(row.key.to_owned(), value)]);
            check_keys(row.section, "here", &object, false)
        };
        assert!(check(Json::Null).is_ok(), "{row:?}");
        match row.rule {
            Rule::Honoured | Rule::NoEffect(_) => assert!(check(json!("x")).is_ok(), "{row:?}"),
            Rule::Refused(why) => {
                let error = check(json!(1)).unwrap_err();
                let text = error.to_string();
                assert!(error.is_unsupported() && text.contains(why), "{text}");
                assert!(text.contains("here") && text.contains(row.key), "{text}");
            }
            Rule::Only(values, why) => {
                for value in values {
                    assert!(check(serde_json::from_str(value).unwrap()).is_ok(), "{row:?}");
                }
                let error = check(json!("other")).unwrap_err();
                assert!(error.is_unsupported() && error.to_string().contains(why), "{error}");
            }
        }
        let unknown = Map::from_iter([("klingon".to_owned(), json!(1))]);
        let error = check_keys(row.section, "here", &unknown, false).unwrap_err();
        assert!(error.to_string().contains("here: klingon"), "{error}");
        assert!(check_keys(row.section, "here", &unknown, true).is_ok());
    }
}

#[test]
fn what_is_refused_names_its_place() {
    type Change = fn(&mut Json);
    let rows: [(&str, Change); 24] = [
        ("unknown key", |f| f["klingon"] = json!(1)),
        ("version", |f| f["version"] = json!("2.0")),
        ("added_tokens: element 0: colour", |f| f["added_tokens"][0]["colour"] = json!(1)),
        ("added_tokens: not a list", |f| f["added_tokens"] = json!(1)),
        ("numbers it", |f| f["added_tokens"][0]["id"] = json!(99)),
        ("no text, or no id", |f| f["added_tokens"][0]["content"] = json!("")),
        ("no text, or no id", |f| f["added_tokens"][0]["id"] = json!(1 << 20)),
        ("normalizer: type \"Klingon\"", |f| f["normalizer"] = json!({"type": "Klingon"})),
        ("normalizer NFC: x", |f| f["normalizer"] = json!({"type": "NFC", "x": 1})),
        ("normalizers: element 1", |f| {
            f["normalizer"] =
                json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Frob"}]});
        }),
        ("no base64", |f| {
            f["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "%%"});
        }),
        ("leads out of it", |f| {
            f["normalizer"] =
                json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="});
        }),
        ("FixedLength: length: 0", |f| {
            f["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0});
        }),
        ("POSIX", |f| {
            f["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "[[:alpha:]]"},
                "behavior": "Isolated", "invert": false});
        }),
        ("not read by `tokenizers`", |f| {
            f["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "("},
                "behavior": "Isolated", "invert": false});
        }),
        ("dropout", |f| f["model"]["dropout"] = json!(0.1)),
        ("type \"GPT\"", |f| f["model"]["type"] = json!("GPT")),
        ("names \"zz\"", |f| f["model"]["merges"][0] = json!(["zz", "a"])),
        ("is not a pair", |f| f["model"]["merges"][0] = json!(7)),
        ("unk_token: \"zz\" is not a token", |f| f["model"]["unk_token"] = json!("zz")),
        ("lacks the prefix", |f| f["model"]["continuing_subword_prefix"] = json!("####")),
        ("decoder CTC", |f| {
            f["decoder"] = json!({"type": "CTC", "pad_token": "<pad>",
            "word_delimiter_token": "|", "cleanup": true})
        }),
        ("Replace after", |f| {
            f["decoder"] = json!({"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]});
        }),
        ("the text must occur in it once", |f| {
            f["post_processor"] = json!({"type": "TemplateProcessing", "special_tokens": {},
                "single": [], "pair": []});
        }),
    ];
    for (words, change) in rows {
        let mut file = read("bytes-gpt2.json");
        change(&mut file);
        let error = Pipeline::new(&file, 404, HashSet::new())
            .err()
            .unwrap_or_else(|| panic!("{words}: read"));
        let text = error.to_string();
        assert!(text.contains(words), "{text:?} lacks {words:?}");
        assert!(error.is_unsupported() || error.is_bad_file(), "{error:?}");
    }
    let mut file = read("unigram-nmt.json");
    file["model"]["vocab"][5][0] = json!("");
    assert!(
        Pipeline::new(&file, 500, HashSet::new())
            .err()
            .unwrap()
            .to_string()
            .contains("an empty token")
    );
    // Text without ids is an error.
    let mut file = read("bytes-gpt2.json");
    file["pre_tokenizer"] = Json::Null;
    let error =
        Pipeline::new(&file, 404, HashSet::new()).unwrap().encode("ab \u{65e5}", &ALL).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("lacks a part"), "{error}");
}

#[test]
fn no_control_token_comes_out_of_marked_text() {
    let cases = read("cases.json");
    for row in cases["rows"].as_array().unwrap().iter().filter(|row| row.get("error").is_none()) {
        let mut file = file_of(row);
        if row["file"] == "bpe-suffix" {
            file["decoder"] = Json::Null;
        }
        let made = pipeline(&file, &row["count"]).unwrap();
        let controls: HashSet<u64> = file["added_tokens"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|token| token["special"] == true)
            .map(|token| token["id"].as_u64().unwrap())
            .collect();
        let unk = file["model"]["unk_token"]
            .as_str()
            .and_then(|unk| file["model"]["vocab"][unk].as_u64());
        let unk = unk.or(file["model"]["unk_id"].as_u64());
        for text in cases["strings"].as_array().unwrap().iter().step_by(3) {
            let text = text.as_str().unwrap();
            let marks: Vec<usize> =
                text.char_indices().filter(|(_, c)| !c.is_whitespace()).map(|(at, _)| at).collect();
            let all = Guard { marks: &marks, ..ALL };
            let none = Guard { parse_special: false, ..ALL };
            for guard in [all, none] {
                let got = made.encode(text, &guard).unwrap();
                let found = got.iter().map(|id| u64::from(*id)).find(|id| controls.contains(id));
                assert!(found.is_none_or(|id| Some(id) == unk), "{}: {text:?}", row["file"]);
            }
        }
    }
    // A mark before the name and none within is enough if names do not vary.
    let made = Pipeline::new(&read("bytes-flags.json"), 1000, HashSet::new()).unwrap();
    let text = "<|user|>\n<|user|>x";
    let found = |marks: &[usize]| {
        let ids = made.encode(text, &Guard { marks, ..ALL }).unwrap();
        ids.iter().filter(|id| **id == 402).count()
    };
    assert_eq!([found(&[]), found(&[9]), found(&[12]), found(&[0, 9])], [2, 1, 1, 0]);
    assert!(!made.names_vary());
    assert!(
        Pipeline::new(&read("bytes-lowercase-flags.json"), 1000, HashSet::new())
            .unwrap()
            .names_vary()
    );
    // Its model has tokens for them, and its normaliser makes other text equal to those.
    let made = Pipeline::new(&read("unigram-nmt.json"), 1000, HashSet::new()).unwrap();
    assert!(made.names_vary());
    let text = "\u{ff1c}s\u{ff1e} ".repeat(2000) + &"<s>".repeat(2000);
    let free = made.encode(&text, &ALL).unwrap();
    assert_eq!(free.iter().filter(|id| **id == 1).count(), 4000);
    let marks: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    assert!(!made.encode(&text, &Guard { marks: &marks, ..ALL }).unwrap().contains(&1));
}

#[test]
fn a_text_goes_on_where_its_beginning_was_encoded() {
    let rows = [
        ("bytes-flags", "<|user|>", "  \n there"),
        ("pieces-first-flags", "ab", " cd"),
        ("pieces-prepend", "<s>", "cd"),
        ("wordpiece-bert", "the ", "ing <mask>"),
    ];
    for (name, head, tail) in rows {
        let made = Pipeline::new(&read(&format!("{name}.json")), 1000, HashSet::new()).unwrap();
        let text = format!("{head}{tail}");
        let whole = made.encode(&text, &ALL).unwrap();
        let first = made.encode(head, &ALL).unwrap();
        let guard = Guard { from: head.len(), before: first.last().copied(), ..ALL };
        let rest = made.encode(&text, &guard).unwrap();
        assert_eq!([first, rest].concat(), whole, "{name}: {text:?}");
    }
}

/// Files with random changes are read or refused, and never cause a panic.
#[test]
fn files_with_anything_anywhere_are_read_or_refused() {
    let mut seed = 46u64;
    let mut draw = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n.max(1)
    };
    let cases = read("cases.json");
    let rows = cases["rows"].as_array().unwrap();
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!("\u{2581}"),
        json!([]),
        json!({}),
        json!("##"),
        json!([[]]),
        json!({"type": "Sequence"}),
        json!(0),
    ];
    let (mut ok, mut bad) = (0, 0);
    for _ in 0..600 {
        let mut file = file_of(&rows[draw(rows.len())]);
        for _ in 0..=draw(2) {
            mutate(&mut file, &values, &mut draw);
        }
        match Pipeline::new(&file, 1000, HashSet::new()) {
            Ok(made) => {
                ok += 1;
                for text in ["", "the \u{65e5} <|user|> \u{fb01}ing", "\0\u{301}<mask>  x"] {
                    let _ = made.encode(text, &ALL).and_then(|ids| made.decode(&ids));
                }
            }
            Err(error) => {
                assert!(error.is_unsupported() || error.is_bad_file(), "{error:?}");
                bad += 1;
            }
        }
    }
    assert!(ok > 50 && bad > 50, "{ok} {bad}");
}

/// Replaces, renames or removes a random value inside `value`.
fn mutate(value: &mut Json, values: &[Json], draw: &mut impl FnMut(usize) -> usize) {
    let inner = match value {
        Json::Array(list) if !list.is_empty() => {
            let at = draw(list.len().min(12));
            match draw(12) {
                0 => return drop(list.remove(at)),
                1 => return list.push(list[at].clone()),
                _ => &mut list[at],
            }
        }
        Json::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(draw(map.len().min(12))).cloned().unwrap_or_default();
            match draw(16) {
                0 => return drop(map.remove(&key)),
                1 => return drop(map.insert(format!("{key}s"), json!(1))),
                _ => &mut map[&key],
            }
        }
        other => return *other = values[draw(values.len())].clone(),
    };
    match draw(8) {
        0 => *inner = values[draw(values.len())].clone(),
        _ => mutate(inner, values, draw),
    }
}

#[test]
fn every_key_of_the_golden_files_passes() {
    for row in read("cases.json")["rows"].as_array().unwrap() {
        let checked = check_file(&file_of(row));
        assert_eq!(checked.is_ok(), row["file"] != "bpe-suffix", "{row}");
    }
}

/// As in `tokenizers`, the search finds the first of equal added tokens.
#[test]
fn of_added_tokens_made_equal_the_first_counts() {
    let mut file = read("words.json");
    file["normalizer"] = json!({"type": "Lowercase"});
    let token = |content: &str, id: u32| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": true, "special": false})
    };
    file["added_tokens"] = json!([token("ZZ", 300), token("Zz", 301), token("zZ", 302)]);
    let made = pipeline(&file, &json!(303)).unwrap();
    for text in ["zz", "ZZ", "zZ"] {
        assert_eq!(made.encode(text, &ALL).unwrap(), [300], "{text}");
    }
}
