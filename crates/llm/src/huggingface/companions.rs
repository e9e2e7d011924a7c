//! Reads the files next to tokenizer.json that affect its tokens, as `transformers` does:
//! tokenizer_config.json, special_tokens_map.json and added_tokens.json.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::json as read;
use crate::tokenizer_json::keys::check_keys;
use warploom::{Error, Result};

/// Keys whose value is a special token.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Keys whose value is a list of special tokens. The first replaces the second in newer files.
const LISTS: [&str; 3] =
    ["extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"];

/// Reads the JSON object of a file, if the file exists.
fn optional(folder: &Path, name: &str) -> Result<Option<Map<String, Json>>> {
    let path = folder.join(name);
    match path.is_file() {
        true => read(&path).map(Some),
        false => Ok(None),
    }
}

/// Merges the added tokens of the companion files into `file`, the parsed tokenizer.json, and
/// returns tokenizer_config.json. If that has no `added_tokens_decoder`, special_tokens_map.json
/// overrides it. `rows` is the number of token ids of the model.
///
/// # Errors
/// Io if a file cannot be read; unsupported or bad file, naming file and key, for its contents.
pub(super) fn merge(folder: &Path, file: &mut Json, rows: usize) -> Result<Map<String, Json>> {
    let at = |name: &str| folder.join(name).display().to_string();
    let config_name = at("tokenizer_config.json");
    let mut config = optional(folder, "tokenizer_config.json")?.unwrap_or_default();
    check_keys("tokenizer_config.json", &config_name, &config, true)?;
    let mut listed: BTreeMap<u32, Json> = BTreeMap::new();
    match config.get("added_tokens_decoder") {
        Some(Json::Object(tokens)) => {
            for (id, token) in tokens {
                let at = format!("{config_name}: added_tokens_decoder: {id}");
                let (Ok(id), Json::Object(fields)) = (id.parse(), token) else {
                    return Err(Error::bad_file(format!("{at}: no id with a token")));
                };
                check_keys("added_tokens", &at, fields, false)?;
                listed.insert(id, token.clone());
            }
        }
        Some(Json::Null) | None => {
            let name = at("special_tokens_map.json");
            let map = optional(folder, "special_tokens_map.json")?.unwrap_or_default();
            check_keys("special_tokens_map.json", &name, &map, true)?;
            overlay(&mut config, map);
            let tokens = optional(folder, "added_tokens.json")?.unwrap_or_default();
            let special: Vec<&str> =
                named(&config).filter_map(|(_, token)| content(token)).collect();
            for (text, id) in &tokens {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                let id = id.ok_or_else(|| {
                    Error::bad_file(format!("{}: {text:?} has no id", at("added_tokens.json")))
                })?;
                let special = special.contains(&text.as_str());
                let token = json!({"content": text, "special": special, "normalized": !special});
                listed.insert(id, token);
            }
            // Entries of tokenizer.json take precedence.
            for token in file["added_tokens"].as_array().into_iter().flatten() {
                let id = token["id"].as_u64().and_then(|id| u32::try_from(id).ok());
                id.and_then(|id| listed.remove(&id));
            }
        }
        Some(_) => {
            return Err(Error::bad_file(format!("{config_name}: added_tokens_decoder: no object")));
        }
    }
    let mut added = match &mut file["added_tokens"] {
        Json::Array(tokens) => std::mem::take(tokens),
        _ => Vec::new(),
    };
    for (id, mut token) in listed {
        token["id"] = id.into();
        match added.iter_mut().find(|known| content(known) == content(&token)) {
            Some(known) if known["id"] != id => {
                let theirs = &known["id"];
                return Err(Error::bad_file(format!(
                    "{}: added token {} is {id} here, in tokenizer.json {theirs}",
                    folder.display(),
                    token["content"]
                )));
            }
            Some(known) => *known = token,
            None => added.push(token),
        }
    }
    check_named(&config, &config_name)?;
    add_named(&config, &config_name, file, rows, &mut added);
    file["added_tokens"] = added.into();
    Ok(config)
}

/// Checks that the keys of special tokens have a token's text.
fn check_named(config: &Map<String, Json>, name: &str) -> Result<()> {
    let wrong = |(_, token): &(&str, &Json)| !token.is_null() && content(token).is_none();
    let mine = |(key, _): &(&str, &Json)| NAMED.contains(key) || LISTS.contains(key);
    if let Some((key, token)) = named(config).filter(mine).find(wrong) {
        return Err(Error::bad_file(format!(
            "{name}: {key}: {token:.60} is neither a text nor an object with `content`"
        )));
    }
    let is_list = |list: &&Json| !list.is_null() && !list.is_array() && !list.is_object();
    match LISTS.iter().find_map(|key| Some((key, config.get(*key).filter(is_list)?))) {
        None => Ok(()),
        Some((key, value)) => Err(Error::bad_file(format!(
            "{name}: {key}: {value:.60} is neither a list of tokens nor an object"
        ))),
    }
}

/// Adds to `added` the special tokens of the config that it does not contain. `name` is that of the
/// config, for warnings.
fn add_named(
    config: &Map<String, Json>,
    name: &str,
    file: &Json,
    rows: usize,
    added: &mut Vec<Json>,
) {
    let vocab = &file["model"]["vocab"];
    let size = vocab.as_object().map_or(vocab.as_array().map_or(0, Vec::len), Map::len) as u64;
    let id_of = |text: &str| match vocab {
        Json::Array(list) => list.iter().position(|pair| pair[0] == text).map(|id| id as u64),
        vocab => vocab.get(text).and_then(Json::as_u64),
    };
    for (key, token) in named(config) {
        let Some(text) = content(token).filter(|text| !text.is_empty()) else { continue };
        if added.iter().any(|known| content(known) == Some(text)) {
            continue;
        }
        let last = added.iter().filter_map(|token| token["id"].as_u64()).max();
        let next = last.map_or(size, |last| size.max(last + 1));
        let id = id_of(text).unwrap_or(next);
        // The embedding has no row for a larger id, so such a token stays text.
        if id >= rows as u64 {
            let last = rows.saturating_sub(1);
            tracing::warn!(
                "{name}: {key}: {text:?} is no token of the vocabulary, and the model has no row \
                 behind {last} for it: it has no effect"
            );
        } else {
            let flag = |name: &str| token.get(name).and_then(Json::as_bool).unwrap_or(false);
            added.push(json!({
                "id": id, "content": text, "special": true, "lstrip": flag("lstrip"),
                "rstrip": flag("rstrip"), "single_word": flag("single_word"),
                "normalized": flag("normalized")
            }));
        }
    }
}

/// Yields the special tokens of the config with their keys, that of the list for entries of a list.
fn named(config: &Map<String, Json>) -> impl Iterator<Item = (&str, &Json)> {
    let one = NAMED.iter().filter_map(|key| Some((*key, config.get(*key)?)));
    // The older list is used if the newer one is absent or empty.
    let newer = config.get(LISTS[0]).is_some_and(|list| match list {
        Json::Array(list) => !list.is_empty(),
        Json::Object(map) => !map.is_empty(),
        _ => false,
    });
    let lists = LISTS.iter().filter(move |key| !newer || **key != LISTS[1]);
    let several =
        lists.filter_map(|key| Some((*key, config.get(*key)?))).flat_map(|(own, list)| {
            let map = list.as_object().into_iter().flatten().map(|(_, token)| token);
            map.chain(list.as_array().into_iter().flatten()).map(move |token| (own, token))
        });
    let own = config.iter().map(|(key, token)| (key.as_str(), token));
    let own = own.filter(|(key, _)| {
        key.ends_with("_token") && !key.starts_with("add_") && !NAMED.contains(key)
    });
    one.chain(own).chain(several)
}

/// Overrides tokenizer_config.json with special_tokens_map.json.
fn overlay(config: &mut Map<String, Json>, map: Map<String, Json>) {
    for (key, mut value) in map {
        if let (true, Some(token)) = (key != LISTS[0], value.as_object_mut()) {
            token.insert("special".into(), true.into());
        }
        match (config.get_mut(&key), value) {
            (Some(Json::Array(known)), Json::Array(more)) if key == LISTS[0] => {
                more.into_iter().for_each(|token| {
                    if !known.contains(&token) {
                        known.push(token);
                    }
                });
            }
            (_, value) => drop(config.insert(key, value)),
        }
    }
}

/// Returns the text of a token, which is given as a string or as an object.
pub(super) fn content(token: &Json) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}
