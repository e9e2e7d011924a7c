//! Refuses parts of a tokenizer.json that would make `tokenizers` panic or loop, and converts the
//! rest for that library.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use super::keys::{model_kind, object};
use super::regex::translated;
use warploom::{Error, Result};

/// Returns the tokens of the model with their ids.
///
/// # Errors
/// Bad file, naming the token or element, if the vocabulary is not valid.
pub(crate) fn model_tokens(model: &Map<String, Json>) -> Result<Vec<(&str, u32)>> {
    let id_of = |id: Option<u64>, token: &str| {
        id.and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
            Error::bad_file(format!("model: vocab: the id of {token:?} is not an id"))
        })
    };
    match model.get("vocab") {
        Some(Json::Object(vocab)) => {
            vocab.iter().map(|(text, id)| Ok((text.as_str(), id_of(id.as_u64(), text)?))).collect()
        }
        Some(Json::Array(vocab)) => vocab
            .iter()
            .enumerate()
            .map(|(index, pair)| {
                let text = pair.get(0).and_then(Json::as_str);
                let (Some(text), Some(_)) = (text, pair.get(1).and_then(Json::as_f64)) else {
                    return Err(Error::bad_file(format!(
                        "model: vocab: element {index} is not a pair of a text and a score"
                    )));
                };
                Ok((text, id_of(Some(index as u64), text)?))
            })
            .collect(),
        _ => Err(Error::bad_file("model: vocab: neither a map nor a list")),
    }
}

/// Parses a merge, in the format of old or new files. Returns `None` if it is not a pair, such as
/// an empty line or the version line of an old file.
pub(crate) fn merge(merge: &Json) -> Option<[&str; 2]> {
    match merge {
        Json::String(text) if text.starts_with("#version") => None,
        Json::String(text) => text.split_once(' ').map(|(a, b)| [a, b]),
        _ => Some([merge.get(0)?.as_str()?, merge.get(1)?.as_str()?]),
    }
}

/// Converts a file to one that `tokenizers` accepts: removes parts that encoding does not need, and
/// adds required defaults.
///
/// # Errors
/// Bad file or unsupported, naming the part, if the library cannot handle it.
pub(super) fn for_library(file: &Json) -> Result<Json> {
    let mut model = object(&file["model"], "model")?.clone();
    let kind = model_kind(&model)?;
    model.insert("type".into(), kind.into());
    check_model(kind, &mut model)?;
    let mut added = file.get("added_tokens").cloned().unwrap_or_default();
    for token in added.as_array_mut().into_iter().flatten() {
        let Some(token) = token.as_object_mut() else { continue };
        let special = token.get("special").and_then(Json::as_bool).unwrap_or(false);
        token.remove("__type");
        let flags = [("single_word", false), ("lstrip", false), ("rstrip", false)];
        for (flag, value) in flags.into_iter().chain([("normalized", !special), ("special", false)])
        {
            token.entry(flag).or_insert(value.into());
        }
    }
    let mut parts = [Json::Null, Json::Null];
    for (part, (name, steps)) in
        parts.iter_mut().zip([("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")])
    {
        *part = file.get(name).cloned().unwrap_or_default();
        check_step(name, steps, part).map_err(|e| e.context(name))?;
    }
    let [normalizer, pre_tokenizer] = parts;
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": if added.is_null() { json!([]) } else { added },
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": null, "model": model,
    }))
}

fn check_model(kind: &str, model: &mut Map<String, Json>) -> Result<()> {
    let bad = |what: String| Err(Error::bad_file(format!("model {kind}: {what}")));
    let prefix = model.get("continuing_subword_prefix").and_then(Json::as_str).unwrap_or("");
    let tokens: HashSet<&str> = model_tokens(model)?.into_iter().map(|(text, _)| text).collect();
    match kind {
        "BPE" => {
            let Some(merges) = model.get("merges").and_then(Json::as_array) else {
                return bad("merges: not a list".into());
            };
            let mut joined = String::new();
            for (index, json) in merges.iter().enumerate() {
                let Some([a, b]) = merge(json) else {
                    if json.as_str().is_some_and(|t| t.is_empty() || t.starts_with("#version")) {
                        continue;
                    }
                    return bad(format!("merges: element {index}, {json}, is not a pair"));
                };
                joined.clear();
                joined.push_str(a);
                joined.push_str(b.strip_prefix(prefix).unwrap_or(b));
                let known = [a, b, joined.as_str()].into_iter().find(|t| !tokens.contains(t));
                if let Some(text) = known {
                    return bad(format!(
                        "merges: element {index} names {text:?}, which is not a token"
                    ));
                }
                if !b.starts_with(prefix) {
                    return bad(format!(
                        "merges: element {index}: {b:?} lacks the prefix of words"
                    ));
                }
            }
            let pairs: Vec<Json> = merges.iter().filter_map(merge).map(|p| json!(p)).collect();
            model.insert("merges".into(), pairs.into());
            let unk = model.get("unk_token").and_then(Json::as_str);
            if let Some(unk) = unk.filter(|unk| !unk.is_empty()) {
                let vocab = &model["vocab"];
                if vocab.get(unk).is_none() {
                    return bad(format!("unk_token: {unk:?} is not a token"));
                }
            }
        }
        "Unigram" if tokens.contains("") => return bad("vocab: an empty token".into()),
        "WordPiece" => {
            model.entry("continuing_subword_prefix").or_insert("##".into());
            model.entry("max_input_chars_per_word").or_insert(100.into());
            model.entry("unk_token").or_insert("[UNK]".into());
        }
        "WordLevel" => {
            model.entry("unk_token").or_insert("<unk>".into());
        }
        _ => {}
    }
    Ok(())
}

/// Checks a normaliser or pre-tokenizer and its steps, and translates their regular expressions to
/// the syntax of the engine that runs them.
fn check_step(part: &str, steps: &str, step: &mut Json) -> Result<()> {
    for inner in step.get_mut(steps).and_then(Json::as_array_mut).into_iter().flatten() {
        check_step(part, steps, inner)?;
    }
    if let Some(pattern) = step.pointer_mut("/pattern/Regex") {
        *pattern = translated(pattern.as_str().unwrap_or_default())?.into();
    }
    let kind = step.get("type").and_then(Json::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("FixedLength") if step.get("length").is_some_and(|n| n.as_u64() == Some(0)) => {
            Err(Error::bad_file("FixedLength: length: 0"))
        }
        Some("ByteLevel") if part == "pre_tokenizer" => {
            if let Some(step) = step.as_object_mut() {
                step.entry("trim_offsets").or_insert(true.into());
                step.entry("add_prefix_space").or_insert(true.into());
            }
            Ok(())
        }
        Some("Split") => {
            if let Some(step) = step.as_object_mut() {
                step.entry("invert").or_insert(false.into());
            }
            Ok(())
        }
        Some("Precompiled") => {
            let map = step.get("precompiled_charsmap").and_then(Json::as_str).unwrap_or_default();
            check_charsmap(map)
        }
        _ => Ok(()),
    }
}

/// Checks that lookups in a compiled character map stay in bounds for every text.
fn check_charsmap(text: &str) -> Result<()> {
    let bad = |what: &str| Error::bad_file(format!("Precompiled: precompiled_charsmap: {what}"));
    let bytes = base64(text).ok_or_else(|| bad("no base64"))?;
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| bad("no size"))?;
    let size = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (trie, texts) = rest.split_at_checked(size).ok_or_else(|| bad("its trie is cut off"))?;
    let texts = std::str::from_utf8(texts).map_err(|_| bad("its texts are no UTF-8"))?;
    let units: Vec<usize> = trie
        .chunks_exact(4)
        .map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]]) as usize)
        .collect();
    let offset = |unit: usize| (unit >> 10) << ((unit & (1 << 9)) >> 6);
    let root = *units.first().ok_or_else(|| bad("its trie is empty"))?;
    let mut seen = HashSet::new();
    let mut open = vec![offset(root)];
    while let Some(node) = open.pop() {
        if !seen.insert(node) {
            continue;
        }
        if node | 0xff >= units.len() {
            return Err(bad("its trie leads out of it"));
        }
        for c in 1..=0xff_usize {
            let unit = units[node ^ c];
            if unit & (1 << 31 | 0xff) != c {
                continue;
            }
            let child = node ^ c ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let leaf = units.get(child).ok_or_else(|| bad("its trie leads out of it"))?;
                if !texts.is_char_boundary(leaf & ((1 << 31) - 1)) {
                    return Err(bad("a text of it is elsewhere"));
                }
            }
            open.push(child);
        }
    }
    Ok(())
}

/// Decodes padded base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bits, mut held) = (0u32, 0);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    Some(out)
}
