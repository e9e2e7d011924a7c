//! Reads the chat templates of a folder, in order of precedence.
//!
//! `transformers` saves them in separate files, which it reads first: `chat_template.jinja`, and
//! named ones in `additional_chat_templates`. Without these, it uses `chat_template` of
//! `tokenizer_config.json`, which is a template or a list of named templates. The last choice is
//! `chat_template.json` of older processors.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use super::{json, text};
use warploom::{Error, Result};
use warploom_models::gguf::{Value, Writer};

const FILE: &str = "chat_template.jinja";
const FOLDER: &str = "additional_chat_templates";
const OLD_FILE: &str = "chat_template.json";
/// The name of the default template.
const DEFAULT: &str = "default";
/// GGUF key of the default template, and prefix of the keys of the others.
const KEY: &str = "tokenizer.chat_template";
/// GGUF key of the names of the other templates.
const NAMES_KEY: &str = "tokenizer.chat_templates";
/// Maximum number of named templates; existing models have up to three.
const MAX_NAMED: usize = 64;

/// Templates by name.
type Templates = BTreeMap<String, String>;

/// Writes the templates under the GGUF keys that llama.cpp's converter uses. `config` is the parsed
/// `tokenizer_config.json`.
///
/// # Errors
/// Io if a file cannot be read; bad file, naming file and field, for an invalid entry or too many
/// templates.
pub(super) fn describe(folder: &Path, config: &Json, to: &mut Writer) -> Result<()> {
    let mut templates = read(folder, config)?;
    let default = templates.remove(DEFAULT);
    if templates.len() > MAX_NAMED {
        let (folder, count) = (folder.display(), templates.len());
        return Err(Error::bad_file(format!(
            "{folder}: {count} chat templates, the limit is {MAX_NAMED}"
        )));
    }
    if let Some(default) = &default {
        to.key(KEY, Value::String(default))?;
    }
    for (name, template) in &templates {
        to.key(&format!("{KEY}.{name}"), Value::String(template))?;
    }
    if !templates.is_empty() {
        let names: Vec<&str> = templates.keys().map(String::as_str).collect();
        to.strings(NAMES_KEY, names.into_iter())?;
    }
    Ok(())
}

fn read(folder: &Path, config: &Json) -> Result<Templates> {
    let mut files = Templates::new();
    let path = folder.join(FILE);
    if path.exists() {
        files.insert(DEFAULT.to_owned(), text(&path)?);
    }
    let path = folder.join(FOLDER);
    if path.is_dir() {
        let bad = |e| Error::io(format!("{}: cannot list it", path.display()), e);
        for entry in std::fs::read_dir(&path).map_err(bad)? {
            let path = entry.map_err(bad)?.path();
            if path.extension().is_none_or(|extension| extension != "jinja") {
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let name = checked(stem, &path.display().to_string())?;
            files.insert(name, text(&path)?);
        }
    }
    if !files.is_empty() {
        return Ok(files);
    }
    let place = folder.join("tokenizer_config.json").display().to_string();
    let templates = of_field(config.get("chat_template"), &place)?;
    let path = folder.join(OLD_FILE);
    if !templates.is_empty() || !path.exists() {
        return Ok(templates);
    }
    let place = path.display().to_string();
    let old: Json = json(&path)?;
    let templates = of_field(old.get("chat_template"), &place)?;
    match templates.is_empty() {
        true => Err(Error::bad_file(format!("{place}: no chat_template"))),
        false => Ok(templates),
    }
}

/// Reads a `chat_template` field: a template, a list of named templates, or an object that maps
/// names to templates.
fn of_field(field: Option<&Json>, place: &str) -> Result<Templates> {
    let bad = |what: &str| Error::bad_file(format!("{place}: chat_template: {what}"));
    let one = |name: &Json, template: &Json| match (name.as_str(), template.as_str()) {
        (Some(name), Some(template)) => Ok((checked(name, place)?, template.to_owned())),
        _ => Err(bad("an entry without a text for name and template")),
    };
    match field {
        None | Some(Json::Null) => Ok(Templates::new()),
        Some(Json::String(template)) => {
            Ok(Templates::from([(DEFAULT.to_owned(), template.clone())]))
        }
        Some(Json::Array(list)) => {
            let empty = Json::Null;
            let get = |entry: &Json, key: &str| entry.get(key).cloned().unwrap_or(empty.clone());
            // Of two templates with the same name, the last is used.
            list.iter().map(|entry| one(&get(entry, "name"), &get(entry, "template"))).collect()
        }
        Some(Json::Object(pairs)) => {
            pairs.iter().map(|(name, text)| one(&Json::String(name.clone()), text)).collect()
        }
        Some(_) => Err(bad("neither a text nor a list")),
    }
}

/// Checks that a name is valid as part of a key.
fn checked(name: &str, place: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        true => Ok(name.to_owned()),
        false => Err(Error::bad_file(format!(
            "{place}: chat template {name:.80?}: a name has up to 64 letters, digits, _, - and ."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use warploom_models::gguf::Gguf;

    /// Writes the keys of a folder with these files and reads them back.
    fn keys(test: &str, files: &[(&str, &str)], config: &Json) -> Result<Gguf> {
        let folder =
            std::env::temp_dir().join(format!("warploom-templates-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join(FOLDER)).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut writer = Writer::new();
        let described = describe(&folder, config, &mut writer);
        std::fs::remove_dir_all(&folder).unwrap();
        described?;
        Gguf::from_bytes(writer.begin(Vec::new())?.finish()?, "made")
    }

    fn found(gguf: &Gguf, name: &str) -> Option<String> {
        let key = if name.is_empty() { KEY.to_owned() } else { format!("{KEY}.{name}") };
        gguf.find_str(&key).unwrap().map(str::to_owned)
    }

    #[test]
    fn the_files_count_before_the_config_and_the_old_file_last() {
        let text = json!({"chat_template": "config"});
        let list = json!({"chat_template": [
            {"name": "default", "template": "config"}, {"name": "tool_use", "template": "tools"},
            {"name": "tool_use", "template": "last"}
        ]});
        let (jinja, old) = ((FILE, "file"), (OLD_FILE, r#"{"chat_template": "old"}"#));
        let rag = ("additional_chat_templates/rag.jinja", "rag");
        let other = ("additional_chat_templates/notes.txt", "none");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a Json, [Option<&'a str>; 3]);
        let nothing = json!({"chat_template": null});
        let rows: [Row<'_>; 9] = [
            (&[], &nothing, [None; 3]),
            (&[old], &nothing, [Some("old"), None, None]),
            (&[old], &text, [Some("config"), None, None]),
            (&[], &list, [Some("config"), Some("last"), None]),
            (&[jinja, old], &text, [Some("file"), None, None]),
            // The templates of the config are used only together.
            (&[jinja, other], &list, [Some("file"), None, None]),
            (&[jinja, rag], &list, [Some("file"), None, Some("rag")]),
            (&[rag], &text, [None, None, Some("rag")]),
            (&[other], &json!({"chat_template": {"tool_use": "t"}}), [None, Some("t"), None]),
        ];
        for (index, (files, config, want)) in rows.iter().enumerate() {
            let gguf = keys(&format!("order-{index}"), files, config).unwrap();
            let got = ["", "tool_use", "rag"].map(|name| found(&gguf, name));
            assert_eq!(got, want.map(|text| text.map(str::to_owned)), "row {index}");
            let named = want.iter().skip(1).flatten().count();
            let names = gguf.find_strings(NAMES_KEY).unwrap().map_or(0, |names| names.count());
            assert_eq!(names, named, "row {index}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused_by_name() {
        let rows = [
            (json!({"chat_template": 5}), "neither a text nor a list"),
            (json!({"chat_template": [{"name": "a"}]}), "an entry without a text"),
            (json!({"chat_template": ["text"]}), "an entry without a text"),
            (json!({"chat_template": [{"name": "a b", "template": "x"}]}), "\"a b\""),
        ];
        for (index, (config, words)) in rows.iter().enumerate() {
            let error = keys(&format!("bad-{index}"), &[], config).unwrap_err().to_string();
            assert!(error.contains("tokenizer_config.json") && error.contains(words), "{error}");
        }
        let error = keys("old", &[(OLD_FILE, "{}")], &json!({})).unwrap_err().to_string();
        assert!(error.contains(OLD_FILE), "{error}");
    }
}
