//! Reads how sentence-transformers makes one vector of a text: `modules.json`, and the config of its
//! pooling.

use std::path::Path;

use serde::Deserialize;

use super::json;
use warploom::{Error, Result};

/// A module of `modules.json`.
#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The modes that are supported, and GGUF's `pooling_type` of each.
const MODES: [(&str, u32); 3] =
    [("pooling_mode_mean_tokens", 1), ("pooling_mode_cls_token", 2), ("pooling_mode_lasttoken", 3)];

/// GGUF's `pooling_type` of rerankers.
pub(super) const SCORE: u32 = 4;

/// Returns GGUF's `pooling_type` of a folder; `None` if it has no `modules.json`.
///
/// # Errors
/// Unsupported, naming the file, for other modules than a model, a pooling and a normalisation, and
/// for other modes of pooling; bad file for what is no such file.
pub(super) fn read(folder: &Path) -> Result<Option<u32>> {
    let path = folder.join("modules.json");
    if !path.is_file() {
        return Ok(None);
    }
    let modules: Vec<Module> = json(&path)?;
    let mut found = None;
    for module in modules {
        match module.kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "Normalize" => {}
            "Pooling" => found = Some(mode(folder, &module.path)?),
            other => {
                return Err(Error::unsupported(format!(
                    "{}: a module {other} in {:?}; known: Transformer, Pooling, Normalize",
                    path.display(),
                    module.path
                )));
            }
        }
    }
    Ok(found)
}

/// Returns the `pooling_type` of the config in a folder of the model's folder.
fn mode(folder: &Path, path: &str) -> Result<u32> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if path.is_empty() || !path.chars().all(plain) || path.starts_with('.') {
        let file = folder.join("modules.json");
        return Err(Error::bad_file(format!(
            "{}: path: {path:?} is not the name of a folder",
            file.display()
        )));
    }
    let file = folder.join(path).join("config.json");
    let config: serde_json::Map<String, serde_json::Value> = json(&file)?;
    let named = "pooling_mode_";
    let set = |(name, value): &(&String, &serde_json::Value)| {
        name.starts_with(named) && **value == serde_json::Value::Bool(true)
    };
    let modes: Vec<&str> = config.iter().filter(set).map(|(name, _)| name.as_str()).collect();
    let known = |mode: &str| MODES.iter().find(|(name, _)| *name == mode).map(|(_, kind)| *kind);
    match modes[..] {
        [mode] if known(mode).is_some() => Ok(known(mode).unwrap_or_default()),
        _ => {
            let known = MODES.map(|(name, _)| name).join(", ");
            Err(Error::unsupported(format!(
                "{}: {modes:?}; known is one of {known}",
                file.display()
            )))
        }
    }
}
