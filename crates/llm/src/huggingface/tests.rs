//! Tests synthetic folders: valid ones become GGUF files, others are refused.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::*;
use crate::Model;

/// A folder that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(model_type: &str) -> Json {
    json!({
        "model_type": model_type, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 500000.0,
        "hidden_act": "silu", "tie_word_embeddings": false, "vocab_size": 260,
        "bos_token_id": 257, "eos_token_id": [258, 257]
    })
}

/// Creates a `tokenizer.json`: byte tokens, one merge, three control tokens and one unused id.
fn tokenizer() -> Json {
    let alphabet = (33..=126u32).chain(161..=172).chain(174..=255).chain(256..=323);
    let letters = alphabet.filter_map(char::from_u32).map(String::from);
    let mut vocab: serde_json::Map<String, Json> =
        letters.enumerate().map(|(id, text)| (text, json!(id))).collect();
    assert_eq!(vocab.len(), 256);
    vocab.insert("th".into(), json!(256));
    json!({
        "added_tokens": [
            {"id": 257, "content": "<s>", "special": true},
            {"id": 258, "content": "</s>", "special": true}
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        ]},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["t h"]}
    })
}

/// Returns the tensors of a one-layer model, with their shapes.
fn tensors() -> Vec<(&'static str, Vec<u64>)> {
    let layer = "model.layers.0.";
    let mut all = vec![
        ("model.embed_tokens.weight", vec![260, 8]),
        ("model.norm.weight", vec![8]),
        ("lm_head.weight", vec![260, 8]),
    ];
    let in_layer: [(&str, &[u64]); 9] = [
        ("input_layernorm.weight", &[8]),
        ("self_attn.q_proj.weight", &[8, 8]),
        ("self_attn.k_proj.weight", &[4, 8]),
        ("self_attn.v_proj.weight", &[4, 8]),
        ("self_attn.o_proj.weight", &[8, 8]),
        ("post_attention_layernorm.weight", &[8]),
        ("mlp.gate_proj.weight", &[12, 8]),
        ("mlp.up_proj.weight", &[12, 8]),
        ("mlp.down_proj.weight", &[8, 12]),
    ];
    for (name, shape) in in_layer {
        all.push((String::leak(format!("{layer}{name}")), shape.to_vec()));
    }
    all
}

/// Writes a file of f16 tensors, each with the values 0, 1/64, 2/64, .. by position.
fn write_safetensors(path: &Path, tensors: &[(&str, Vec<u64>)]) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, shape) in tensors {
        let start = data.len();
        let count = shape.iter().product::<u64>();
        data.extend((0..count).flat_map(|i| half::f16::from_f32(i as f32 / 64.0).to_le_bytes()));
        let entry = json!({"dtype": "F16", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

fn folder(test: &str, config: &Json, tokenizer: &Json, tensors: &[(&str, Vec<u64>)]) -> Temporary {
    let path = std::env::temp_dir().join(format!("warploom-hf-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("config.json"), config.to_string()).unwrap();
    std::fs::write(path.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    write_safetensors(&path.join("model.safetensors"), tensors);
    Temporary(path)
}

#[test]
fn a_folder_opens_as_a_model() {
    let place = folder("opens", &config("llama"), &tokenizer(), &tensors());
    // The path is the folder's, or that of a file in it.
    for path in [place.0.clone(), place.0.join("model.safetensors"), place.0.join("config.json")] {
        let model = Model::open(&path, warploom_models::gguf::Access::Mmap).unwrap();
        let config = model.config();
        assert_eq!((config.layers, config.width, config.head_dim, config.kv_heads), (1, 8, 4, 1));
        assert_eq!((config.rope_base, config.tied_output), (500_000.0, false));
        let tokenizer = model.tokenizer();
        assert_eq!((tokenizer.bos(), tokenizer.adds_bos()), (Some(257), true));
        assert!(tokenizer.is_stop(258) && tokenizer.is_stop(257));
    }
    let gguf = Folder::open(&place.0).unwrap().gguf().unwrap();
    let rows = |name: &str| {
        let info = gguf.tensor(name).unwrap();
        let mut values = vec![0.0; info.elements() as usize];
        quant::decode(info.format().unwrap(), gguf.bytes(&info).unwrap(), &mut values).unwrap();
        values.iter().step_by(8).map(|v| (v * 8.0) as usize).collect::<Vec<_>>()
    };
    // Heads of 4 rows: 0 and 1 rotate with 2 and 3, which are their neighbours in GGUF.
    assert_eq!(rows("blk.0.attn_q.weight"), [0, 2, 1, 3, 4, 6, 5, 7]);
    assert_eq!(rows("blk.0.attn_k.weight"), [0, 2, 1, 3]);
    assert_eq!(rows("blk.0.attn_v.weight"), [0, 1, 2, 3]);
    let types: Vec<i64> = gguf.integers("tokenizer.ggml.token_type").unwrap().collect();
    assert_eq!(types[255..], [1, 1, 3, 3, 5]);
    assert_eq!(gguf.get_u32("tokenizer.ggml.eot_token_id").unwrap(), 257);
}

#[test]
fn llama3_scaling_becomes_divisors() {
    let mut config = config("llama");
    config["rope_scaling"] = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16
    });
    let place = folder("scaling", &config, &tokenizer(), &tensors());
    let model = Model::open(&place.0, warploom_models::gguf::Access::Mmap).unwrap();
    assert!(model.config().has_rope_factors);
    let folder = Folder::open(&place.0).unwrap();
    // 16 positions turn the first pair 2.5 times, between low and high; the second hardly moves.
    let smooth = (16.0 / std::f64::consts::TAU - 1.0) / 3.0;
    let factors = folder.config.rope_factors("here").unwrap().unwrap();
    assert!((f64::from(factors[0]) - 1.0 / ((1.0 - smooth) / 8.0 + smooth)).abs() < 1e-6);
    assert_eq!(factors[1], 8.0);
}

#[test]
fn other_architectures_keep_their_rows_and_names() {
    let mut all = tensors();
    for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
        let name = String::leak(format!("model.layers.0.self_attn.{name}_proj.bias"));
        all.push((name, vec![[8, 4, 4][i]]));
    }
    let place = folder("qwen2", &config("qwen2"), &tokenizer(), &all);
    let gguf = Folder::open(&place.0).unwrap().gguf().unwrap();
    assert_eq!(gguf.architecture().unwrap(), "qwen2");
    assert_eq!(gguf.tensor("blk.0.attn_q.bias").unwrap().shape(), [8]);
    let q = gguf.tensor("blk.0.attn_q.weight").unwrap();
    let bytes = gguf.bytes(&q).unwrap();
    assert_eq!(bytes[16..18], half::f16::from_f32(8.0 / 64.0).to_le_bytes());

    let mut all = tensors();
    all.push(("model.layers.0.self_attn.q_norm.weight", vec![4]));
    let place = folder("qwen3", &config("qwen3"), &tokenizer(), &all);
    let gguf = Folder::open(&place.0).unwrap().gguf().unwrap();
    assert!(gguf.find_tensor("blk.0.attn_q_norm.weight").is_some());
}

#[test]
fn a_model_in_several_files_is_put_together() {
    let place = folder("shards", &config("llama"), &tokenizer(), &[]);
    let all = tensors();
    let (first, second) = all.split_at(5);
    let mut map = serde_json::Map::new();
    for (name, part) in [("model-1.safetensors", first), ("model-2.safetensors", second)] {
        write_safetensors(&place.0.join(name), part);
        map.extend(part.iter().map(|(tensor, _)| ((*tensor).to_owned(), json!(name))));
    }
    let index = place.0.join("model.safetensors.index.json");
    std::fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
    assert!(Model::open(&place.0, warploom_models::gguf::Access::Mmap).is_ok());

    for name in ["../x.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "x.bin", ".."] {
        map.insert("lm_head.weight".into(), json!(name));
        std::fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
        let error = Folder::open(&place.0).unwrap_err();
        assert!(error.is_bad_file() && error.to_string().contains("not a file name"), "{error}");
    }
    // The same tensor in two files.
    write_safetensors(&place.0.join("model-2.safetensors"), &all);
    map.insert("lm_head.weight".into(), json!("model-2.safetensors"));
    std::fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
    let error = Folder::open(&place.0).unwrap_err();
    assert!(error.to_string().contains("two tensors are `"), "{error}");
    // A tensor that is not where the index places it.
    write_safetensors(&place.0.join("model-2.safetensors"), second);
    let error = Folder::open(&place.0).unwrap_err().to_string();
    let words = "model-2.safetensors: no tensor `lm_head.weight`, but model.safetensors.index";
    assert!(error.contains(words), "{error}");
    // A file that is missing.
    std::fs::remove_file(place.0.join("model-2.safetensors")).unwrap();
    let error = Folder::open(&place.0).unwrap_err().to_string();
    assert!(error.contains("model-2.safetensors: cannot find it, but model.safeten"), "{error}");
    assert!(error.contains(&format!(" of {} tensors in it: fetch it too", all.len())), "{error}");
}

/// Some programs write a byte order mark before JSON.
#[test]
fn json_may_begin_with_a_byte_order_mark() {
    let place = folder("mark", &config("llama"), &tokenizer(), &tensors());
    for file in ["config.json", "tokenizer.json"] {
        let path = place.0.join(file);
        let text = format!("\u{feff}{}", std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, text).unwrap();
    }
    assert!(Folder::open(&place.0).and_then(|folder| folder.gguf()).is_ok());
}

/// Part of the expected error message, and a change to a folder that causes it.
type Change = (&'static str, fn(&mut Json, &mut Json, &mut Vec<(&'static str, Vec<u64>)>));

#[test]
fn what_is_not_known_or_wrong_is_refused_by_name() {
    let changes: [Change; 24] = [
        ("model_type \"klingon\"", |c, _, _| c["model_type"] = json!("klingon")),
        ("is not supported; known: llama", |c, _, _| *c = json!({"model_type": "klingon"})),
        ("num_attention_heads: 0", |c, _, _| c["num_attention_heads"] = json!(0)),
        ("not whole heads", |c, _, _| c["num_attention_heads"] = json!(1u64 << 63)),
        ("num_key_value_heads: 0", |c, _, _| c["num_key_value_heads"] = json!(0)),
        ("not whole heads", |c, _, _| c["num_key_value_heads"] = json!(1u64 << 63)),
        ("ids of tokens must be a whole number", |c, _, _| c["eos_token_id"] = json!("</s>")),
        ("ids of tokens must be a whole number", |c, _, _| c["bos_token_id"] = json!([0, -1])),
        ("missing field `hidden_size`", |c, _, _| {
            drop(c.as_object_mut().unwrap().remove("hidden_size"))
        }),
        ("hidden_act \"gelu\"", |c, _, _| c["hidden_act"] = json!("gelu")),
        ("rope_type \"dynamic\"", |c, _, _| {
            c["rope_scaling"] = json!({"type": "dynamic", "factor": 4.0})
        }),
        ("factor is missing", |c, _, _| c["rope_scaling"] = json!({"type": "linear"})),
        ("low_freq_factor is missing", |c, _, _| {
            c["rope_scaling"] = json!({"type": "llama3", "factor": 4.0});
        }),
        ("head_dim: 1099511627776 is too large", |c, _, _| c["head_dim"] = json!(1u64 << 40)),
        ("num_hidden_layers is 1", |_, _, t| {
            t.push(("model.layers.1.mlp.up_proj.weight", vec![1]))
        }),
        ("model.layers.0.mlp.experts", |_, _, t| {
            t.push(("model.layers.0.mlp.experts.weight", vec![1]))
        }),
        ("biases are not supported for llama", |_, _, t| t.push(("model.norm.bias", vec![8]))),
        ("no tensor of architecture", |_, _, t| t.push(("weight", vec![8]))),
        ("not whole heads", |_, _, t| t[4].1 = vec![6, 8]),
        ("model Unigram: merges", |_, k, _| k["model"]["type"] = json!("Unigram")),
        ("model BPE: dropout: 0.5", |_, k, _| k["model"]["dropout"] = json!(0.5)),
        ("pre_tokenizer: type \"Frob\"", |_, k, _| k["pre_tokenizer"] = json!({"type": "Frob"})),
        ("another text", |_, k, _| k["added_tokens"][0]["id"] = json!(0)),
        ("vocab_size of config.json is 260", |_, k, _| {
            k["added_tokens"][0]["id"] = json!(u32::MAX)
        }),
    ];
    for (i, (words, change)) in changes.into_iter().enumerate() {
        let (mut config, mut tokenizer, mut tensors) = (config("llama"), tokenizer(), tensors());
        change(&mut config, &mut tokenizer, &mut tensors);
        let place = folder(&format!("wrong-{i}"), &config, &tokenizer, &tensors);
        let error = Folder::open(&place.0).and_then(|folder| folder.gguf()).unwrap_err();
        assert!(error.to_string().contains(words), "{words:?}: {error}");
        assert!(error.to_string().contains("warploom-hf-"), "no file is named: {error}");
        assert!(error.is_bad_file() || error.is_unsupported(), "{error:?}");
    }
    let error = Folder::open(Path::new("no-such-folder/config.json")).unwrap_err();
    assert!(error.to_string().contains("no-such-folder"), "{error}");
    let empty = folder("empty", &config("llama"), &tokenizer(), &[]);
    std::fs::remove_file(empty.0.join("config.json")).unwrap();
    let error = Folder::open(&empty.0).unwrap_err();
    assert!(error.to_string().contains("no config.json"), "{error}");
}

/// Creates a Gemma config with the keys of older files.
fn gemma() -> Json {
    let mut config = config("gemma3_text");
    let fields = json!({
        "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 8,
        "rope_theta": null, "rope_local_base_freq": 12000.0, "query_pre_attn_scalar": 16,
        "sliding_window": 24, "sliding_window_pattern": 4, "head_dim": 4,
        "tie_word_embeddings": null, "final_logit_softcapping": null, "vocab_size": 260
    });
    for (field, value) in fields.as_object().unwrap() {
        match value.is_null() {
            true => drop(config.as_object_mut().unwrap().remove(field)),
            false => config[field] = value.clone(),
        }
    }
    config
}

/// Converts a config to GGUF metadata.
fn described(config: &Json) -> Result<Gguf> {
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    let mut writer = Writer::new();
    config.describe(Path::new("folder"), &mut writer)?;
    Gguf::from_bytes(writer.begin(Vec::new())?.finish()?, "described")
}

#[test]
fn windows_are_read_from_files_of_every_version() {
    let file = described(&gemma()).unwrap();
    let number = |file: &Gguf, key: &str| file.find_u64(&format!("gemma3.{key}")).unwrap();
    let float = |key: &str| file.find_f32(&format!("gemma3.{key}")).unwrap();
    assert_eq!(file.architecture().unwrap(), "gemma3");
    assert_eq!(number(&file, "attention.sliding_window"), Some(24));
    assert_eq!(number(&file, "attention.sliding_window_pattern"), Some(4));
    assert_eq!((float("rope.freq_base"), float("rope.freq_base_swa")), (Some(1e6), Some(12000.0)));
    assert_eq!(float("attention.scale"), Some(0.25));

    let layers = |full: &[usize]| {
        let kind = |i| if full.contains(&i) { "full_attention" } else { "sliding_attention" };
        let mut config = gemma();
        config["layer_types"] = (0..8).map(kind).collect::<Vec<_>>().into();
        config
    };
    let pattern = |full: &[usize]| {
        let file = described(&layers(full)).unwrap();
        number(&file, "attention.sliding_window_pattern")
    };
    assert_eq!(pattern(&[1, 3, 5, 7]), Some(2));
    assert_eq!(pattern(&[5]), Some(6));
    // No layer attends to all keys, or all layers do.
    assert_eq!(pattern(&[]), Some(9));
    assert_eq!(pattern(&[0, 1, 2, 3, 4, 5, 6, 7]), None);
    for irregular in [&[0][..], &[2, 4], &[1, 3, 5]] {
        let error = described(&layers(irregular)).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("layer_types"), "{error}");
    }
}

#[test]
fn other_networks_and_other_ways_of_storing_are_refused_by_name() {
    let rows = [
        ("final_logit_softcapping", json!(30.0), "final_logit_softcapping"),
        ("attn_logit_softcapping", json!(50.0), "attn_logit_softcapping"),
        ("quantization_config", json!({"quant_method": "bitnet"}), "quantization_config"),
        ("quantization", json!({"group_size": 64, "bits": 4}), "quantization is not supported"),
        ("sliding_window_pattern", json!(0), "sliding_window_pattern: 0"),
        ("hidden_activation", json!("relu"), "hidden_act \"relu\""),
        ("rope_scaling", json!({"rope_type": "linear"}), "factor is missing"),
        (
            "rope_parameters",
            json!({"sliding_attention": {"rope_type": "yarn"}}),
            "sliding_attention: rope_type \"yarn\"",
        ),
    ];
    for (field, value, words) in rows {
        let mut config = gemma();
        config[field] = value;
        let error = described(&config).unwrap_err();
        let text = error.to_string();
        assert!(error.is_unsupported() || error.is_bad_file(), "{text}");
        assert!(text.contains(words) && text.contains("config.json"), "{text:?} lacks {words:?}");
    }
    let mut qwen = config("qwen2");
    qwen["sliding_window"] = json!(16);
    assert!(described(&qwen).is_ok());
    qwen["use_sliding_window"] = json!(true);
    let error = described(&qwen).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("sliding_window"), "{error}");
}

/// Mistral is Llama's network: the same file, tensor for tensor, except for an optional window.
#[test]
fn a_folder_of_mistral_is_one_of_llama() {
    let bytes = |test: &str, config: &Json| {
        let place = folder(test, config, &tokenizer(), &tensors());
        // The file contains the folder's name.
        let same = std::env::temp_dir().join(format!("warploom-hf-same-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&same);
        std::fs::rename(&place.0, &same).unwrap();
        let _gone = Temporary(same.clone());
        let gguf = Folder::open(&same)?.gguf()?;
        let metadata: Vec<String> =
            gguf.metadata().map(|(key, value)| format!("{key}: {value:?}")).collect();
        let tensors: Vec<Vec<u8>> =
            gguf.tensors().map(|info| gguf.bytes(&info).unwrap().to_vec()).collect();
        Ok::<_, Error>((metadata, tensors, crate::config::Config::from_gguf(&gguf)?))
    };
    let llama = bytes("llama-for-mistral", &config("llama")).unwrap();
    let mut mistral = config("mistral");
    mistral["sliding_window"] = Json::Null;
    assert_eq!(bytes("mistral", &mistral).unwrap(), llama);
    // A window as long as the context has no effect.
    mistral["sliding_window"] = json!(64);
    assert_eq!(bytes("mistral-wide", &mistral).unwrap().2, llama.2);
    mistral["sliding_window"] = json!(8);
    let (_, _, narrow) = bytes("mistral-narrow", &mistral).unwrap();
    assert_eq!((narrow.window(0), llama.2.window(0)), (Some(8), None));
}

/// YaRN parameters of a folder's config appear in the GGUF file, with the factor that
/// `transformers` computes.
#[test]
fn a_folder_with_yarn_has_its_numbers() {
    let with = |test: &str, scaling: Json, at: &str| {
        let mut config = config("mistral");
        config[at] = scaling;
        let place = folder(test, &config, &tokenizer(), &tensors());
        crate::config::Config::from_gguf(&Folder::open(&place.0)?.gguf()?)
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/rope/yarn.json");
    let golden: Json = serde_json::from_str(&std::fs::read_to_string(root).unwrap()).unwrap();
    for (index, row) in golden.as_array().unwrap().iter().enumerate() {
        let given = &row["rope_parameters"];
        // The golden models have 4,096 positions and these 64, so only explicit values are
        // comparable.
        if given["factor"].is_null() || given["original_max_position_embeddings"].is_null() {
            continue;
        }
        let mut old = given.clone();
        old["type"] = old["rope_type"].take();
        old.as_object_mut().unwrap().retain(|key, _| key != "rope_type");
        for (at, scaling) in [("rope_parameters", given.clone()), ("rope_scaling", old)] {
            let config = with(&format!("yarn-{index}-{at}"), scaling, at).unwrap();
            let crate::config::RopeScaling::Yarn(yarn) = config.rope_scaling else {
                panic!("{given}: {:?}", config.rope_scaling);
            };
            let want = row["attention_factor"].as_f64().unwrap();
            assert!((yarn.attention - want).abs() < 1e-6, "{given}: {}", yarn.attention);
            assert_eq!(yarn.truncate, given["truncate"] != false);
            assert_eq!(Some(yarn.factor), given["factor"].as_f64());
            assert_eq!(yarn.beta_fast, given["beta_fast"].as_f64().unwrap_or(32.0));
        }
    }
    let error = with("dynamic", json!({"rope_type": "dynamic", "factor": 2.0}), "rope_scaling");
    assert!(error.unwrap_err().to_string().contains("dynamic"));
    // Many files have both names of the type.
    let yarn = json!({"rope_type": "yarn", "type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 16});
    let config = with("both-names", yarn.clone(), "rope_scaling").unwrap();
    assert!(matches!(config.rope_scaling, crate::config::RopeScaling::Yarn(_)));
    for (key, value) in [
        ("type", json!("linear")),
        ("llama_4_scaling_beta", json!(0.1)),
        // Below the default of beta_slow.
        ("beta_fast", json!(0.5)),
    ] {
        let mut other = yarn.clone();
        other[key] = value;
        let error = with(&format!("other-{key}"), other, "rope_scaling").unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("config.json"), "{error}");
    }
}

/// Templates and end ids of a folder appear in the opened model and in a quantised file.
#[test]
fn a_folder_has_its_templates_and_ends() {
    let mut tokenizer = tokenizer();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    added.push(json!({"id": 259, "content": "<|done|>", "special": true}));
    let place = folder("ends", &config("llama"), &tokenizer, &tensors());
    let write = |name: &str, text: &str| std::fs::write(place.0.join(name), text).unwrap();
    write(
        "generation_config.json",
        r#"{"eos_token_id": [0, 1, 259], "top_k": 20, "temperature": 0.6}"#,
    );
    write("tokenizer_config.json", r#"{"chat_template": "config", "eos_token": "</s>"}"#);
    write("chat_template.jinja", "[{{ messages[0].role }}]");
    let check = |model: &Model| {
        let tokenizer = model.tokenizer();
        let ends: Vec<u32> = (0..260).filter(|id| tokenizer.is_stop(*id)).collect();
        assert_eq!(ends, [0, 1, 257, 258, 259]);
        let template = crate::chat::Template::of(model).unwrap();
        assert_eq!(template.source(), "[{{ messages[0].role }}]");
        assert_eq!(model.file().find_u32("tokenizer.ggml.eos_token_id").unwrap(), Some(258));
        assert_eq!(model.file().find_f32("general.sampling.temp").unwrap(), Some(0.6));
    };
    check(&Model::open(&place.0, warploom_models::gguf::Access::Mmap).unwrap());
    let out = place.0.join("out.gguf");
    let options = crate::quantize::QuantizeOptions {
        format: Format::Plain(warploom_core::base::DType::F16),
        replace: false,
        threads: Some(1),
    };
    let mut on = |_: u64, _: u64| std::ops::ControlFlow::Continue(());
    crate::quantize::quantize(&place.0, &out, &options, &mut on).unwrap().unwrap();
    check(&Model::open(&out, warploom_models::gguf::Access::Mmap).unwrap());
    write("generation_config.json", r#"{"bad_words_ids": [[5]]}"#);
    let error = Model::open(&place.0, warploom_models::gguf::Access::Mmap).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("generation_config.json: bad_words_ids"), "{error}");
}
