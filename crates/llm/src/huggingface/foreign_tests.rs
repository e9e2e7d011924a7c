//! Tests the errors for folders without a model.

use std::path::{Path, PathBuf};

use super::super::Folder;

struct Temporary(PathBuf);

impl Temporary {
    /// Creates a folder with these files.
    fn new(name: &str, files: &[(&str, &[u8])]) -> Temporary {
        let path = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        for (name, bytes) in files {
            std::fs::write(path.join(name), bytes).unwrap();
        }
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused(path: &Path) -> String {
    Folder::open(path).unwrap_err().to_string()
}

const CONFIG: &[u8] = br#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "vocab_size": 32}"#;
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 5\n";
const PAGE: &[u8] = b"<!DOCTYPE html><html><head><title>x</title>";

#[test]
fn a_folder_without_a_model_is_named() {
    let adapter = br#"{"base_model_name_or_path": "org/base-1b", "peft_type": "LORA"}"#;
    let bin = "pytorch_model.bin is not read, only safetensors";
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let rows: [(Files<'_>, &str); 16] = [
        (&[], "no config.json: a folder must be that of a Hugging Face model"),
        (&[("readme.txt", b"x")], "no config.json: a folder must be"),
        (
            &[("adapter_config.json", adapter), ("adapter_model.safetensors", b"x")],
            "an adapter (LoRA), not a model",
        ),
        (&[("adapter_config.json", adapter)], "its base model (org/base-1b)"),
        (
            &[("adapter_config.json", b"broken"), ("config.json", CONFIG)],
            "an adapter (LoRA), not a model",
        ),
        (
            &[("a.gguf", b"x"), ("b.gguf", b"x")],
            "no config.json, but GGUF files (a.gguf, b.gguf): name one",
        ),
        (
            &[("config.json", CONFIG), ("m-Q4.gguf", b"x")],
            "no model.safetensors, but GGUF files (m-Q4.gguf)",
        ),
        (&[("config.json", CONFIG), ("pytorch_model.bin", b"x")], bin),
        (&[("pytorch_model.bin", b"x")], bin),
        (
            &[
                ("config.json", CONFIG),
                ("pytorch_model-00001-of-00002.bin", b"x"),
                ("pytorch_model-00002-of-00002.bin", b"x"),
            ],
            "pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin is not read, only safetensors",
        ),
        (
            &[("consolidated.00.pth", b"x"), ("params.json", b"{}")],
            "consolidated.00.pth is not read",
        ),
        (
            &[("config.json", CONFIG), ("flax_model.msgpack", b"x")],
            "flax_model.msgpack is not read",
        ),
        (&[("model_index.json", b"{}")], "a pipeline of diffusers"),
        (&[("model.safetensors", b"x")], "no config.json with model.safetensors"),
        (&[("config.json", CONFIG)], "no model.safetensors: the folder has no weights"),
        (
            &[("config.json", CONFIG), ("weights.safetensors", b"x")],
            "weights.safetensors is not read without that list",
        ),
    ];
    for (index, (files, words)) in rows.into_iter().enumerate() {
        let folder = Temporary::new(&format!("foreign-{index}"), files);
        let got = refused(&folder.0);
        assert!(got.contains(words), "{words:?}: {got}");
        assert!(got.starts_with(&folder.0.display().to_string()), "{got}");
    }
}

#[test]
fn a_file_in_the_place_of_another_is_named() {
    let zip: &[u8] =
        b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl";
    let short = [&1000u64.to_le_bytes()[..], b"{\"a\":"].concat();
    let wide: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(CONFIG.iter().flat_map(|b| [*b, 0])).collect();
    let rows: [(&str, &[u8], &str); 11] = [
        (
            "model.safetensors",
            POINTER,
            "model.safetensors: a Git LFS pointer: fetch the file with git lfs pull",
        ),
        ("model.safetensors", PAGE, "model.safetensors: a web page, not a model"),
        (
            "model.safetensors",
            b"GGUF\x03\0\0\0\0\0\0\0",
            "model.safetensors: a GGUF file: give it a name",
        ),
        ("model.safetensors", zip, "model.safetensors: a PyTorch checkpoint"),
        ("model.safetensors", b"", "model.safetensors: an empty file"),
        ("model.safetensors", &short, "header length at byte 0: 1000"),
        ("config.json", POINTER, "config.json: a Git LFS pointer"),
        ("config.json", PAGE, "config.json: a web page"),
        ("config.json", &wide, "config.json: text in UTF-16, which is not read: save it as UTF-8"),
        (
            "config.json",
            b"{\"a\": \"\xe9\"}",
            "config.json: byte 7 and those behind it are no text",
        ),
        ("model.safetensors.index.json", POINTER, "index.json: a Git LFS pointer"),
    ];
    for (index, (name, bytes, words)) in rows.into_iter().enumerate() {
        let files: [(&str, &[u8]); 2] = [("config.json", CONFIG), (name, bytes)];
        let folder = Temporary::new(&format!("stand-in-{index}"), &files);
        for path in [folder.0.clone(), folder.0.join(name)] {
            let got = refused(&path);
            assert!(got.contains(words), "{words:?}: {got}");
        }
    }
}
