//! Errors for folders without a readable model, based on their contents.

use std::path::Path;

use warploom::Error;
use warploom_models::gguf::foreign::{SAFETENSORS, recognise};

/// Maximum number of folder entries that are examined.
const MAX_ENTRIES: usize = 4096;
/// Maximum size of an adapter's config, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

/// Weight files in unsupported formats: prefix and suffix of their names.
const OTHER_WEIGHTS: &[(&str, &str)] = &[
    ("pytorch_model", ".bin"),
    ("pytorch_model", ".bin.index.json"),
    ("consolidated", ".pth"),
    ("", ".pth"),
    ("", ".pt"),
    ("", ".ckpt"),
    ("tf_model", ".h5"),
    ("flax_model", ".msgpack"),
    ("", ".onnx"),
    ("rust_model", ".ot"),
    ("", ".bin"),
];

/// Returns the sorted names of the files in a folder.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.take(MAX_ENTRIES).flatten();
    let mut names: Vec<String> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Joins the first four names with commas.
fn listed(names: &[&str]) -> String {
    let more = if names.len() > 4 { ", .." } else { "" };
    format!("{}{more}", names[..names.len().min(4)].join(", "))
}

/// Returns the error for a folder without `missing` (`config.json` or the weights), with advice.
pub(super) fn without(folder: &Path, missing: &str) -> Error {
    let names = entries(folder);
    let has = |name: &str| names.iter().any(|n| n == name);
    let with = |start: &str, end: &str| -> Vec<&str> {
        let fits = |n: &&str| n.starts_with(start) && n.ends_with(end);
        names.iter().map(String::as_str).filter(fits).collect()
    };
    let bad = |what: String| Error::bad_file(format!("{}: {what}", folder.display()));
    if has("adapter_config.json") {
        let base = base_of(&folder.join("adapter_config.json"));
        let base = base.map(|base| format!(" ({base})")).unwrap_or_default();
        return bad(format!(
            "adapter_config.json: an adapter (LoRA), not a model: adapters are not applied: merge it \
             into its base model{base}, as with merge_and_unload() of peft, and name the folder that \
             save_pretrained() writes"
        ));
    }
    let gguf = with("", ".gguf");
    if !gguf.is_empty() {
        let file = folder.join(gguf[0]);
        return bad(format!(
            "no {missing}, but GGUF files ({}): name one of them, such as {}",
            listed(&gguf),
            file.display()
        ));
    }
    let others = OTHER_WEIGHTS.iter().map(|(start, end)| with(start, end));
    if let Some(others) = others.into_iter().find(|found| !found.is_empty()) {
        return bad(format!(
            "no {missing}: {} is not read, only safetensors: take the model's safetensors, or write \
             them with save_pretrained()",
            listed(&others)
        ));
    }
    if has("model_index.json") {
        return bad("model_index.json: a pipeline of diffusers, which is not supported".to_owned());
    }
    let weights = with("", ".safetensors");
    match (missing, weights.is_empty()) {
        ("config.json", true) => {
            bad("no config.json: a folder must be that of a Hugging Face model, with config.json, \
             tokenizer.json and model.safetensors"
                .to_owned())
        }
        ("config.json", false) => bad(format!(
            "no config.json with {}: weights alone do not describe a model; fetch its other \
             files too",
            listed(&weights)
        )),
        (_, true) => bad(format!("no {missing}: the folder has no weights; fetch them too")),
        (_, false) => bad(format!(
            "no {missing} and no model.safetensors.index.json: {} is not read without that list; \
             fetch it too",
            listed(&weights)
        )),
    }
}

/// Returns the base model that an adapter's config names.
fn base_of(path: &Path) -> Option<String> {
    if std::fs::metadata(path).ok()?.len() > MAX_CONFIG {
        return None;
    }
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(config.get("base_model_name_or_path")?.as_str()?.chars().take(200).collect())
}

/// Returns the error for a weight file; if its contents are recognised as a different format, names
/// that format.
pub(super) fn weights(path: &Path, error: Error) -> Error {
    use std::io::Read;
    if !error.is_bad_file() {
        return error;
    }
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(64 << 10).read_to_end(&mut head));
    let name = path.display().to_string();
    match read.ok().and_then(|_| recognise(&head, &name)) {
        Some(found) if found.what != SAFETENSORS => Error::bad_file(format!("{name}: {found}")),
        _ => error,
    }
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
