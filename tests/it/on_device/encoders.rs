//! Tiny encoders, with weights from a formula (`tests/golden/architectures`): vectors of texts against
//! Python's `transformers`, read from a GGUF file as llama.cpp's converter writes it and from a folder
//! as `transformers` writes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use warploom::Error;
use warploom::runtime::Runtime;
use warploom_core::base::Format;
use warploom_llm::config::{Architecture, Pooling};
use warploom_llm::{Embedder, Model, Session};
use warploom_models::gguf::{Access, Gguf};
use warploom_serve::{ServeOptions, Server};

use super::architecture_files::{gguf_with, name, sources, tensor};
use super::architecture_folders::folder;
use super::architectures::difference;
use crate::gguf_writer::{Meta, Writer};
use crate::{devices, serve, tell};

/// Maximum difference of an element; the largest is 4.3.
pub(super) const ELEMENT: f64 = 1e-5;
/// Names of tensors in safetensors and in GGUF.
const NAMES: [(&str, &str); 7] = [
    ("pooler.dense", "cls"),
    ("classifier", "cls.output"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("emb_ln", "token_embd_norm"),
];
/// The same in layers.
const LAYER: [(&str, &str); 15] = [
    ("attn.Wqkv", "attn_qkv"),
    ("attn.out_proj", "attn_output"),
    ("norm1", "attn_output_norm"),
    ("mlp.fc11", "ffn_up"),
    ("mlp.fc12", "ffn_gate"),
    ("mlp.fc2", "ffn_down"),
    ("norm2", "layer_output_norm"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

pub(super) fn file() -> Json {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = std::fs::read_to_string(root.join("tests/golden/architectures/encoders.json"));
    serde_json::from_str(&text.unwrap()).unwrap()
}

/// The models, and the tokens of the texts.
pub(super) fn golden() -> (Vec<Json>, Vec<Vec<u32>>) {
    let mut all = file();
    let texts = serde_json::from_value(all["texts"].take()).unwrap();
    let Json::Array(models) = all["models"].take() else { panic!("no list of models") };
    (models, texts)
}

fn gguf_name(source: &str) -> String {
    let source = source.strip_prefix("bert.").unwrap_or(source);
    let (stem, kind) = source.rsplit_once('.').unwrap();
    let find = |table: &[(&str, &'static str)], stem: &str| {
        table.iter().find(|(theirs, _)| *theirs == stem).map(|(_, ours)| *ours)
    };
    let layers = ["encoder.layer.", "encoder.layers."];
    let rest = layers.iter().find_map(|prefix| stem.strip_prefix(prefix));
    match rest.and_then(|rest| rest.split_once('.')) {
        Some((layer, part)) => format!("blk.{layer}.{}.{kind}", find(&LAYER, part).unwrap()),
        None => format!("{}.{kind}", find(&NAMES, stem).unwrap()),
    }
}

/// The file that llama.cpp's converter would write, with changed keys.
pub(super) fn gguf(model: &Json, changes: &[(&str, Meta)]) -> Gguf {
    let arch = name(model);
    let Some(epsilon) = model["config"]["layer_norm_eps"].as_f64() else {
        return decoder_gguf(model, changes);
    };
    // The first position is the one after the token of padding, and files have no row before it.
    let first = match model["config"]["model_type"].as_str() {
        Some("xlm-roberta") => model["config"]["pad_token_id"].as_u64().unwrap() + 1,
        _ => 0,
    };
    let positions = model["config"]["max_position_embeddings"].as_u64().unwrap() - first;
    let count = |key: &str| Meta::U32(model["config"][key].as_u64().unwrap() as u32);
    let vocabulary = model["config"]["vocab_size"].as_u64().unwrap() as u32;
    let begin = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u{2581}ab", "cd", "\u{2581}e", "\u{2581}."];
    let begin = begin.map(str::to_owned).into_iter();
    let tokens = begin.chain((8..vocabulary).map(|i| format!("\u{2581}t{i}")));
    let types = (0..vocabulary as i32).map(|i| if i < 4 { 3 } else { 1 });
    let mut keys = vec![
        ("general.architecture".to_owned(), Meta::Str(arch.into())),
        ("tokenizer.ggml.model".into(), Meta::Str("bert".into())),
        ("tokenizer.ggml.tokens".into(), Meta::strings(tokens)),
        ("tokenizer.ggml.token_type".into(), Meta::i32s(types.collect::<Vec<_>>())),
        ("tokenizer.ggml.seperator_token_id".into(), Meta::U32(3)),
    ];
    let own = [
        ("context_length", Meta::U32(positions as u32)),
        ("embedding_length", count("hidden_size")),
        ("feed_forward_length", count("intermediate_size")),
        ("block_count", count("num_hidden_layers")),
        ("attention.head_count", count("num_attention_heads")),
        ("attention.layer_norm_epsilon", Meta::F32(epsilon as f32)),
        ("attention.causal", Meta::Bool(false)),
        ("pooling_type", Meta::U32(2)),
    ];
    keys.extend(own.into_iter().map(|(key, value)| (format!("{arch}.{key}"), value)));
    let mut file = Writer::new();
    for (key, value) in keys {
        let change = changes.iter().find(|(name, _)| key.ends_with(name));
        file = file.key(&key, change.map_or(value, |(_, value)| value.clone()));
    }
    if let Some(base) = model["config"]["rope_parameters"]["rope_theta"].as_f64() {
        file = file.key(&format!("{arch}.rope.freq_base"), Meta::F32(base as f32));
    }
    for source in sources(model) {
        let (mut shape, mut values) = tensor(model, &source);
        let name = gguf_name(&source);
        if name == "position_embd.weight" {
            values.drain(..(first * shape[1]) as usize);
            shape[0] -= first;
        }
        file = file.tensor(&name, &shape, Format::F32, &values);
    }
    Gguf::from_bytes(file.write().bytes, &format!("{arch} of a formula")).unwrap()
}

/// The same for models with the network of a decoder.
fn decoder_gguf(model: &Json, changes: &[(&str, Meta)]) -> Gguf {
    let sources = sources(model);
    let dense = sources.iter().filter(|source| source.starts_with("dense_"));
    let sizes = dense.flat_map(|source| {
        let stem = source.strip_suffix(".weight").unwrap();
        let shape = tensor(model, source).0;
        [("out", shape[0]), ("in", shape[1])]
            .map(|(end, n)| (format!("{stem}_feat_{end}"), n as u32))
    });
    let sizes: Vec<(String, u32)> = sizes.collect();
    let sizes = sizes.iter().map(|(key, size)| (&**key, Meta::U32(*size)));
    let keys: Vec<(&str, Meta)> = sizes.chain(changes.iter().cloned()).collect();
    let bytes = gguf_with(model, &keys, &[]).write().bytes;
    Gguf::from_bytes(bytes, &format!("{} of a formula", name(model))).unwrap()
}

/// Largest difference of an element on one device, of texts in one run, alone, and in any order.
pub(super) fn run(runtime: &Runtime, model: &Arc<Model>, row: &Json, texts: &[Vec<u32>]) -> f64 {
    let mut most = 0.0f64;
    for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
        let want: Vec<Vec<f64>> = serde_json::from_value(row[pooling.name()].clone()).unwrap();
        let builder = Embedder::builder(model.clone()).runtime(runtime.clone());
        let mut embedder = builder.pooling(pooling).normalise(false).build().unwrap();
        let mut check = |of: &[usize]| {
            let run: Vec<Vec<u32>> = of.iter().map(|i| texts[*i].clone()).collect();
            for (i, got) in of.iter().zip(embedder.embed_tokens(&run).unwrap()) {
                assert_eq!(got.len(), want[*i].len());
                let difference = difference(&want[*i], got.iter().map(|v| f64::from(*v)));
                let (name, pooling) = (name(row), pooling.name());
                assert!(difference <= ELEMENT, "{name}, {pooling}, text {i}: {difference}");
                most = most.max(difference);
            }
        };
        check(&[0, 1, 2, 3]);
        check(&[3, 0]);
        (0..texts.len()).for_each(|i| check(&[i]));
    }
    most
}

#[test]
fn every_encoder_gives_the_vectors_of_transformers_on_every_device() {
    let (models, texts) = golden();
    for (device, runtime) in devices::every(true) {
        let mut message = format!("encoders: {device}:");
        for row in &models {
            let model = Model::from_gguf(gguf(row, &[])).unwrap();
            message += &format!(" {} {:.1e}", name(row), run(&runtime, &model, row, &texts));
        }
        tell(&message);
    }
    let encodes = |name: &&str| Architecture::of(name).is_some_and(|row| row.encodes);
    for architecture in Architecture::names().filter(encodes) {
        assert!(models.iter().any(|row| name(row) == architecture), "no {architecture}");
    }
}

/// A folder says how it pools, and its vectors are those of its GGUF file.
#[test]
fn a_folder_of_an_encoder_gives_the_same() {
    let (models, texts) = golden();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    for row in models.iter().filter(|row| name(row) != "gemma-embedding") {
        let folder = folder(row);
        let open = || Model::open(&folder.0, Access::Mmap);
        assert_eq!(open().unwrap().config().pooling, Pooling::Mean);
        run(&runtime, &open().unwrap(), row, &texts);
        let kind = |name: &str| format!("sentence_transformers.models.{name}");
        let modules = |second: &str| {
            let modules = json!([
                {"idx": 0, "name": "0", "path": "", "type": kind("Transformer")},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind(second)},
            ]);
            std::fs::write(folder.0.join("modules.json"), modules.to_string()).unwrap();
        };
        modules("Pooling");
        std::fs::create_dir_all(folder.0.join("1_Pooling")).unwrap();
        for (modes, want) in [
            (json!({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false}), "last"),
            (json!({"pooling_mode_cls_token": true}), "first"),
        ] {
            let path = folder.0.join("1_Pooling/config.json");
            std::fs::write(path, modes.to_string()).unwrap();
            assert_eq!(open().unwrap().config().pooling.name(), want);
        }
        let both = json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true});
        std::fs::write(folder.0.join("1_Pooling/config.json"), both.to_string()).unwrap();
        let error = open().unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("max_tokens"), "{error}");
        modules("Dense");
        let error = open().unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("Dense"), "{error}");
    }
}

/// Equal but for the order of sums, which depends on the texts of the same run.
#[track_caller]
fn close(a: &[f32], b: &[f32]) {
    let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let difference = difference(&wide(a), wide(b).into_iter());
    assert!(a.len() == b.len() && difference <= 1e-6, "{difference}");
}

/// A reranker reads a query and a text together, and its scores are those of `transformers`.
#[test]
fn a_reranker_gives_the_scores_of_transformers_on_every_device() {
    let all = file();
    let row = &all["rerankers"][0];
    let want: Vec<f32> = serde_json::from_value(row["scores"].clone()).unwrap();
    let model = Model::from_gguf(gguf(row, &[("pooling_type", Meta::U32(4))])).unwrap();
    assert_eq!(model.config().pooling, Pooling::Score);
    // The texts whose tokens are those of the golden pairs.
    let texts = ["ab", "e .", "abcd . e e abcdcd"];
    for (device, runtime) in devices::every(true) {
        let builder = Embedder::builder(model.clone()).runtime(runtime);
        let mut embedder = builder.pooling(Pooling::Mean).build().unwrap();
        assert!(embedder.reranks());
        let mut got = embedder.rerank("ab e", &texts).unwrap();
        got.extend(embedder.rerank("e", &["ab"]).unwrap());
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
        let difference = difference(&wide(&want), wide(&got).into_iter());
        assert!(got.len() == want.len() && difference <= ELEMENT, "{device}: {got:?} {want:?}");
    }
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let builder = || Embedder::builder(model.clone()).runtime(runtime.clone());
    let mut embedder = builder().build().unwrap();
    let long = "ab ".repeat(80);
    let error = embedder.rerank("ab", &["e", &long]).unwrap_err().to_string();
    assert!(error.contains("text 2: 84 tokens with the query"), "{error}");
    assert_eq!(builder().truncate(true).build().unwrap().rerank("ab", &[&long]).unwrap().len(), 1);
    let error = embedder.embed(&["ab"]).unwrap_err().to_string();
    assert!(error.contains("is a reranker"), "{error}");
    // A folder names its class.
    let folder = folder(row);
    let of_folder = Model::open(&folder.0, Access::Mmap).unwrap();
    assert_eq!(of_folder.config().pooling, Pooling::Score);
    // An endpoint orders texts by their scores.
    let options = ServeOptions::default().address(([127, 0, 0, 1], 0).into());
    let server = Server::start_encoder(embedder, options.model(Some("tiny".into()))).unwrap();
    let post = |body: &Json| serve::post(server.address(), "/v1/rerank", &body.to_string());
    let (status, answer) =
        post(&json!({"query": "ab e", "documents": texts, "top_n": 2, "return_documents": true}));
    let results = answer["results"].as_array().unwrap();
    assert!(status == 200 && results.len() == 2, "{answer}");
    let best = (0..3).max_by(|a, b| want[*a].total_cmp(&want[*b])).unwrap();
    assert_eq!(results[0]["index"].as_u64(), Some(best as u64));
    assert_eq!(results[0]["document"]["text"], texts[best]);
    let score = results[0]["relevance_score"].as_f64().unwrap();
    assert!((score - f64::from(want[best])).abs() <= ELEMENT, "{answer}");
    for (body, want) in [
        (json!({"documents": ["a"]}), "query"),
        (json!({"query": "a", "documents": []}), "documents"),
        (json!({"query": "a", "documents": ["a", 3]}), "documents"),
        (json!({"query": "a", "documents": [long]}), "84 tokens"),
        (json!({"query": "a", "documents": ["a"], "top_n": 0}), "top_n"),
    ] {
        let (status, answer) = post(&body);
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && text.contains(want), "{body}: {answer}");
    }
    let (status, answer) = serve::post(server.address(), "/v1/embeddings", "{\"input\": \"a\"}");
    assert!(status == 400 && answer["error"]["code"] == "no_embeddings", "{answer}");
}

/// Texts become the tokens of WordPiece, with those that begin and end a text.
#[test]
fn texts_are_cut_normalised_and_refused() {
    let (models, _) = golden();
    let model = Model::from_gguf(gguf(&models[0], &[])).unwrap();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let builder = || Embedder::builder(model.clone()).runtime(runtime.clone());
    let mut embedder = builder().build().unwrap();
    assert_eq!(embedder.pooling(), Pooling::First);
    // Without case and accents; a name in brackets is text.
    for (text, want) in [
        ("Abcd e.", &[2, 4, 5, 6, 7, 3][..]),
        ("\u{c1}B xyz", &[2, 4, 1, 3]),
        ("[SEP]", &[2, 1, 1, 1, 3]),
        ("", &[2, 3]),
    ] {
        assert_eq!(embedder.encode(text).unwrap(), want, "{text:?}");
    }
    let vectors = embedder.embed(&["ab", "e", "ab"]).unwrap();
    close(&vectors[0], &vectors[2]);
    for vector in &vectors {
        let length: f32 = vector.iter().map(|v| v * v).sum();
        assert!((length - 1.0).abs() < 1e-6, "{length}");
    }
    let long = "ab ".repeat(80);
    let error = embedder.embed(&["ab", &long]).unwrap_err().to_string();
    assert!(error.contains("text 1: 82 tokens, the model's context has 64"), "{error}");
    let mut cut = builder().truncate(true).build().unwrap();
    let tokens = cut.encode(&long).unwrap();
    assert_eq!((tokens.len(), tokens[0], tokens[62], tokens[63]), (64, 2, 4, 3));
    assert_eq!(cut.embed(&[&long]).unwrap()[0].len(), 64);
    for (tokens, want) in [
        (vec![], "text 0: 0 tokens"),
        (vec![96], "text 0: token 96 of a vocabulary of 96"),
        (vec![5; 65], "text 0: 65 tokens, the model reads 1 to 64"),
    ] {
        let error = embedder.embed_tokens(&[tokens]).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    assert!(embedder.embed_tokens(&[]).unwrap().is_empty());
    let error = Session::builder(model.clone()).runtime(runtime).build().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("generates no text"), "{error}");
}

/// Keys of encoders that are wrong, or say what is not computed.
#[test]
fn wrong_keys_of_encoders_are_named() {
    let (models, _) = golden();
    let open = |key: &str, value: Meta| -> Error {
        Model::from_gguf(gguf(&models[0], &[(key, value)])).unwrap_err()
    };
    for (key, value, want) in [
        ("pooling_type", Meta::U32(9), "bert.pooling_type"),
        ("context_length", Meta::U32(63), "position_embd.weight"),
        ("attention.layer_norm_epsilon", Meta::F32(-1.0), "bert.attention.layer_norm_epsilon"),
        ("attention.head_count", Meta::U32(5), "bert.attention.head_count"),
        ("seperator_token_id", Meta::U32(96), "96"),
    ] {
        let error = open(key, value);
        assert!(error.is_bad_file() && error.to_string().contains(want), "{key}: {error}");
    }
    let error = open("pooling_type", Meta::U32(4));
    assert!(error.is_bad_file() && error.to_string().contains("cls.output.weight"), "{error}");
    let error = open("attention.causal", Meta::Bool(true));
    assert!(error.is_unsupported() && error.to_string().contains("causal"), "{error}");
}

/// The endpoint gives the same vectors, as numbers and in base64, for texts and for their tokens.
#[test]
fn an_encoder_is_served() {
    let (models, _) = golden();
    let model = Model::from_gguf(gguf(&models[0], &[])).unwrap();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let embedder = || Embedder::builder(model.clone()).runtime(runtime.clone()).build().unwrap();
    let want = embedder().embed(&["ab e", "cd"]).unwrap();
    let options = ServeOptions::default().address(([127, 0, 0, 1], 0).into());
    let server = Server::start_encoder(embedder(), options.model(Some("tiny".into()))).unwrap();
    let post = |path: &str, body: &Json| serve::post(server.address(), path, &body.to_string());
    let embed = |body: Json| post("/v1/embeddings", &body);
    let vector = |answer: &Json, i: usize| -> Vec<f32> {
        serde_json::from_value(answer["data"][i]["embedding"].clone()).unwrap()
    };
    let (status, both) = embed(json!({"model": "tiny", "input": ["ab e", "cd"], "user": "x"}));
    assert_eq!((status, both["usage"]["prompt_tokens"].as_u64()), (200, Some(7)), "{both}");
    for (i, want) in want.iter().enumerate() {
        close(&vector(&both, i), want);
        assert_eq!(both["data"][i]["index"].as_u64(), Some(i as u64));
    }
    for input in [json!("ab e"), json!([2, 4, 6, 3]), json!([[2, 4, 6, 3]])] {
        close(&vector(&embed(json!({"input": input})).1, 0), &want[0]);
    }
    let (_, coded) = embed(json!({"input": "ab e", "encoding_format": "base64"}));
    let length = coded["data"][0]["embedding"].as_str().unwrap().len();
    assert_eq!(length, (4 * want[0].len()).div_ceil(3) * 4);
    let short = vector(&embed(json!({"input": "ab e", "dimensions": 8})).1, 0);
    let length: f32 = short.iter().map(|v| v * v).sum();
    assert!(short.len() == 8 && (length - 1.0).abs() < 1e-6, "{short:?}");
    for (body, status, want) in [
        (json!({}), 400, "input: must be"),
        (json!({"input": []}), 400, "input: must be"),
        (json!({"input": ["a", 3]}), 400, "input: must be"),
        (json!({"input": [96]}), 400, "input[0]"),
        (json!({"input": [[]]}), 400, "input"),
        (json!({"input": "ab ".repeat(80)}), 400, "82 tokens"),
        (json!({"input": "a", "dimensions": 65}), 400, "dimensions"),
        (json!({"input": "a", "encoding_format": "hex"}), 400, "encoding_format"),
        (json!({"input": "a", "model": "other"}), 404, "other"),
        (json!({"input": "a", "what": 1}), 400, "what"),
    ] {
        let (got, answer) = embed(body.clone());
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(got == status && text.contains(want), "{body}: {got} {answer}");
    }
    let (status, answer) = post("/v1/completions", &json!({"prompt": "a"}));
    assert!(status == 400 && answer["error"]["code"] == "no_text", "{answer}");
    assert_eq!(post("/tokenize", &json!({"prompt": "ab e"})).1["tokens"], json!([2, 4, 6, 3]));
    assert_eq!(serve::health(server.address())["status"], "ok");
    server.stop(Duration::from_secs(1)).unwrap();
    // Vectors are no scores, and a model that generates text has no such endpoint.
    let server = serve::server(1, ServeOptions::default());
    let (status, answer) = serve::post(server.address(), "/v1/embeddings", "{\"input\": \"a\"}");
    assert!(status == 400 && answer["error"]["code"] == "no_embeddings", "{answer}");
}
