//! Every key of a tokenizer's files, and how it is handled.
//!
//! The keys are those of `tokenizers` 0.23.3 and `transformers` 5.24. The readers check this table
//! before they use an object: a refused key is an error that names it, and so is an unknown key in
//! a file in which every key can change ids.

use serde_json::{Map, Value as Json};

use warploom::{Error, Result};

/// How a key is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Read and applied.
    Honoured,
    /// Ignored for the given reason; the ids of a prompt do not depend on the key.
    NoEffect(&'static str),
    /// Allowed if the value is `null` or one of these, written as JSON; otherwise refused for the
    /// given reason.
    Only(&'static [&'static str], &'static str),
    /// Refused for the given reason, unless the value is `null`.
    Refused(&'static str),
}
use Rule::{Honoured, NoEffect, Only, Refused};

/// How one key of an object is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The object that contains the key: a part of the file, followed by its kind if the part has
    /// kinds.
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    pub(crate) rule: Rule,
}

const OFFSETS: Rule = NoEffect("it moves offsets, not ids");
const PAIRS: Rule = NoEffect("a prompt is one text; only rerankers read pairs");
const TYPES: Rule = NoEffect("only rerankers take token types, and they are those of the pair");
const SAVED: Rule = NoEffect("it describes how the file was made or is loaded");
const BATCHES: Rule = NoEffect("prompts are not padded or truncated here");
const OUTPUT: Rule = NoEffect("it changes decoded text; a stream cannot take text back");
const ELSEWHERE: Rule = NoEffect("tokenizer.json specifies it");
const CALLS: Rule = NoEffect("an argument of calls, without a meaning in a file");

/// Builds the rows of the table, which are written grouped by object.
macro_rules! rows {
    ($($section:literal { $($key:literal: $rule:expr),* $(,)? })*) => {
        &[$($(Row { section: $section, key: $key, rule: $rule },)*)*]
    };
}

/// All keys. A kind of a part is known if its section has a row for `type`.
pub(crate) static TABLE: &[Row] = rows! {
    "tokenizer.json" {
        "version": Only(&["\"1.0\""], "another version of the format"),
        "truncation": BATCHES, "padding": BATCHES, "added_tokens": Honoured,
        "normalizer": Honoured, "pre_tokenizer": Honoured, "post_processor": Honoured,
        "decoder": Honoured, "model": Honoured,
    }
    "added_tokens" {
        "id": Honoured, "content": Honoured, "single_word": Honoured, "lstrip": Honoured,
        "rstrip": Honoured, "normalized": Honoured, "special": Honoured,
        "__type": SAVED,
    }
    "normalizer BertNormalizer" {
        "type": Honoured, "clean_text": Honoured, "handle_chinese_chars": Honoured,
        "strip_accents": Honoured, "lowercase": Honoured,
    }
    "normalizer Strip" { "type": Honoured, "strip_left": Honoured, "strip_right": Honoured }
    "normalizer StripAccents" { "type": Honoured }
    "normalizer NFC" { "type": Honoured }
    "normalizer NFD" { "type": Honoured }
    "normalizer NFKC" { "type": Honoured }
    "normalizer NFKD" { "type": Honoured }
    "normalizer Sequence" { "type": Honoured, "normalizers": Honoured }
    "normalizer Lowercase" { "type": Honoured }
    "normalizer Nmt" { "type": Honoured }
    "normalizer Precompiled" { "type": Honoured, "precompiled_charsmap": Honoured }
    "normalizer Replace" { "type": Honoured, "pattern": Honoured, "content": Honoured }
    "normalizer Prepend" { "type": Honoured, "prepend": Honoured }
    "normalizer ByteLevel" { "type": Honoured }
    "pre_tokenizer BertPreTokenizer" { "type": Honoured }
    "pre_tokenizer ByteLevel" {
        "type": Honoured, "add_prefix_space": Honoured, "trim_offsets": OFFSETS,
        "use_regex": Honoured,
    }
    "pre_tokenizer CharDelimiterSplit" { "type": Honoured, "delimiter": Honoured }
    "pre_tokenizer Metaspace" {
        "type": Honoured, "replacement": Honoured, "prepend_scheme": Honoured, "split": Honoured,
        "add_prefix_space": Honoured, "str_rep": NoEffect("it repeats `replacement`"),
    }
    "pre_tokenizer Whitespace" { "type": Honoured }
    "pre_tokenizer Sequence" { "type": Honoured, "pretokenizers": Honoured }
    "pre_tokenizer Split" {
        "type": Honoured, "pattern": Honoured, "behavior": Honoured, "invert": Honoured,
    }
    "pre_tokenizer Punctuation" { "type": Honoured, "behavior": Honoured }
    "pre_tokenizer WhitespaceSplit" { "type": Honoured }
    "pre_tokenizer Digits" { "type": Honoured, "individual_digits": Honoured }
    "pre_tokenizer UnicodeScripts" { "type": Honoured }
    "pre_tokenizer FixedLength" { "type": Honoured, "length": Honoured }
    "model BPE" {
        "type": Honoured, "vocab": Honoured, "merges": Honoured, "unk_token": Honoured,
        "fuse_unk": Honoured, "byte_fallback": Honoured, "ignore_merges": Honoured,
        "continuing_subword_prefix": Honoured, "end_of_word_suffix": Honoured,
        "dropout": Only(&["0", "0.0"], "merges left out by chance give other ids each time"),
    }
    "model WordPiece" {
        "type": Honoured, "vocab": Honoured, "unk_token": Honoured,
        "continuing_subword_prefix": Honoured, "max_input_chars_per_word": Honoured,
    }
    "model WordLevel" { "type": Honoured, "vocab": Honoured, "unk_token": Honoured }
    "model Unigram" {
        "type": Honoured, "vocab": Honoured, "unk_id": Honoured, "byte_fallback": Honoured,
    }
    "post_processor TemplateProcessing" {
        "type": Honoured, "single": Honoured, "special_tokens": Honoured, "pair": PAIRS,
    }
    "post_processor BertProcessing" { "type": Honoured, "sep": Honoured, "cls": Honoured }
    "post_processor RobertaProcessing" {
        "type": Honoured, "sep": Honoured, "cls": Honoured, "trim_offsets": OFFSETS,
        "add_prefix_space": OFFSETS,
    }
    "post_processor ByteLevel" {
        "type": Honoured, "add_prefix_space": OFFSETS, "trim_offsets": OFFSETS,
        "use_regex": OFFSETS,
    }
    "post_processor Sequence" { "type": Honoured, "processors": Honoured }
    "decoder ByteLevel" {
        "type": Honoured, "add_prefix_space": NoEffect("decoding does not read it"),
        "trim_offsets": OFFSETS, "use_regex": NoEffect("decoding does not read it"),
    }
    "decoder WordPiece" { "type": Honoured, "prefix": Honoured, "cleanup": Honoured }
    "decoder Metaspace" {
        "type": Honoured, "replacement": Honoured, "prepend_scheme": Honoured,
        "split": NoEffect("decoding does not read it"), "add_prefix_space": Honoured,
        "str_rep": NoEffect("it repeats `replacement`"),
    }
    "decoder Sequence" { "type": Honoured, "decoders": Honoured }
    "decoder Replace" { "type": Honoured, "pattern": Honoured, "content": Honoured }
    "decoder Fuse" { "type": Honoured }
    "decoder Strip" {
        "type": Honoured, "content": Honoured, "start": Honoured,
        "stop": Only(&["0"], "a stream cannot know which token is the last"),
    }
    "decoder ByteFallback" { "type": Honoured }
    "decoder BPEDecoder" {
        "type": Refused("it writes no space after the last token, and a stream cannot know which \
                         that is"),
        "suffix": NoEffect("the decoder is refused"),
    }
    "decoder CTC" {
        "type": Refused("it drops repeated tokens; it is for speech, not for a decoder's text"),
        "pad_token": NoEffect("the decoder is refused"),
        "word_delimiter_token": NoEffect("the decoder is refused"),
        "cleanup": NoEffect("the decoder is refused"),
    }
    "tokenizer_config.json" {
        "bos_token": Honoured, "eos_token": Honoured, "unk_token": Honoured, "sep_token": Honoured,
        "pad_token": Honoured, "cls_token": Honoured, "mask_token": Honoured,
        "extra_special_tokens": Honoured, "additional_special_tokens": Honoured,
        "model_specific_special_tokens": Honoured, "added_tokens_decoder": Honoured,
        "add_bos_token": Honoured, "add_eos_token": Honoured, "chat_template": Honoured,
        "split_special_tokens": Only(&["false"], "templates could not write control tokens"),
        "add_prefix_space": ELSEWHERE, "legacy": ELSEWHERE, "do_lower_case": ELSEWHERE,
        "do_basic_tokenize": ELSEWHERE, "never_split": ELSEWHERE, "strip_accents": ELSEWHERE,
        "tokenize_chinese_chars": ELSEWHERE, "add_dummy_prefix_space": ELSEWHERE,
        "trim_offsets": OFFSETS, "sp_model_kwargs": ELSEWHERE, "spaces_between_special_tokens": OUTPUT,
        "clean_up_tokenization_spaces": OUTPUT,
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": OUTPUT,
        "use_default_system_prompt": NoEffect("the template determines what comes first"),
        "errors": NoEffect("bytes that are no UTF-8 become U+FFFD"),
        "response_template": OUTPUT, "response_schema": OUTPUT, "chat_control_tokens": OUTPUT,
        "model_max_length": NoEffect("config.json gives the longest context"),
        "max_len": NoEffect("config.json gives the longest context"),
        "max_length": BATCHES, "padding_side": BATCHES, "truncation_side": BATCHES,
        "truncation_strategy": BATCHES, "stride": BATCHES, "pad_to_multiple_of": BATCHES,
        "pad_token_type_id": BATCHES, "model_input_names": TYPES, "token_type_ids_pattern": TYPES,
        "return_token_type_ids": TYPES,
        "tokenizer_class": SAVED, "processor_class": SAVED, "image_processor_type": SAVED,
        "auto_map": SAVED, "backend": SAVED, "name_or_path": SAVED, "is_local": SAVED,
        "local_files_only": SAVED, "files_loaded": SAVED, "init_inputs": SAVED, "from_slow": SAVED,
        "use_fast": SAVED, "tokenizer_file": SAVED, "vocab_file": SAVED, "merges_file": SAVED,
        "special_tokens_map_file": SAVED, "added_tokens_file": SAVED, "verbose": SAVED,
        "transformers_version": SAVED, "fix_mistral_regex": ELSEWHERE, "slow_tokenizer_class": SAVED,
        "fast_tokenizer_files": Only(&["[\"tokenizer.json\"]"], "another file would be read"),
        "unk_id": ELSEWHERE, "continuing_subword_prefix": ELSEWHERE, "merges": ELSEWHERE,
        "end_of_word_suffix": ELSEWHERE, "vocab": ELSEWHERE, "post_processor": ELSEWHERE,
        "padding": BATCHES, "truncation": BATCHES, "tokenizer_padding": BATCHES,
        "tokenizer_truncation": BATCHES, "max_target_length": BATCHES, "_json_padding": BATCHES,
        "_json_truncation": BATCHES, "_commit_hash": SAVED, "_from_auto": SAVED,
        "_from_pipeline": SAVED, "_spm_precompiled_charsmap": ELSEWHERE, "device_map": SAVED,
        "add_generation_prompt": CALLS, "cache_dir": CALLS, "commit_message": CALLS,
        "force_download": CALLS, "gguf_file": CALLS, "proxies": CALLS, "repo_id": CALLS,
        "revision": CALLS, "sanitize_control_tokens": CALLS, "save_jinja_files": CALLS,
        "subfolder": CALLS, "token": CALLS, "tokenizer": CALLS, "tokenizer_object": CALLS,
        "use_source_tokenizer": CALLS,
    }
    "special_tokens_map.json" {
        "bos_token": Honoured, "eos_token": Honoured, "unk_token": Honoured, "sep_token": Honoured,
        "pad_token": Honoured, "cls_token": Honoured, "mask_token": Honoured,
        "extra_special_tokens": Honoured, "additional_special_tokens": Honoured,
    }
};

/// Returns the rule for a key, or `None` if the table does not have it.
pub(crate) fn rule(section: &str, key: &str) -> Option<Rule> {
    TABLE.iter().find(|row| row.section == section && row.key == key).map(|row| row.rule)
}

/// Checks the keys of an object against the rows of `section`. `unknown` allows keys without a row.
///
/// # Errors
/// Unsupported, naming `at` and the key, if a key is refused, or is unknown and not allowed.
pub(crate) fn check_keys(
    section: &str,
    at: &str,
    object: &Map<String, Json>,
    unknown: bool,
) -> Result<()> {
    for (key, value) in object {
        let refused = |reason: &str| {
            let mut shown = value.to_string();
            if shown.len() > 60 {
                shown = shown.chars().take(60).chain("..".chars()).collect();
            }
            Error::unsupported(format!("{at}: {key}: {shown} is not supported: {reason}"))
        };
        match rule(section, key) {
            Some(Honoured | NoEffect(_)) => {}
            _ if value.is_null() => {}
            Some(Only(values, _)) if values.contains(&value.to_string().as_str()) => {}
            Some(Only(_, reason) | Refused(reason)) => return Err(refused(reason)),
            None if unknown => {}
            None => return Err(refused("unknown key")),
        }
    }
    Ok(())
}

/// Parts of tokenizer.json that have kinds, each with the key for the steps of its kind `Sequence`.
const PARTS: [(&str, &str); 4] = [
    ("normalizer", "normalizers"),
    ("pre_tokenizer", "pretokenizers"),
    ("post_processor", "processors"),
    ("decoder", "decoders"),
];

/// Checks every key of a tokenizer.json.
///
/// # Errors
/// Bad file, naming the object, if an object is missing or has the wrong type; unsupported, naming
/// the object and the key, if a key is refused or unknown.
pub(crate) fn check_file(file: &Json) -> Result<()> {
    let top = object(file, "tokenizer.json")?;
    check_keys("tokenizer.json", "tokenizer.json", top, false)?;
    let added = match file.get("added_tokens") {
        None | Some(Json::Null) => &[],
        Some(Json::Array(tokens)) => &tokens[..],
        Some(_) => return Err(Error::bad_file("added_tokens: not a list")),
    };
    for (index, token) in added.iter().enumerate() {
        let at = format!("added_tokens: element {index}");
        check_keys("added_tokens", &at, object(token, &at)?, false)?;
    }
    for (part, steps) in PARTS {
        check_part(part, steps, part, file.get(part).unwrap_or(&Json::Null))?;
    }
    let model = file.get("model").unwrap_or(&Json::Null);
    let model = object(model, "model")?;
    let kind = model_kind(model)?;
    check_keys(&format!("model {kind}"), &format!("model {kind}"), model, false)
}

/// Returns the kind of a model, which old files only imply.
pub(crate) fn model_kind(model: &Map<String, Json>) -> Result<&'static str> {
    const KINDS: [&str; 4] = ["BPE", "WordPiece", "WordLevel", "Unigram"];
    match model.get("type") {
        None | Some(Json::Null) if model.contains_key("merges") => Ok("BPE"),
        None | Some(Json::Null) if model.get("vocab").is_some_and(Json::is_array) => Ok("Unigram"),
        None | Some(Json::Null) if model.contains_key("continuing_subword_prefix") => {
            Ok("WordPiece")
        }
        None | Some(Json::Null) => Ok("WordLevel"),
        Some(kind) => KINDS.into_iter().find(|known| kind == known).ok_or_else(|| {
            Error::unsupported(format!("model: type {kind} is unknown; known: {KINDS:?}"))
        }),
    }
}

/// Checks the keys of a part and of its steps.
fn check_part(part: &str, steps: &str, at: &str, value: &Json) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let step = object(value, at)?;
    let Some(kind) = step.get("type").and_then(Json::as_str) else {
        return Err(Error::bad_file(format!("{at}: no type")));
    };
    let section = format!("{part} {kind}");
    if rule(&section, "type").is_none() {
        return Err(Error::unsupported(format!("{at}: type {kind:?} is unknown")));
    }
    check_keys(&section, &format!("{at} {kind}"), step, false)?;
    if kind == "Sequence" {
        let Some(list) = step.get(steps).and_then(Json::as_array) else {
            return Err(Error::bad_file(format!("{at}: {steps}: not a list")));
        };
        for (index, step) in list.iter().enumerate() {
            if step.is_null() {
                return Err(Error::bad_file(format!("{at}: {steps}: element {index} is null")));
            }
            check_part(part, steps, &format!("{at}: {steps}: element {index}"), step)?;
        }
    }
    Ok(())
}

/// Returns a value as an object, or an error that names `at`.
pub(crate) fn object<'a>(value: &'a Json, at: &str) -> Result<&'a Map<String, Json>> {
    value.as_object().ok_or_else(|| Error::bad_file(format!("{at}: not an object")))
}
