//! `tokenizer.json` as metadata: BPE of bytes or of SentencePiece's kind.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;

use super::config::Config;
use super::json;
use crate::pretokenizer;
use crate::sentencepiece;
use crate::vocabulary::{BYTE, CONTROL, MAX_TOKENS, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};
use warploom::error::{Error, Result};
use warploom_models::gguf::{Value, Writer};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Json,
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
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    unk_token: Option<String>,
    vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
}

/// What tokens are made of.
enum Units {
    /// Bytes, of words that GGUF has this name for.
    Bytes(&'static str),
    /// Characters, and bytes of those that have no token.
    Pieces {
        /// Whether text begins with a space that is not there.
        prefix: bool,
    },
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
    let units = match file.model.byte_fallback {
        true => pieces_of(&file).map(|prefix| Units::Pieces { prefix }),
        false => pre_of(&file.pre_tokenizer, file.model.ignore_merges).map(Units::Bytes),
    };
    let units = units.ok_or_else(|| {
        let known = pretokenizer::ALL.iter().filter_map(|p| p.names.first());
        let known: Vec<&str> = known.copied().collect();
        let known = known.join(", ");
        Error::unsupported(format!(
            "{name}: normalizer and pre_tokenizer: not one of those known: SentencePiece's, {known}"
        ))
    })?;
    let (tokens, types) = vocabulary(&file, config).map_err(|e| e.context(&name))?;
    let extra_path = folder.join("tokenizer_config.json");
    let extra: Extra = if extra_path.is_file() { json(&extra_path)? } else { Extra::default() };

    let merges: Vec<[String; 2]> = file.model.merges.into_iter().filter_map(Merge::pair).collect();
    match units {
        Units::Bytes(pre) => {
            to.key("tokenizer.ggml.model", Value::String("gpt2"))?;
            to.key("tokenizer.ggml.pre", Value::String(pre))?;
        }
        Units::Pieces { prefix } => {
            to.key("tokenizer.ggml.model", Value::String("llama"))?;
            to.key("tokenizer.ggml.pre", Value::String("default"))?;
            to.key("tokenizer.ggml.add_space_prefix", Value::Bool(prefix))?;
            to.floats("tokenizer.ggml.scores", scores(&tokens, &merges).into_iter())?;
        }
    }
    to.strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str))?;
    to.integers("tokenizer.ggml.token_type", types.into_iter())?;
    let merges: Vec<String> = merges.iter().map(|[a, b]| format!("{a} {b}")).collect();
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
    /// The two; an empty line of an old file is none.
    fn pair(self) -> Option<[String; 2]> {
        match self {
            Merge::Text(text) => {
                let (a, b) = text.split_once(' ')?;
                Some([a.to_owned(), b.to_owned()])
            }
            Merge::Pair(pair) => Some(pair),
        }
    }
}

/// The score of each token: the earlier it is made, the higher.
fn scores(tokens: &[String], merges: &[[String; 2]]) -> Vec<f32> {
    let mut first: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (rank, pair) in merges.iter().enumerate() {
        first.entry(pair.concat()).or_insert(rank);
    }
    tokens.iter().map(|token| first.get(token).map_or(0.0, |rank| -(*rank as f32))).collect()
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
        let is_byte = || sentencepiece::byte(*id as usize, text).is_ok();
        types[*id as usize] = match file.model.byte_fallback {
            true if file.model.unk_token.as_ref() == Some(text) => UNKNOWN,
            true if is_byte() => BYTE,
            _ => NORMAL,
        };
    }
    for added in &file.added_tokens {
        let id = added.id as usize;
        if tokens[id].as_ref().is_some_and(|text| *text != added.content) {
            let content = &added.content;
            return Err(bad(format!("added_tokens: {content:?}: id {id} has another text")));
        }
        tokens[id] = Some(added.content.clone());
        types[id] = match added.special {
            // It stands for what has no token, whatever else it is.
            true if types[id] == UNKNOWN => UNKNOWN,
            true => CONTROL,
            false => USER_DEFINED,
        };
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

/// Whether text begins with a space that is not there, where spaces become U+2581 and the text is
/// one word.
fn pieces_of(file: &File) -> Option<bool> {
    let spells = |json: &Json, field: &str| {
        json.get(field).and_then(Json::as_str) == Some(sentencepiece::SPACE_TEXT)
    };
    let is_space = |json: &Json| json.get("pattern").is_some_and(|p| p["String"] == " ");
    let steps: Vec<&Json> = match file.normalizer.get("type").and_then(Json::as_str) {
        None => Vec::new(),
        Some("Sequence") => file.normalizer.get("normalizers")?.as_array()?.iter().collect(),
        Some(_) => vec![&file.normalizer],
    };
    let (mut prefix, mut replaced) = (false, false);
    for step in steps {
        match step.get("type")?.as_str()? {
            "Prepend" if spells(step, "prepend") && !replaced => prefix = true,
            "Replace" if is_space(step) && spells(step, "content") => replaced = true,
            _ => return None,
        }
    }
    match file.pre_tokenizer.get("type").and_then(Json::as_str) {
        None => {}
        // Cuts at spaces, of which none is left.
        Some("Split") if replaced && is_space(&file.pre_tokenizer) => {}
        Some("Metaspace") if spells(&file.pre_tokenizer, "replacement") => {
            if file.pre_tokenizer.get("split")?.as_bool()? {
                return None;
            }
            prefix |= file.pre_tokenizer.get("prepend_scheme")?.as_str()? != "never";
            replaced = true;
        }
        Some(_) => return None,
    }
    replaced.then_some(prefix)
}

/// GGUF's name of how a text is cut into words.
fn pre_of(pre: &Json, ignore_merges: bool) -> Option<&'static str> {
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
    let same = |known: &&pretokenizer::PreTokenizer| {
        known.patterns == &patterns[..] && known.ignore_merges == ignore_merges
    };
    let found = pretokenizer::ALL.iter().find(same)?;
    found.names.first().copied()
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
