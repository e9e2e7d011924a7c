//! `tokenizer.json` as metadata: byte-level BPE.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;

use super::config::Config;
use super::json;
use crate::error::{Error, Result};
use crate::gguf::{Value, Writer};
use crate::llm::pretokenizer;

/// Entries of a vocabulary, at most.
const MAX_TOKENS: usize = 1 << 22;

/// Types of tokens, as GGUF numbers them.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
}

/// A pair of texts that become one; files of different ages say it in different ways.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

/// What of `tokenizer_config.json` is used, which need not exist.
#[derive(Default, Deserialize)]
struct Extra {
    #[serde(default)]
    chat_template: Json,
    #[serde(default)]
    bos_token: Json,
    #[serde(default)]
    eos_token: Json,
    add_bos_token: Option<bool>,
}

/// Writes the tokenizer's keys.
///
/// # Errors
/// Io, where the file is missing; unsupported, for another kind of tokenizer; bad file, naming
/// file and field, for a vocabulary that contradicts itself.
pub(super) fn describe(folder: &Path, config: &Config, to: &mut Writer) -> Result<()> {
    let path = folder.join("tokenizer.json");
    let name = path.display().to_string();
    let file: File = json(&path)?;
    let kind = file.model.kind.as_deref().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(Error::unsupported(format!("{name}: model {kind:?}, only \"BPE\" is read")));
    }
    let pre = pre_of(&file.pre_tokenizer).ok_or_else(|| {
        let known = pretokenizer::ALL.iter().filter_map(|p| p.names.first());
        let known: Vec<&str> = known.copied().collect();
        let known = known.join(", ");
        Error::unsupported(format!("{name}: pre_tokenizer: not one of those known: {known}"))
    })?;
    let (tokens, types) = vocabulary(&file, config).map_err(|e| e.context(&name))?;
    let extra_path = folder.join("tokenizer_config.json");
    let extra: Extra = if extra_path.is_file() { json(&extra_path)? } else { Extra::default() };

    to.key("tokenizer.ggml.model", Value::String("gpt2"))?;
    to.key("tokenizer.ggml.pre", Value::String(pre))?;
    to.strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str))?;
    to.integers("tokenizer.ggml.token_type", types.into_iter())?;
    let merges: Vec<String> = file.model.merges.into_iter().map(Merge::text).collect();
    to.strings("tokenizer.ggml.merges", merges.iter().map(String::as_str))?;

    let id_of = |text: &str| tokens.iter().position(|t| t == text).map(|id| id as u32);
    let named = |token: &Json| content(token).and_then(id_of);
    let [config_bos, _] = config.bos_token_id.as_ref().map_or([None; 2], |ids| ids.first_two());
    let [eos, eot] = config.eos_token_id.as_ref().map_or([None; 2], |ids| ids.first_two());
    let bos = named(&extra.bos_token).or(config_bos);
    let eos = named(&extra.eos_token).or(eos);
    for (key, id) in [("bos", bos), ("eos", eos), ("eot", eot.filter(|id| Some(*id) != eos))] {
        if let Some(id) = id {
            to.key(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id))?;
        }
    }
    // What the template of the post-processor puts first decides, before what is said beside it.
    let first = first_of_template(&file.post_processor);
    let adds = first.map(|text| id_of(text).is_some() && id_of(text) == bos);
    let adds = adds.or(extra.add_bos_token).unwrap_or(false) && bos.is_some();
    to.key("tokenizer.ggml.add_bos_token", Value::Bool(adds))?;
    if let Json::String(template) = &extra.chat_template {
        to.key("tokenizer.chat_template", Value::String(template))?;
    }
    Ok(())
}

impl Merge {
    fn text(self) -> String {
        match self {
            Merge::Text(text) => text,
            Merge::Pair([a, b]) => format!("{a} {b}"),
        }
    }
}

/// The text and the type of every id, as many as the embedding has rows.
fn vocabulary(file: &File, config: &Config) -> Result<(Vec<String>, Vec<i32>)> {
    let bad = |what: String| Error::bad_file(what);
    let ids = file.model.vocab.values().chain(file.added_tokens.iter().map(|t| &t.id));
    let most = ids.max().map_or(0, |id| *id as usize + 1);
    let count = usize::try_from(config.vocab_size).unwrap_or(usize::MAX);
    if most > count || count > MAX_TOKENS {
        return Err(bad(format!(
            "model.vocab: ids up to {}, vocab_size of config.json is {count}, at most {MAX_TOKENS}",
            most.saturating_sub(1)
        )));
    }
    let mut tokens = vec![None; count];
    let mut types = vec![UNUSED; count];
    for (text, id) in &file.model.vocab {
        if tokens[*id as usize].replace(text.clone()).is_some() {
            return Err(bad(format!("model.vocab: id {id} twice")));
        }
        types[*id as usize] = NORMAL;
    }
    for added in &file.added_tokens {
        let id = added.id as usize;
        if tokens[id].as_ref().is_some_and(|text| *text != added.content) {
            let content = &added.content;
            return Err(bad(format!("added_tokens: {content:?}: id {id} has another text")));
        }
        tokens[id] = Some(added.content.clone());
        types[id] = if added.special { CONTROL } else { USER_DEFINED };
    }
    let named = tokens.into_iter().enumerate();
    let tokens = named.map(|(id, text)| text.unwrap_or_else(|| format!("[PAD{id}]"))).collect();
    Ok((tokens, types))
}

/// The text of a token that is given as text or as an object.
fn content(token: &Json) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// The special token that the post-processor puts before a text, if that is what it does; the
/// empty text where it puts none there.
fn first_of_template(processor: &Json) -> Option<&str> {
    let single = match processor.get("type")?.as_str()? {
        "TemplateProcessing" => processor.get("single")?,
        "Sequence" => {
            return processor.get("processors")?.as_array()?.iter().find_map(first_of_template);
        }
        _ => return None,
    };
    let special = single.get(0)?.get("SpecialToken");
    Some(special.and_then(|token| token.get("id")?.as_str()).unwrap_or(""))
}

/// GGUF's name of how a text is cut into words.
fn pre_of(pre: &Json) -> Option<&'static str> {
    let steps: Vec<&Json> = match pre.get("type")?.as_str()? {
        "Sequence" => pre.get("pretokenizers")?.as_array()?.iter().collect(),
        _ => vec![pre],
    };
    let mut patterns = Vec::new();
    for step in steps {
        match step.get("type")?.as_str()? {
            "Split" if step.get("behavior")?.as_str()? == "Isolated" => {
                patterns.push(step.get("pattern")?.get("Regex")?.as_str()?);
            }
            "Digits" if step.get("individual_digits")?.as_bool()? => {
                patterns.push(pretokenizer::DIGIT);
            }
            // The pattern is GPT-2's, unless the steps before it do the cutting.
            "ByteLevel" if !step.get("add_prefix_space")?.as_bool()? => {
                if step.get("use_regex").and_then(Json::as_bool).unwrap_or(true) {
                    patterns.push(pretokenizer::GPT2);
                }
            }
            _ => return None,
        }
    }
    let found = pretokenizer::ALL.iter().find(|known| known.patterns == &patterns[..])?;
    found.names.first().copied()
}
