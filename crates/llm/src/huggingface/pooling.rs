//! Reads how sentence-transformers makes one vector of a text: `modules.json`, and the config of its
//! pooling.

use std::path::{Path, PathBuf};

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

/// Most dense layers, `dense_2` and `dense_3` of GGUF.
const MOST_DENSE: usize = 2;

/// GGUF's `pooling_type` of rerankers.
pub(super) const SCORE: u32 = 4;

/// How a folder makes one vector of a text.
#[derive(Default)]
pub(super) struct Modules {
    /// GGUF's `pooling_type`; `None` if the folder has no `modules.json`.
    pub(super) kind: Option<u32>,
    /// Folders of the dense layers after it, in their order.
    pub(super) dense: Vec<PathBuf>,
}

/// The config of a dense layer.
#[derive(Deserialize)]
struct Dense {
    bias: Option<bool>,
    activation_function: Option<String>,
}

/// Reads how a folder makes one vector of a text. `dense` is whether dense layers may follow.
///
/// # Errors
/// Unsupported, naming the file, for other modules than a model, a pooling, dense layers and a
/// normalisation, for other modes of pooling, and for dense layers with a bias or an activation
/// function; bad file for what is no such file.
pub(super) fn read(folder: &Path, dense: bool) -> Result<Modules> {
    let path = folder.join("modules.json");
    let mut found = Modules::default();
    if !path.is_file() {
        return Ok(found);
    }
    let modules: Vec<Module> = json(&path)?;
    for module in modules {
        match module.kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "Normalize" => {}
            "Pooling" => found.kind = Some(mode(folder, &module.path)?),
            "Dense" if dense && found.dense.len() < MOST_DENSE => {
                found.dense.push(dense_at(folder, &module.path)?);
            }
            other => {
                let more = if dense { ", up to two of Dense" } else { "" };
                return Err(Error::unsupported(format!(
                    "{}: a module {other} in {:?}; known: Transformer, Pooling, Normalize{more}",
                    path.display(),
                    module.path
                )));
            }
        }
    }
    Ok(found)
}

/// Returns the folder of a dense layer, which is checked.
fn dense_at(folder: &Path, path: &str) -> Result<PathBuf> {
    let place = inner(folder, path)?;
    let file = place.join("config.json");
    let Dense { bias, activation_function } = json(&file)?;
    let refuse = |what: String| Err(Error::unsupported(format!("{}: {what}", file.display())));
    if bias == Some(true) {
        return refuse("bias: true is not supported".into());
    }
    match activation_function.as_deref() {
        None => Ok(place),
        Some(name) if name.ends_with(".Identity") => Ok(place),
        Some(name) => refuse(format!("activation_function: {name:?} is not supported")),
    }
}

/// Returns a folder of the model's folder, by its name.
fn inner(folder: &Path, path: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if path.is_empty() || !path.chars().all(plain) || path.starts_with('.') {
        let file = folder.join("modules.json");
        return Err(Error::bad_file(format!(
            "{}: path: {path:?} is not the name of a folder",
            file.display()
        )));
    }
    Ok(folder.join(path))
}

/// Returns the `pooling_type` of the config in a folder of the model's folder.
fn mode(folder: &Path, path: &str) -> Result<u32> {
    let file = inner(folder, path)?.join("config.json");
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
