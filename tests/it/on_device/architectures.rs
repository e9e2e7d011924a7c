//! Tiny models of every architecture, with weights from a formula (`tests/golden/architectures`):
//! logits against Python's `transformers`, read from a GGUF file as llama.cpp's converter writes it
//! and from a folder as `transformers` writes it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use warploom::ComputeMode;
use warploom::runtime::Runtime;
use warploom_core::base::Format;
use warploom_forward::Forward;
use warploom_llm::config::Architecture;
use warploom_llm::{Model, Output, Session, StepRequest};
use warploom_models::gguf::{Access, Gguf, Value};

use crate::gguf_writer::{Meta, Writer};
use crate::{devices, tell};

/// Maximum difference of a logit; the largest is 28.
const LOGIT: f64 = 1e-3;

/// The models; each has its prompts.
fn golden() -> Vec<Json> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = std::fs::read_to_string(root.join("tests/golden/architectures/models.json"));
    let mut all: Json = serde_json::from_str(&text.unwrap()).unwrap();
    let common = all["prompts"].take();
    let Json::Array(mut models) = all["models"].take() else { panic!("no list of models") };
    for model in models.iter_mut().filter(|model| model.get("prompts").is_none()) {
        model["prompts"] = common.clone();
    }
    models
}

fn prompts(model: &Json) -> Vec<Vec<u32>> {
    serde_json::from_value(model["prompts"].clone()).unwrap()
}

/// The architecture, and what is special about this model of it.
fn label(model: &Json) -> String {
    match model["variant"].as_str() {
        Some(variant) => format!("{} ({variant})", name(model)),
        None => name(model).into(),
    }
}

fn name(model: &Json) -> &str {
    model["name"].as_str().unwrap()
}

fn logits(model: &Json, prompt: usize) -> Vec<f64> {
    serde_json::from_value(model["logits"][prompt].clone()).unwrap()
}

fn number(model: &Json, key: &str) -> Option<u64> {
    model["config"][key].as_u64()
}

/// Multiples of 1/2048 from -1 to 1: the upper 12 bits of SplitMix64, seeded by FNV-1a of a name.
fn numbers(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let number = |i: u64| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 52) as f32 / 2048.0 - 1.0
    };
    (1..=count as u64).map(number).collect()
}

/// Shape and values of a tensor under its `transformers` name.
fn tensor(model: &Json, source: &str) -> (Vec<u64>, Vec<f32>) {
    let shape: Vec<u64> = serde_json::from_value(model["tensors"][source].clone()).unwrap();
    let mut values = numbers(source, shape.iter().product::<u64>() as usize);
    let (scale, offset) = match source.rsplit_once('.').unwrap() {
        (stem, "weight") if stem.ends_with("norm") => {
            (4.0, if name(model) == "gemma3" { 0.0 } else { 1.0 })
        }
        (stem, "weight") if stem.ends_with("embed_tokens") => (1.0, 0.0),
        (_, kind) => (if kind == "bias" { 4.0 } else { 8.0 }, 0.0),
    };
    values.iter_mut().for_each(|value| *value = *value / scale + offset);
    (shape, values)
}

fn sources(model: &Json) -> Vec<String> {
    model["tensors"].as_object().unwrap().keys().cloned().collect()
}

/// The GGUF name of a tensor.
fn gguf_name(architecture: &str, source: &str) -> String {
    let (stem, kind) = source.rsplit_once('.').unwrap();
    let stem = match stem {
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        _ => {
            let (layer, part) =
                stem.strip_prefix("model.layers.").unwrap().split_once('.').unwrap();
            let part = match (architecture, part) {
                (_, "input_layernorm") => "attn_norm",
                ("gemma3", "post_attention_layernorm") => "post_attention_norm",
                ("gemma3", "pre_feedforward_layernorm") => "ffn_norm",
                ("gemma3", "post_feedforward_layernorm") => "post_ffw_norm",
                (_, "post_attention_layernorm") => "ffn_norm",
                (_, "self_attn.q_proj") => "attn_q",
                (_, "self_attn.k_proj") => "attn_k",
                (_, "self_attn.v_proj") => "attn_v",
                (_, "self_attn.qkv_proj") => "attn_qkv",
                (_, "self_attn.o_proj") => "attn_output",
                (_, "self_attn.q_norm") => "attn_q_norm",
                (_, "self_attn.k_norm") => "attn_k_norm",
                (_, "self_attn.attn_sub_norm") => "attn_sub_norm",
                (_, "mlp.gate_proj") => "ffn_gate",
                (_, "mlp.up_proj" | "mlp.gate_up_proj") => "ffn_up",
                (_, "mlp.down_proj") => "ffn_down",
                (_, "mlp.ffn_sub_norm") => "ffn_sub_norm",
                (_, other) => panic!("{other}"),
            };
            format!("blk.{layer}.{part}")
        }
    };
    format!("{stem}.{kind}")
}

/// Rows of each head as llama.cpp orders them for neighbours to rotate: first, middle, second, ..
fn interleaved(values: &[f32], heads: u64, columns: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks(columns).collect();
    let half = rows.len() / heads as usize / 2;
    let heads = rows.chunks(2 * half);
    heads
        .flat_map(|head| (0..half).flat_map(|i| [head[i], head[i + half]]))
        .flatten()
        .copied()
        .collect()
}

/// The file that llama.cpp's converter would write, except for the tokenizer.
fn gguf(model: &Json) -> Gguf {
    let arch = name(model);
    let key = |key: &str| format!("{arch}.{key}");
    let counts = [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("attention.sliding_window", "sliding_window"),
    ];
    let mut file = Writer::new().key("general.architecture", Meta::Str(arch.into()));
    for (ours, theirs) in counts {
        if let Some(n) = number(model, theirs) {
            file = file.key(&key(ours), Meta::U32(n as u32));
        }
    }
    let rope = &model["config"]["rope_parameters"];
    let rope = rope.get("full_attention").unwrap_or(rope);
    let float = |json: &Json| Meta::F32(json.as_f64().unwrap() as f32);
    file = file
        .key(&key("attention.layer_norm_rms_epsilon"), float(&model["config"]["rms_norm_eps"]))
        .key(&key("rope.freq_base"), float(&rope["rope_theta"]));
    if rope["rope_type"] == "linear" {
        file = file.key(&key("rope.scaling.type"), Meta::Str("linear".into()));
        file = file.key(&key("rope.scaling.factor"), float(&rope["factor"]));
    }
    if rope["rope_type"] == "yarn" {
        for (ours, value) in yarn_keys(rope) {
            file = file.key(&key(&format!("rope.scaling.{ours}")), value);
        }
    }
    if let Some(part) = rope.get("partial_rotary_factor").and_then(Json::as_f64) {
        let head =
            number(model, "hidden_size").unwrap() / number(model, "num_attention_heads").unwrap();
        file = file.key(&key("rope.dimension_count"), Meta::U32((head as f64 * part) as u32));
    }
    if let Some(scalar) = model["config"]["query_pre_attn_scalar"].as_f64() {
        file = file.key(&key("attention.scale"), Meta::F32((1.0 / scalar.sqrt()) as f32));
    }
    if rope["rope_type"] == "llama3" {
        let factors = llama3_factors(rope, 16);
        file = file.tensor("rope_freqs.weight", &[factors.len() as u64], Format::F32, &factors);
    }
    let vocabulary = number(model, "vocab_size").unwrap();
    file = file
        .key("tokenizer.ggml.model", Meta::Str("gpt2".into()))
        .key("tokenizer.ggml.pre", Meta::Str("gpt-2".into()))
        .key("tokenizer.ggml.tokens", Meta::strings((0..vocabulary).map(|i| format!("t{i}"))))
        .key("tokenizer.ggml.merges", Meta::strings([""; 0]));
    for source in sources(model) {
        let (shape, mut values) = tensor(model, &source);
        let name = gguf_name(arch, &source);
        if arch == "gemma3" && name.ends_with("norm.weight") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        let heads = match name.rsplit('.').nth(1) {
            Some("attn_q") if arch == "llama" => number(model, "num_attention_heads"),
            Some("attn_k") if arch == "llama" => number(model, "num_key_value_heads"),
            _ => None,
        };
        if let Some(heads) = heads {
            values = interleaved(&values, heads, shape[1] as usize);
        }
        file = file.tensor(&name, &shape, Format::F32, &values);
    }
    Gguf::from_bytes(file.write().bytes, &format!("{arch} of a formula")).unwrap()
}

/// YaRN's keys as llama.cpp's converter writes them, with `attn_factor` beyond 1 + ln(factor) / 10, and our
/// key for borders that are not rounded.
fn yarn_keys(rope: &Json) -> Vec<(&'static str, Meta)> {
    let get = |key: &str| rope[key].as_f64();
    let factor = get("factor").unwrap();
    let magnitude = |by: f64| 1.0 + 0.1 * by * factor.ln();
    let attention = match (get("attention_factor"), get("mscale"), get("mscale_all_dim")) {
        (Some(given), ..) => given,
        (None, Some(by), Some(all)) => magnitude(by) / magnitude(all),
        _ => magnitude(1.0),
    };
    let float = |number: f64| Meta::F32(number as f32);
    let original = rope["original_max_position_embeddings"].as_u64().unwrap();
    let mut keys = vec![
        ("type", Meta::Str("yarn".into())),
        ("factor", float(factor)),
        ("original_context_length", Meta::U32(original as u32)),
        ("attn_factor", float(attention / magnitude(1.0))),
    ];
    for (ours, theirs) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
        keys.extend(get(theirs).map(|number| (ours, float(number))));
    }
    if rope["truncate"] == false {
        keys.push(("yarn_truncate", Meta::Bool(false)));
    }
    keys
}

/// Llama 3's scaling as in llama.cpp's converter: by wavelengths.
fn llama3_factors(rope: &Json, dim: u32) -> Vec<f32> {
    let get = |key: &str| rope[key].as_f64().unwrap();
    let (factor, context) = (get("factor"), get("original_max_position_embeddings"));
    let (low, high) = (get("low_freq_factor"), get("high_freq_factor"));
    let one = |i: u32| {
        let frequency = get("rope_theta").powf(-f64::from(2 * i) / f64::from(dim));
        let wave = std::f64::consts::TAU / frequency;
        let smooth = (context / wave - low) / (high - low);
        match wave {
            wave if wave < context / high => 1.0,
            wave if wave > context / low => factor as f32,
            _ => (1.0 / ((1.0 - smooth) / factor + smooth)) as f32,
        }
    };
    (0..dim / 2).map(one).collect()
}

/// A folder that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder that `transformers` would write, except for the tokenizer.
fn folder(model: &Json) -> Temporary {
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
    for source in sources(model) {
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

fn difference(expected: &[f64], actual: impl Iterator<Item = f64>) -> f64 {
    let each = expected.iter().zip(actual).map(|(a, b)| (a - b).abs());
    // A NaN must not be lost in a maximum.
    each.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// Real models are compared with the float64 pass, and the float64 pass with another library.
#[test]
fn the_float64_pass_agrees_with_transformers() {
    let golden = golden();
    for row in &golden {
        let model = Model::from_gguf(gguf(row)).unwrap();
        let mut forward = Forward::new(&model, ComputeMode::F32);
        for (i, prompt) in prompts(row).iter().enumerate() {
            forward.reset();
            let difference = difference(&logits(row, i), forward.run(prompt).into_iter());
            assert!(difference <= 1e-4, "{}, prompt {i}: {difference}", label(row));
        }
    }
    let named: Vec<&str> = golden.iter().map(name).collect();
    for architecture in Architecture::names() {
        assert!(named.contains(&architecture), "models.json has no {architecture}");
    }
}

/// Largest difference of a logit on one device, the prompts read at once and in pieces.
fn run(runtime: &Runtime, model: &Arc<Model>, row: &Json) -> f64 {
    let builder = Session::builder(model.clone()).runtime(runtime.clone()).context(32);
    let mut session = builder.compute(ComputeMode::F32).build().unwrap();
    let mut most = 0.0f64;
    for (i, prompt) in prompts(row).iter().enumerate() {
        // The last token alone is a decode step; with four before it, a short prefill.
        for last in [0, 1, 5] {
            let Some(first) = prompt.len().checked_sub(last) else { continue };
            let (first, last) = prompt.split_at(first);
            session.truncate(0).unwrap();
            let mut out = Vec::new();
            for piece in [first, last].into_iter().filter(|piece| !piece.is_empty()) {
                let request = StepRequest::tokens(0, piece, Output::Logits);
                out = session.step(request).unwrap().into_logits();
            }
            let difference = difference(&logits(row, i), out.iter().map(|v| f64::from(*v)));
            assert!(difference <= LOGIT, "{}, prompt {i}: {difference}", label(row));
            most = most.max(difference);
        }
    }
    most
}

#[test]
fn every_architecture_gives_the_logits_of_transformers_on_every_device() {
    let golden = golden();
    for (device, runtime) in devices::every(true) {
        let mut message = format!("architectures: {device}:");
        // Their kernels are the same but for a few: some stand for all if kernels compile slowly.
        let step = devices::sample(runtime.device().profile(), 3);
        for row in golden.iter().step_by(step) {
            let model = Model::from_gguf(gguf(row)).unwrap();
            let most = run(&runtime, &model, row);
            message += &format!(" {} {most:.1e}", label(row));
        }
        tell(&message);
    }
}

/// Some files of ternary weights have a separate scale for each matrix.
#[test]
fn the_scale_of_a_matrix_is_applied() {
    let golden = golden();
    let row = golden.iter().find(|row| name(row) == "bitnet").unwrap();
    let plain = gguf(row);
    let mut file = Writer::new();
    for (key, value) in plain.metadata() {
        let value = match value {
            Value::U32(n) => Meta::U32(n),
            Value::F32(x) => Meta::F32(x),
            Value::String(text) => Meta::Str(text.into()),
            Value::Array(_) => Meta::strings(plain.strings(key).unwrap()),
            other => panic!("{key}: {other:?}"),
        };
        file = file.key(key, value);
    }
    for info in plain.tensors() {
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(plain.bytes(&info).unwrap());
        if let Some(stem) = info.name().strip_suffix(".weight")
            && ["attn_k", "attn_output", "ffn_up", "ffn_down"].iter().any(|m| stem.ends_with(m))
        {
            values.iter_mut().for_each(|value| *value /= 4.0);
            file = file.tensor(&format!("{stem}.scale"), &[1], Format::F32, &[4.0]);
        }
        file = file.tensor(info.name(), info.shape(), Format::F32, &values);
    }
    let model = Model::from_gguf(Gguf::from_bytes(file.write().bytes, "scaled").unwrap()).unwrap();
    for (_, runtime) in devices::every(false) {
        run(&runtime, &model, row);
    }
}

#[test]
fn every_architecture_is_read_from_a_folder() {
    let golden = golden();
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    for row in &golden {
        let place = folder(row);
        let model = Model::open(&place.0, Access::Mmap).unwrap();
        assert_eq!(model.config().architecture.name, name(row));
        run(&runtime, &model, row);
    }
}
