//! Folders of tiny models whose weights a formula gives (`tests/golden/architectures`), as `transformers`
//! writes them.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::architecture_files::{label, number, sources, tensor};

/// A folder that is removed on drop.
pub(super) struct Temporary(pub(super) PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder that `transformers` would write, except for the tokenizer.
pub(super) fn folder(model: &Json) -> Temporary {
    let place = std::env::temp_dir();
    let label = label(model).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let place = place.join(format!("warploom-arch-{label}-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let write = |file: &str, bytes: &[u8]| std::fs::write(place.join(file), bytes).unwrap();
    write("config.json", model["config"].to_string().as_bytes());
    let vocabulary = number(model, "vocab_size").unwrap();
    let vocab: serde_json::Map<String, Json> =
        (0..vocabulary).map(|i| (format!("t{i}"), json!(i))).collect();
    let tokenizer = json!({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}
    });
    write("tokenizer.json", tokenizer.to_string().as_bytes());
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    // Dense layers have folders of their own.
    for source in sources(model).into_iter().filter(|source| !source.starts_with("dense_")) {
        let (shape, values) = tensor(model, &source);
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(source, entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(data);
    write("model.safetensors", &bytes);
    Temporary(place)
}
