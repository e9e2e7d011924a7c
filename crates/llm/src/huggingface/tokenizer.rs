//! Converts `tokenizer.json` to GGUF metadata. Byte-level and SentencePiece BPE are written as
//! GGUF's own keys; if these cannot express the tokenizer exactly, the whole JSON is embedded as
//! well.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::companions::{self, content};
use super::config::Config;
use super::json as read;
use super::{generation, templates};
use crate::pretokenizer;
use crate::sentencepiece;
use crate::tokenizer_json::{self, Pipeline, keys};
use crate::vocabulary::{
    BYTE, CONTROL, MAX_TOKENS, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, is_phi3,
};
use warploom::{Error, Result};
use warploom_models::gguf::{Value, Writer};

/// The units that tokens are made of.
enum Units {
    /// Bytes, with GGUF's name for the pre-tokenizer.
    Bytes(&'static str),
    /// Characters, with byte fallback.
    Pieces {
        /// Whether a space is prepended to the text.
        prefix: bool,
    },
}

/// The fields of the optional `tokenizer_config.json` that are used.
#[derive(Default, Deserialize)]
struct Extra {
    #[serde(default)]
    bos_token: Json,
    #[serde(default)]
    eos_token: Json,
    #[serde(default)]
    unk_token: Json,
    #[serde(default)]
    sep_token: Json,
    #[serde(default)]
    pad_token: Json,
    #[serde(default)]
    cls_token: Json,
    #[serde(default)]
    mask_token: Json,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

/// Writes the tokenizer's keys. If they cannot express tokenizer.json and its companion files, the
/// whole JSON is added under a key of its own, and readers that support this key use it.
///
/// # Errors
/// Io if a file cannot be read; unsupported, naming file and key, for an unsupported setting; bad
/// file, naming file and field, for an inconsistent vocabulary.
pub(super) fn describe(folder: &Path, config: &Config, to: &mut Writer) -> Result<()> {
    let path = folder.join("tokenizer.json");
    let name = path.display().to_string();
    other_kind(folder)?;
    let mut file: Json = read(&path)?;
    keys::check_file(&file).map_err(|e| e.context(&name))?;
    let rows = usize::try_from(config.vocab_size).unwrap_or(usize::MAX);
    let beside = companions::merge(folder, &mut file, rows)?;
    let beside = Json::Object(beside);
    let extra = Extra::deserialize(&beside).map_err(|e| {
        Error::bad_file(format!("{}: {e}", folder.join("tokenizer_config.json").display()))
    })?;
    let (tokens, types) = vocabulary(&file, config).map_err(|e| e.context(&name))?;
    // Unsupported settings are refused now, not by a reader of the written file.
    let pipeline =
        Pipeline::new(&file, tokens.len(), HashSet::new()).map_err(|e| e.context(&name))?;
    let units = units_of(&file);

    let merges = file["model"]["merges"].as_array().map_or(&[][..], Vec::as_slice);
    let merges: Vec<[&str; 2]> = merges.iter().filter_map(tokenizer_json::merge).collect();
    match &units {
        Some(Units::Bytes(pre)) => {
            to.key("tokenizer.ggml.model", Value::String("gpt2"))?;
            to.key("tokenizer.ggml.pre", Value::String(pre))?;
        }
        Some(Units::Pieces { prefix }) => {
            to.key("tokenizer.ggml.model", Value::String("llama"))?;
            to.key("tokenizer.ggml.pre", Value::String("default"))?;
            to.key("tokenizer.ggml.add_space_prefix", Value::Bool(*prefix))?;
            to.floats("tokenizer.ggml.scores", scores(&tokens, &merges).into_iter())?;
        }
        // A name that no reader mistakes for a tokenizer that it supports.
        None => to.key("tokenizer.ggml.model", Value::String("huggingface"))?,
    }
    to.strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str))?;
    to.integers("tokenizer.ggml.token_type", types.into_iter())?;
    if units.is_some() {
        let merges: Vec<String> = merges.iter().map(|[a, b]| format!("{a} {b}")).collect();
        to.strings("tokenizer.ggml.merges", merges.iter().map(String::as_str))?;
    }

    let id_of = |text: &str| tokens.iter().position(|t| t == text).map(|id| id as u32);
    let named = |token: &Json| content(token).and_then(id_of);
    let mut generation = generation::read(folder)?;
    generation.pad = named(&extra.pad_token).or(generation.pad);
    let config_bos = config.bos_token_id.as_ref().and_then(|ids| ids.all().first().copied());
    let bos = named(&extra.bos_token).or(config_bos).or(generation.bos);
    if let Some(bos) = bos {
        to.key("tokenizer.ggml.bos_token_id", Value::U32(bos))?;
    }
    let eos = generation.describe(config, named(&extra.eos_token), tokens.len(), to)?;
    for (key, token) in [
        ("unknown", &extra.unk_token),
        // Misspelt in the format.
        ("seperator", &extra.sep_token),
        ("cls", &extra.cls_token),
        ("mask", &extra.mask_token),
    ] {
        if let Some(id) = named(token) {
            to.key(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id))?;
        }
    }
    // The post-processor's prefix and suffix take precedence over the companion files.
    let (before, behind) = pipeline.around();
    let said = !processor_says_nothing(&file["post_processor"]);
    let adds = |ids: &[u32], id: Option<u32>, beside: Option<bool>| match said {
        true => id.is_some_and(|id| ids == [id]),
        false => beside.unwrap_or(false) && id.is_some(),
    };
    to.key("tokenizer.ggml.add_bos_token", Value::Bool(adds(before, bos, extra.add_bos_token)))?;
    if adds(behind, eos, extra.add_eos_token) {
        to.key("tokenizer.ggml.add_eos_token", Value::Bool(true))?;
    }
    let ends = |ids: &[u32], id: Option<u32>| {
        ids.is_empty() || Some(ids) == id.as_ref().map(std::slice::from_ref)
    };
    let named_phi3 = folder.file_name().and_then(|name| name.to_str()).is_some_and(is_phi3);
    let exact = ends(before, bos) && ends(behind, eos) && !named_phi3;
    if !exact || !units.is_some_and(|units| says_all(&file, &units)) {
        to.key(tokenizer_json::KEY, Value::String(&file.to_string()))?;
    }
    templates::describe(folder, &beside, to)
}

/// Vocabulary files of other tokenizer libraries.
const OTHERS: [&str; 6] =
    ["tokenizer.model", "spiece.model", "tekken.json", "vocab.json", "vocab.txt", "merges.txt"];

/// Refuses a folder whose only tokenizer is that of a different library.
///
/// # Errors
/// Unsupported, naming the file, if the folder has one of [`OTHERS`] but no tokenizer.json.
fn other_kind(folder: &Path) -> Result<()> {
    let there = |name: &&&str| folder.join(name).is_file();
    match OTHERS.iter().find(there).filter(|_| !folder.join("tokenizer.json").is_file()) {
        None => Ok(()),
        Some(other) => Err(Error::unsupported(format!(
            "{}: no tokenizer.json, and {other} is not read: `save_pretrained` of a transformers \
             tokenizer writes one",
            folder.display()
        ))),
    }
}

/// Computes the score of each token: the earlier its merge, the higher the score.
fn scores(tokens: &[String], merges: &[[&str; 2]]) -> Vec<f32> {
    let mut first: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (rank, pair) in merges.iter().enumerate() {
        first.entry(pair.concat()).or_insert(rank);
    }
    tokens.iter().map(|token| first.get(token).map_or(0.0, |rank| -(*rank as f32))).collect()
}

/// Returns the text and the type of every id; there is one id for each row of the embedding.
fn vocabulary(file: &Json, config: &Config) -> Result<(Vec<String>, Vec<i32>)> {
    let bad = |what: String| Error::bad_file(what);
    let model = keys::object(&file["model"], "model")?;
    let vocab = tokenizer_json::model_tokens(model)?;
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |token: &Json| token["id"].as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = vocab.iter().map(|(_, id)| *id);
    let most = ids.chain(added.iter().filter_map(number)).max().map_or(0, |id| id as usize + 1);
    let count = usize::try_from(config.vocab_size).unwrap_or(usize::MAX);
    if most > count || count > MAX_TOKENS {
        return Err(bad(format!(
            "model.vocab: ids up to {}, vocab_size of config.json is {count}, at most {MAX_TOKENS}",
            most.saturating_sub(1)
        )));
    }
    let is = |field: &str| model.get(field).and_then(Json::as_bool) == Some(true);
    let unk_id = model.get("unk_id").and_then(Json::as_u64);
    let mut tokens = vec![None; count];
    let mut types = vec![UNUSED; count];
    for (text, id) in vocab {
        if tokens[id as usize].replace(text.to_owned()).is_some() {
            return Err(bad(format!("model.vocab: id {id} twice")));
        }
        let unk = model.get("unk_token").is_some_and(|unk| unk == text);
        types[id as usize] = match is("byte_fallback") {
            _ if unk_id == Some(u64::from(id)) => UNKNOWN,
            true if unk => UNKNOWN,
            true if sentencepiece::byte(id as usize, text).is_ok() => BYTE,
            _ => NORMAL,
        };
    }
    for token in added {
        let (Some(text), Some(id)) = (content(token), number(token)) else {
            return Err(bad(format!("added_tokens: {token}: no text or no id")));
        };
        let id = id as usize;
        if tokens[id].as_ref().is_some_and(|known| known != text) {
            return Err(bad(format!("added_tokens: {text:?}: id {id} has another text")));
        }
        tokens[id] = Some(text.to_owned());
        types[id] = match token["special"] == true {
            // The unknown token keeps its type.
            true if types[id] == UNKNOWN => UNKNOWN,
            true => CONTROL,
            false => USER_DEFINED,
        };
    }
    let named = tokens.into_iter().enumerate();
    let tokens = named.map(|(id, text)| text.unwrap_or_else(|| format!("[PAD{id}]"))).collect();
    Ok((tokens, types))
}

/// Returns whether a post-processor adds neither prefix nor suffix.
fn processor_says_nothing(processor: &Json) -> bool {
    match processor.get("processors").and_then(Json::as_array) {
        Some(steps) => steps.iter().all(processor_says_nothing),
        None => matches!(processor["type"].as_str(), None | Some("ByteLevel")),
    }
}

/// Returns the units of the tokenizer, or `None` if GGUF's own keys cannot describe it even
/// approximately.
fn units_of(file: &Json) -> Option<Units> {
    let model = file["model"].as_object()?;
    if keys::model_kind(model).ok()? != "BPE" {
        return None;
    }
    let is = |field: &str| model.get(field).and_then(Json::as_bool) == Some(true);
    match is("byte_fallback") {
        true => pieces_of(file).map(|prefix| Units::Pieces { prefix }),
        false => pre_of(&file["pre_tokenizer"], is("ignore_merges")).map(Units::Bytes),
    }
}

/// Returns whether GGUF's own keys express the whole file.
fn says_all(file: &Json, units: &Units) -> bool {
    let model = &file["model"];
    let none = |value: &Json| value.is_null() || value == "";
    let plain = ["continuing_subword_prefix", "end_of_word_suffix"];
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    let set = |token: &Json, flag: &str| token[flag] == true;
    let whole = |token: &Json| {
        !["lstrip", "rstrip", "single_word"].iter().any(|flag| set(token, flag))
            && !token.get("normalized").map_or(!set(token, "special"), |flag| flag == true)
    };
    if !plain.iter().all(|field| none(&model[*field])) || !added.iter().all(whole) {
        return false;
    }
    match units {
        Units::Bytes(_) => {
            let decoder = &file["decoder"];
            file["normalizer"].is_null()
                && none(&model["unk_token"])
                && (decoder.is_null() || decoder["type"] == "ByteLevel")
        }
        Units::Pieces { prefix } => {
            let spaces =
                |token: &Json| content(token).is_some_and(|t| t.contains(['\u{2581}', ' ']));
            let vocab = &model["vocab"];
            let unk = &model["unk_token"];
            let bytes = (0..=255u8).all(|byte| vocab.get(format!("<0x{byte:02X}>")).is_some());
            let unk = none(unk) || added.iter().any(|token| token["content"] == *unk);
            // Metaspace prepends a space only if the text does not begin with one.
            let metaspace = file["pre_tokenizer"]["type"] == "Metaspace";
            bytes
                && unk
                && model["ignore_merges"] != true
                && !(*prefix && metaspace)
                && !added.iter().any(|token| !set(token, "special") && spaces(token))
                && decodes_as_pieces(&file["decoder"], *prefix)
        }
    }
}

/// Returns whether a decoder converts tokens to text as readers of GGUF do.
fn decodes_as_pieces(decoder: &Json, prefix: bool) -> bool {
    let strips = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let mut want = vec![
        json!({"type": "Replace", "pattern": {"String": sentencepiece::SPACE_TEXT}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    want.extend(prefix.then_some(strips));
    decoder.is_null() || decoder["decoders"].as_array() == Some(&want)
}

/// Returns whether a space is prepended to the text; `None` unless spaces become U+2581 and the
/// text is not split.
fn pieces_of(file: &Json) -> Option<bool> {
    let (normalizer, pre_tokenizer) = (&file["normalizer"], &file["pre_tokenizer"]);
    let spells = |json: &Json, field: &str| {
        json.get(field).and_then(Json::as_str) == Some(sentencepiece::SPACE_TEXT)
    };
    let is_space = |json: &Json| json.get("pattern").is_some_and(|p| p["String"] == " ");
    let steps: Vec<&Json> = match normalizer.get("type").and_then(Json::as_str) {
        None => Vec::new(),
        Some("Sequence") => normalizer.get("normalizers")?.as_array()?.iter().collect(),
        Some(_) => vec![normalizer],
    };
    let (mut prefix, mut replaced) = (false, false);
    for step in steps {
        match step.get("type")?.as_str()? {
            "Prepend" if spells(step, "prepend") && !replaced => prefix = true,
            "Replace" if is_space(step) && spells(step, "content") => replaced = true,
            _ => return None,
        }
    }
    match pre_tokenizer.get("type").and_then(Json::as_str) {
        None => {}
        // A split at spaces, none of which is left.
        Some("Split") if replaced && is_space(pre_tokenizer) => {}
        Some("Metaspace") if spells(pre_tokenizer, "replacement") => {
            if pre_tokenizer.get("split").is_none_or(|split| split != false) {
                return None;
            }
            prefix |= pre_tokenizer.get("prepend_scheme").is_none_or(|scheme| scheme != "never");
            replaced = true;
        }
        Some(_) => return None,
    }
    replaced.then_some(prefix)
}

/// Returns GGUF's name for a pre-tokenizer, if there is one.
fn pre_of(pre: &Json, ignore_merges: bool) -> Option<&'static str> {
    let steps: Vec<&Json> = match pre.get("type")?.as_str()? {
        "Sequence" => pre.get("pretokenizers")?.as_array()?.iter().collect(),
        _ => vec![pre],
    };
    let mut patterns = Vec::new();
    let (last, before) = steps.split_last()?;
    for step in before {
        match step.get("type")?.as_str()? {
            "Split" if step["behavior"] == "Isolated" && step["invert"] != true => {
                patterns.push(step.get("pattern")?.get("Regex")?.as_str()?);
            }
            "Digits" if step["individual_digits"] == true => patterns.push(pretokenizer::DIGIT),
            _ => return None,
        }
    }
    // With `use_regex`, ByteLevel splits by GPT-2's pattern; otherwise only the earlier steps
    // split.
    if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
        return None;
    }
    if last["use_regex"] != false {
        patterns.push(pretokenizer::GPT2);
    }
    let same = |known: &&pretokenizer::PreTokenizer| {
        known.patterns == &patterns[..] && known.ignore_merges == ignore_merges
    };
    let found = pretokenizer::ALL.iter().find(same)?;
    found.names.first().copied()
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
