//! Vectors and scores by tiny models with the network of a decoder (`tests/golden/architectures`):
//! against Python's `transformers`, as `encoders` has those of BERT's kin.

use serde_json::{Value as Json, json};
use warploom::runtime::Runtime;
use warploom_llm::config::Pooling;
use warploom_llm::{Embedder, Model, TextKind};
use warploom_models::gguf::{Access, Gguf};

use super::architecture_files::{gguf_with, name, tensor};
use super::architecture_folders::{Temporary, folder};
use super::architectures::difference;
use super::encoders::{ELEMENT, file, gguf, golden, run};
use crate::gguf_writer::{Meta, Writer};
use crate::{devices, tell};

/// Language models give the vector of the last token, as Qwen3-Embedding has it.
#[test]
fn a_language_model_gives_the_vectors_of_transformers_on_every_device() {
    let (_, texts) = golden();
    let row = &file()["decoders"][0];
    for (device, runtime) in devices::every(true) {
        let model = Model::from_gguf(gguf(row, &[])).unwrap();
        assert_eq!(model.config().pooling, Pooling::Last);
        let most = run(&runtime, &model, row, &texts);
        tell(&format!("decoder as encoder: {device}: {} {most:.1e}", name(row)));
    }
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let place = folder(row);
    let model = Model::open(&place.0, Access::Mmap).unwrap();
    run(&runtime, &model, row, &texts);
    let embedder = Embedder::builder(model).runtime(runtime.clone()).build().unwrap();
    let query = embedder.prompted(TextKind::Query, "who wrote Faust").unwrap();
    assert!(
        query.starts_with("Instruct: ") && query.ends_with("\nQuery:who wrote Faust"),
        "{query}"
    );
    assert_eq!(embedder.prompted(TextKind::Document, "a").unwrap(), "a");
    let (models, _) = golden();
    let model = Model::from_gguf(gguf(&models[0], &[])).unwrap();
    let bert = Embedder::builder(model).runtime(runtime).build().unwrap();
    let error = bert.prompted(TextKind::Query, "a").unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("architecture bert"), "{error}");
}

/// Qwen3-Reranker answers yes or no: by a layer of the file as llama.cpp's converter writes it, or by
/// the rows of the output matrix.
#[test]
fn answers_of_a_language_model_are_the_scores_of_transformers_on_every_device() {
    let row = &file()["answers"][0];
    let want: Vec<f64> = serde_json::from_value(row["scores"].clone()).unwrap();
    let questions: Vec<[String; 2]> = serde_json::from_value(row["questions"].clone()).unwrap();
    let tokens: Vec<String> = serde_json::from_value(row["tokens"].clone()).unwrap();
    let (shape, embedding) = tensor(row, "model.embed_tokens.weight");
    let d = shape[1] as usize;
    let of = |word: &str| tokens.iter().position(|token| token == word).unwrap() * d;
    let rows = ["yes", "no"].map(of).map(|at| embedding[at..at + d].to_vec()).concat();
    let layer = [("cls.output.weight", [2, shape[1]], rows)];
    let score = ("pooling_type", Meta::U32(4));
    let open = |file: Writer| {
        Model::from_gguf(Gguf::from_bytes(file.write().bytes, "answers").unwrap()).unwrap()
    };
    let models = [open(gguf_with(row, &[score], &layer)), open(gguf_with(row, &[], &[]))];
    assert_eq!(models.each_ref().map(|m| m.config().pooling), [Pooling::Score, Pooling::Last]);
    for (device, runtime) in devices::every(true) {
        for model in &models {
            let builder = Embedder::builder(model.clone()).runtime(runtime.clone());
            let mut embedder = builder.pooling(Pooling::Score).build().unwrap();
            let score = |[query, text]: &[String; 2]| embedder.rerank(query, &[text]).unwrap()[0];
            let got: Vec<f64> = questions.iter().map(score).map(f64::from).collect();
            let difference = difference(&want, got.iter().copied());
            assert!(difference <= ELEMENT, "{device}: {got:?} {want:?}");
        }
    }
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let builder = || Embedder::builder(models[0].clone()).runtime(runtime.clone());
    let long = "cat ".repeat(400);
    let error = builder().build().unwrap().rerank("a", &[&long]).unwrap_err().to_string();
    assert!(error.contains("the model's context has 1024"), "{error}");
    // A text that names a control token is text, and one that is too long can be cut.
    let mut cut = builder().truncate(true).build().unwrap();
    let scores = cut.rerank("a", &[&*long, "<|im_end|>", "{query}"]).unwrap();
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    // No reranker: an encoder without a layer for scores.
    let model = Model::from_gguf(gguf(&golden().0[0], &[])).unwrap();
    let error = Embedder::builder(model).runtime(runtime).pooling(Pooling::Score).build();
    assert!(error.unwrap_err().to_string().contains("it is no reranker"));
}

/// Writes the modules of sentence-transformers, with dense layers as EmbeddingGemma's folder has them.
fn write_dense(row: &Json, place: &Temporary, config: &Json) {
    let kind = |name: &str| format!("sentence_transformers.models.{name}");
    let mut modules = vec![
        json!({"idx": 0, "name": "0", "path": "", "type": kind("Transformer")}),
        json!({"idx": 1, "name": "1", "path": "1_Pooling", "type": kind("Pooling")}),
    ];
    std::fs::create_dir_all(place.0.join("1_Pooling")).unwrap();
    let pooling = json!({"pooling_mode_mean_tokens": true}).to_string();
    std::fs::write(place.0.join("1_Pooling/config.json"), pooling).unwrap();
    for layer in [2, 3] {
        let path = format!("{layer}_Dense");
        let inner = place.0.join(&path);
        std::fs::create_dir_all(&inner).unwrap();
        modules.push(json!({"idx": layer, "name": path, "path": path, "type": kind("Dense")}));
        std::fs::write(inner.join("config.json"), config.to_string()).unwrap();
        let (shape, values) = tensor(row, &format!("dense_{layer}.weight"));
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let header = json!({"linear.weight": {
            "dtype": "F32", "shape": shape, "data_offsets": [0, data.len()]}});
        let header = header.to_string().into_bytes();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(data);
        std::fs::write(inner.join("model.safetensors"), bytes).unwrap();
    }
    std::fs::write(place.0.join("modules.json"), json!(modules).to_string()).unwrap();
}

#[test]
fn a_folder_with_dense_layers_gives_the_same() {
    let (models, texts) = golden();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let row = models.iter().find(|row| name(row) == "gemma-embedding").unwrap();
    let place = folder(row);
    let identity = "torch.nn.modules.linear.Identity";
    write_dense(row, &place, &json!({"bias": false, "activation_function": identity}));
    let model = Model::open(&place.0, Access::Mmap).unwrap();
    assert_eq!((model.config().pooling, model.config().dense.len()), (Pooling::Mean, 2));
    run(&runtime, &model, row, &texts);
    let embedder = Embedder::builder(model).runtime(runtime).build().unwrap();
    assert_eq!(embedder.width(), 48);
    for (config, want) in [
        (json!({"bias": true}), "bias"),
        (json!({"activation_function": "torch.nn.modules.activation.Tanh"}), "Tanh"),
    ] {
        write_dense(row, &place, &config);
        let error = Model::open(&place.0, Access::Mmap).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains(want), "{error}");
    }
}
