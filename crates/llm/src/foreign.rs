//! Detects GGUF files that are not models: adapters, projectors, vocabularies and others.

use warploom::{Error, Result};
use warploom_models::gguf::{Gguf, Value};

/// Returns a metadata string, or `None` if the key is missing or has a different type, which other
/// checks report.
fn text<'a>(file: &'a Gguf, key: &str) -> Option<&'a str> {
    match file.value(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Refuses a GGUF file that is not a model, judged by its `general.type`, its architecture and its
/// tensors.
///
/// # Errors
/// Unsupported if the file is not a model, with the key, the kind of file, and advice.
pub(crate) fn refuse_no_model(file: &Gguf) -> Result<()> {
    let refuse = |key: &str, what: &str, advice: &str| {
        Err(Error::unsupported(format!("{}: {key}: {what}, not a model: {advice}", file.name())))
    };
    let kind = text(file, "general.type").unwrap_or("model");
    let architecture = text(file, "general.architecture").unwrap_or_default();
    let is_lora = |name: &str| name.ends_with(".lora_a") || name.ends_with(".lora_b");
    let key = if kind == "model" { "general.architecture" } else { "general.type" };
    if kind == "adapter" || file.tensors().any(|tensor| is_lora(tensor.name())) {
        let form = text(file, "adapter.type").unwrap_or("lora");
        let base = text(file, "general.base_model.0.repo_url")
            .or(text(file, "general.base_model.0.name"))
            .map(|base| format!(" ({base})"))
            .unwrap_or_default();
        let advice = format!(
            "adapters are not applied: merge it into its base model{base}, as with \
             llama-export-lora, and name the result"
        );
        return refuse(key, &format!("an adapter ({form})"), &advice);
    }
    if kind == "mmproj" || architecture == "clip" {
        let advice = "images and sound are not read: name the file of the language model that it \
                      belongs to";
        return refuse(key, "a projector (mmproj) of images or sound", advice);
    }
    let of_model = "name the file of the model that it belongs to";
    if kind == "imatrix" || architecture == "imatrix" {
        return refuse(key, "an importance matrix", of_model);
    }
    if architecture == "controlvector" {
        return refuse(key, "a control vector", of_model);
    }
    if kind == "vocab" || file.tensor_count() == 0 {
        let tokens = file.strings("tokenizer.ggml.tokens").map_or(0, Iterator::count);
        return match tokens {
            0 => refuse("tensor count", "0 tensors, metadata only", "fetch the whole file"),
            n => refuse(
                "tensor count",
                &format!("a vocabulary of {n} tokens and {} tensors", file.tensor_count()),
                "fetch the file with the weights",
            ),
        };
    }
    match kind {
        "model" => Ok(()),
        other => {
            refuse("general.type", &format!("{other:?}"), "only files of type \"model\" are run")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::{Entry, gguf};

    type Keys<'a> = &'a [(&'a str, Entry)];
    type Tensors<'a> = &'a [(&'a str, &'a [u64])];

    #[test]
    fn what_is_no_model_is_named() {
        let weights: &[(&str, &[u64])] = &[("output.weight", &[4, 4])];
        let lora: &[(&str, &[u64])] = &[("blk.0.attn_q.weight.lora_a", &[4, 4])];
        let tokens = || Entry::Texts(vec!["a".into(), "b".into()]);
        let llama = ("general.architecture", Entry::Text("llama"));
        let of = |kind: &'static str| ("general.type", Entry::Text(kind));
        let rows: [(Keys<'_>, Tensors<'_>, &str); 12] = [
            (
                &[llama.clone(), of("adapter")],
                weights,
                "general.type: an adapter (lora), not a model",
            ),
            (
                &[
                    llama.clone(),
                    of("adapter"),
                    ("adapter.type", Entry::Text("lora")),
                    ("general.base_model.0.name", Entry::Text("Base 1B")),
                ],
                lora,
                "merge it into its base model (Base 1B)",
            ),
            (std::slice::from_ref(&llama), lora, "general.architecture: an adapter (lora)"),
            (&[("general.architecture", Entry::Text("clip"))], weights, "a projector (mmproj)"),
            (&[llama.clone(), of("mmproj")], weights, "general.type: a projector (mmproj)"),
            (&[llama.clone(), of("imatrix")], weights, "an importance matrix, not a model"),
            (
                &[("general.architecture", Entry::Text("controlvector"))],
                weights,
                "a control vector",
            ),
            (
                &[llama.clone(), ("tokenizer.ggml.tokens", tokens())],
                &[],
                "tensor count: a vocabulary of 2 tokens and 0 tensors, not a model",
            ),
            (
                &[llama.clone(), of("vocab"), ("tokenizer.ggml.tokens", tokens())],
                weights,
                "a vocabulary",
            ),
            (std::slice::from_ref(&llama), &[], "tensor count: 0 tensors, metadata only"),
            (&[], &[], "tensor count: 0 tensors"),
            (&[llama.clone(), of("dataset")], weights, "general.type: \"dataset\", not a model"),
        ];
        for (keys, tensors, words) in rows {
            let file = gguf(keys, tensors);
            let error = refuse_no_model(&file).unwrap_err();
            assert!(
                error.is_unsupported() && error.to_string().contains(words),
                "{words}: {error}"
            );
            assert!(error.to_string().starts_with("test.gguf: "), "{error}");
            // Opening the file as a model reports the same error.
            let opened = crate::Model::from_gguf(file).unwrap_err();
            assert_eq!(opened.to_string(), error.to_string());
        }
        for keys in [
            &[llama.clone(), of("model")][..],
            &[llama],
            &[],
            &[("general.type", Entry::Integer(3))],
        ] {
            assert!(refuse_no_model(&gguf(keys, weights)).is_ok(), "{keys:?}");
        }
    }
}
