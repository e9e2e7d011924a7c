//! Compares the ids of real vocabularies with golden ones, and tests vocabularies with one error
//! each.

use super::*;
use crate::test_file::{Entry, gguf};
use crate::vocabulary::{byte_of, char_of};
use serde_json::Value;
use std::path::{Path, PathBuf};
use warploom_models::gguf::Access;

const TEXT: EncodeOptions = EncodeOptions { add_bos: false, parse_special: false };
const CHAT: EncodeOptions = EncodeOptions { add_bos: true, parse_special: true };

fn root(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn json(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(root(path)).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn open(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path, Access::Mmap).unwrap()).unwrap()
}

fn tiny() -> Tokenizer {
    open(&root("models/warploom-tiny-llama-Q4_K_M.gguf"))
}

/// Returns the 256 tokens of single bytes, in the order of their characters.
fn byte_tokens() -> Vec<String> {
    let mut all: Vec<char> = (0..324).filter_map(char::from_u32).collect();
    all.retain(|c| byte_of(*c).is_some());
    assert_eq!(all.len(), 256);
    all.into_iter().map(String::from).collect()
}

/// Returns a vocabulary of all bytes, `ab`, `abc`, ` ab`, a control token, and two user-defined
/// tokens, one of which begins with the other.
fn spec() -> TokenizerSpec {
    let mut tokens = byte_tokens();
    tokens.extend(["ab", "abc", "\u{120}ab", "<|im_end|>", "<u>", "<u>>"].map(String::from));
    let mut token_types = vec![1; 262];
    token_types[259..].copy_from_slice(&[3, 4, 4]);
    TokenizerSpec {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens,
        merges: ["a b", "ab c", "\u{120} ab", "a b"].map(String::from).to_vec(),
        token_types,
        bos: Some(0),
        eos: Some(1),
        eot: None,
        add_bos: Some(true),
        ..TokenizerSpec::default()
    }
}

#[test]
fn the_byte_alphabet_is_one_to_one() {
    let mut seen = HashSet::new();
    for token in byte_tokens() {
        let c = token.chars().next().unwrap();
        assert!(seen.insert(byte_of(c).unwrap()), "{c} is a second character for its byte");
    }
    for byte in 0..=255 {
        assert_eq!(byte_of(char_of(byte)), Some(byte));
    }
    assert_eq!(byte_of('\u{120}'), Some(b' '));
    assert_eq!(byte_of('\u{10a}'), Some(b'\n'));
    assert_eq!(byte_of('\u{143}'), Some(0xad));
    assert_eq!(byte_of(' '), None);
    assert_eq!(byte_of('\u{144}'), None);
}

#[test]
fn the_small_model_gives_its_golden_ids() {
    let golden = json("models/golden.json");
    let tokenizer = tiny();
    assert_eq!(tokenizer.vocabulary(), 4096);
    let cases = golden["tokenizer"].as_array().unwrap();
    assert_eq!(cases.len(), 12);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let got = tokenizer.encode(text, TEXT).unwrap();
        assert_eq!(got, ids(&case["tokens"]), "{text:?}");
        assert_eq!(tokenizer.decode(&got).unwrap(), text);
    }
    let results = &golden["models"]["warploom-tiny-llama-Q4_K_M.gguf"]["prompts"];
    for (text, result) in
        golden["prompts"].as_array().unwrap().iter().zip(results.as_array().unwrap())
    {
        let text = text.as_str().unwrap();
        assert_eq!(tokenizer.encode(text, CHAT).unwrap(), ids(&result["tokens"]), "{text:?}");
        let greedy = ids(&result["greedy"]);
        // The golden text spells out control tokens; here they write nothing.
        let mut want = result["text"].as_str().unwrap().to_owned();
        for name in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] {
            want = want.replace(name, "");
        }
        assert_eq!(tokenizer.decode(&greedy).unwrap(), want);
    }
    assert!(tokenizer.adds_bos() && tokenizer.bos() == Some(0));
    assert_eq!([0, 1, 2, 3].map(|id| tokenizer.is_stop(id)), [true, false, true, false]);
}

/// Opens the tokenizer of a real model and checks it against golden ids; `None` if the file is
/// absent.
fn real(name: &str, key: &str) -> Option<Tokenizer> {
    let folders = std::env::var_os("WARPLOOM_TEST_MODELS");
    let found = folders.iter().flat_map(std::env::split_paths).map(|f| f.join(name));
    let Some(path) = found.into_iter().find(|path| path.is_file()) else {
        let why = format!("{name} is not in WARPLOOM_TEST_MODELS");
        warploom_ledger::skip(warploom_ledger::Need::Models, &why);
        return None;
    };
    let tokenizer = open(&path);
    let cases = json("tests/golden/tokenizer/cases.json");
    let strings = cases["strings"].as_array().unwrap();
    assert!(strings.len() > 20);
    for (text, want) in strings.iter().zip(cases[key].as_array().unwrap()) {
        let text = text.as_str().unwrap();
        let got = tokenizer.encode(text, CHAT).unwrap();
        assert_eq!(got, ids(want), "{text:?}");
    }
    Some(tokenizer)
}

#[test]
fn qwen_gives_the_ids_of_the_python_package() {
    let Some(tokenizer) = real("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", "qwen2.5") else {
        return;
    };
    // Every byte has a token.
    let text = "\0\u{4}\u{7f}\u{e9}\u{1f600}";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, TEXT).unwrap()).unwrap(), text);
    // An incomplete character is reported as such.
    let ids = tokenizer.encode("\u{10ffff}", TEXT).unwrap();
    assert!(ids.len() > 1);
    assert_eq!(tokenizer.decode(&ids[..1]).unwrap(), "\u{fffd}");
}

#[test]
fn smollm2_gives_the_ids_of_the_python_package() {
    let Some(tokenizer) = real("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2") else { return };
    // This vocabulary lacks 21 bytes. The package drops them; here they are an error.
    let error = tokenizer.encode("ok \u{4}", TEXT).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("byte 0x04 at offset 3"), "{error}");
}

#[test]
fn words_are_cut_as_the_python_package_cuts_them() {
    let cases = json("tests/golden/tokenizer/cases.json");
    let strings = cases["strings"].as_array().unwrap();
    let words = cases["words"].as_object().unwrap();
    assert_eq!(words.len(), pretokenizer::ALL.len());
    for (pre, want) in words {
        let tokenizer = Tokenizer::new(TokenizerSpec { pre: pre.clone(), ..spec() }).unwrap();
        for (text, want) in strings.iter().zip(want.as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let got = tokenizer.words(text);
            let want: Vec<&str> =
                want.as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
            assert_eq!(got, want, "{pre}: {text:?}");
            // Encoding is lossless however the text is split.
            let ids = tokenizer.encode(text, TEXT).unwrap();
            assert_eq!(tokenizer.token_text(&ids), text.as_bytes(), "{pre}: {text:?}");
        }
    }
}

impl Tokenizer {
    /// Returns the words that the BPE receives, in the byte alphabet.
    fn words(&self, text: &str) -> Vec<String> {
        let Kind::Vocabulary { words: Some(words), .. } = &self.kind else { panic!("no words") };
        let spelled = |word: &str| word.bytes().map(char_of).collect();
        words.split(text).unwrap().into_iter().map(spelled).collect()
    }

    fn token_text(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.token_bytes(*id).unwrap()).copied().collect()
    }
}

#[test]
fn merges_apply_in_words_only_and_in_order() {
    let tokenizer = Tokenizer::new(spec()).unwrap();
    let encode = |text| tokenizer.encode(text, TEXT).unwrap();
    assert_eq!(encode("ab"), [256]);
    assert_eq!(encode("abcab ab"), [257, 256, 258]);
    assert_eq!(encode("ab\u{e9}").len(), 3);
    assert_eq!(encode(""), [0u32; 0]);
}

#[test]
fn special_tokens_are_found_as_asked() {
    let tokenizer = Tokenizer::new(spec()).unwrap();
    let with = |text, parse_special| {
        tokenizer.encode(text, EncodeOptions { add_bos: false, parse_special }).unwrap()
    };
    assert_eq!(with("ab<|im_end|>ab", true), [256, 259, 256]);
    let plain = with("ab<|im_end|>ab", false);
    assert!(!plain.contains(&259) && plain.len() > 3);
    assert_eq!(tokenizer.decode(&plain).unwrap(), "ab<|im_end|>ab");
    // User-defined tokens are always found, the longest first, and write their text.
    assert_eq!(with("<u>>ab<u>", false), [261, 256, 260]);
    assert_eq!(tokenizer.decode(&[261, 259, 260]).unwrap(), "<u>><u>");
    // The BOS token is added only once.
    assert_eq!(tokenizer.encode("ab", CHAT).unwrap(), [0, 256]);
    let first = TokenizerSpec { bos: Some(259), ..spec() };
    let first = Tokenizer::new(first).unwrap();
    assert_eq!(first.encode("<|im_end|>ab", CHAT).unwrap(), [259, 256]);
    assert_eq!(first.encode("<|im_end|>ab", TEXT).unwrap().first(), Some(&27));
}

/// The search finds the same token as a comparison with every token: the first of the longest ones.
#[test]
fn the_longest_special_token_is_found_among_many() {
    let texts = ["<", "<a", "<a>", "<aa", "<a>", "<a>b", "<b", "<b>", "<b>", "<|", "<|a|>", "<|a|"];
    let types = [3, 4, 3, 3, 4, 4, 3, 4, 3, 3, 3, 4];
    let first = byte_tokens().len() as u32;
    let mut spec = spec();
    spec.tokens = [byte_tokens(), texts.map(String::from).to_vec()].concat();
    spec.token_types = [vec![1; first as usize], types.to_vec()].concat();
    let specials = find_specials(&spec).unwrap();
    let list = &specials[&b'<'];
    let mut rests = vec!["<".to_owned()];
    for _ in 0..4 {
        let longer = |rest: &String| ['<', 'a', 'b', '>', '|'].map(|c| format!("{rest}{c}"));
        rests.extend(rests.clone().iter().flat_map(longer));
    }
    for (rest, reach) in rests.iter().flat_map(|rest| (0..6).map(move |reach| (rest, reach))) {
        let within = |special: &Special| special.always || special.text.len() <= reach;
        let found = longest_special(list, rest.as_bytes(), within).map(|special| special.id);
        let may = |i: &usize| types[*i] == 4 || texts[*i].len() <= reach;
        let all = (0..texts.len()).filter(may).filter(|i| rest.starts_with(texts[*i]));
        let want = all.max_by_key(|i| (texts[*i].len(), std::cmp::Reverse(*i)));
        assert_eq!(found, want.map(|i| first + i as u32), "{rest:?} within {reach}");
    }
}

#[test]
fn stops_come_from_the_metadata_and_from_known_names() {
    let tokenizer = Tokenizer::new(TokenizerSpec { eot: Some(5), ..spec() }).unwrap();
    let stops: Vec<u32> = (0..262).filter(|id| tokenizer.is_stop(*id)).collect();
    assert_eq!(stops, [1, 5, 259]);
}

#[test]
fn a_word_that_is_a_token_wins_over_merges_where_the_model_says_so() {
    // "abab" is a token that no merge makes.
    let with = |pre: &str| {
        let mut spec = TokenizerSpec { pre: pre.into(), ..spec() };
        spec.tokens.push("abab".into());
        spec.token_types.push(1);
        Tokenizer::new(spec).unwrap().encode("abab", TEXT).unwrap()
    };
    assert_eq!(with("llama-bpe"), [262]);
    assert_eq!(with("gpt-2"), [256, 256]);
}

#[test]
fn long_runs_are_cut_like_short_ones() {
    let n = 1 << 17;
    let tokenizer = Tokenizer::new(spec()).unwrap();
    for pre in ["gpt-2", "smollm", "llama-bpe", "qwen2", "default"] {
        let tokenizer = Tokenizer::new(TokenizerSpec { pre: pre.into(), ..spec() }).unwrap();
        for run in [" ", "\n", "x", "7", "!", "\u{65e5}"] {
            // A regex engine that gives up silently would leave one word.
            let text = run.repeat(n) + " ab";
            let words = tokenizer.words(&text);
            assert!(words.len() > 1, "{pre}: {run:?}");
            assert_eq!(words.last().unwrap(), "\u{120}ab", "{pre}: {run:?}");
            let ids = tokenizer.encode(&text, TEXT).unwrap();
            assert_eq!(tokenizer.token_text(&ids), text.as_bytes(), "{pre}: {run:?}");
        }
    }
    assert!(tokenizer.encode(&"<|im_end|".repeat(n / 8), CHAT).is_ok());
}

#[test]
fn each_fault_of_a_vocabulary_is_named() {
    type Change = fn(&mut TokenizerSpec);
    let rows: [(Change, &str); 12] = [
        (|s| s.tokens.clear(), "tokens: 0 entries"),
        (|s| s.token_types.truncate(3), "token_type: 3 entries for 262 tokens"),
        (|s| s.token_types[7] = 9, "token_type: element 7 is 9"),
        (|s| s.tokens[9] = "ab".into(), "tokens: element 256 repeats element 9, \"ab\""),
        (|s| s.tokens[3] = "x".repeat(1 << 17), "element 3 has 131072 bytes"),
        (
            |s| s.merges[1] = "ab zz".into(),
            "element 1, \"ab zz\", names \"zz\", which is not a token",
        ),
        (|s| s.merges[0] = "x y".into(), "names \"xy\", which is not a token"),
        (|s| s.merges[0] = "ab".into(), "is not two tokens"),
        (|s| s.merges[2] = "a b c".into(), "is not two tokens"),
        (|s| s.bos = Some(262), "bos_token_id: 262, but there are 262 tokens"),
        (|s| s.eos = Some(u32::MAX), "eos_token_id: 4294967295"),
        (|s| s.bos = None, "add_bos_token: true, but bos_token_id is absent"),
    ];
    for (change, words) in rows {
        let mut spec = spec();
        change(&mut spec);
        let error = Tokenizer::new(spec).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_file() && text.contains(words), "{text:?} lacks {words:?}");
    }
    let error = Tokenizer::new(TokenizerSpec { model: "rwkv".into(), ..spec() }).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("\"gpt2\""), "{error}");
    assert!(Tokenizer::new(spec()).unwrap().token_bytes(262).unwrap_err().is_invalid());
}

#[test]
fn a_spec_is_read_from_metadata() {
    let want = spec();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let entries = [
        (key("model"), Entry::Text("gpt2")),
        (key("pre"), Entry::Text("gpt-2")),
        (key("tokens"), Entry::Texts(want.tokens.clone())),
        (key("merges"), Entry::Texts(want.merges.clone())),
        (key("token_type"), Entry::Integers(want.token_types.clone())),
        (key("bos_token_id"), Entry::Integer(0)),
        (key("eos_token_id"), Entry::Integer(1)),
        (key("add_bos_token"), Entry::Bool(true)),
    ];
    let keys: Vec<(&str, Entry)> = entries.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    assert_eq!(TokenizerSpec::from_gguf(&gguf(&keys, &[])).unwrap(), want);
    for missing in [0, 2, 3] {
        let mut keys = keys.clone();
        let (key, _) = keys.remove(missing);
        let error = TokenizerSpec::from_gguf(&gguf(&keys, &[])).unwrap_err();
        assert!(error.is_bad_file() && error.to_string().contains(key), "{error}");
    }
    // An error of the vocabulary names the file.
    let mut keys = keys;
    keys[5].1 = Entry::Integer(999);
    let error = Tokenizer::from_gguf(&gguf(&keys, &[])).unwrap_err();
    assert!(error.to_string().starts_with("test.gguf: tokenizer.ggml.bos_token_id"), "{error}");
}

/// The vocabularies of Qwen's models spell `</s>` by merges, as ordinary text. It must load, and the
/// merges must not give the token.
#[test]
fn an_end_that_merges_spell_is_not_made_by_them() {
    for name in ["</s>", "<|endoftext|>", "[PAD]"] {
        for kind in [1, 3, 4, 5] {
            let mut spec = spec();
            let mut merges = Vec::new();
            let mut made = name[..1].to_owned();
            for c in name.chars().skip(1) {
                merges.push(format!("{made} {c}"));
                made.push(c);
                spec.tokens.push(made.clone());
                spec.token_types.push(1);
            }
            *spec.token_types.last_mut().unwrap() = kind;
            spec.merges.extend(merges);
            let end = spec.tokens.len() as u32 - 1;
            let tokenizer = Tokenizer::new(spec).unwrap();
            let ids = |special| {
                let options = EncodeOptions::default().parse_special(special);
                tokenizer.encode(&format!("a{name}b"), options).unwrap()
            };
            assert!(!ids(false).contains(&end), "{name} of type {kind}: {:?}", ids(false));
            assert!(ids(true).contains(&end), "{name} of type {kind}");
            assert!(tokenizer.is_stop(end));
        }
    }
}
