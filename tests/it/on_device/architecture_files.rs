//! Files of tiny models whose weights a formula gives (`tests/golden/architectures`), in GGUF as
//! llama.cpp's converter writes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value as Json;
use warploom_core::base::Format;
use warploom_models::gguf::Gguf;

use super::architecture_gemma4 as gemma4;
use super::architecture_rotation::{llama3_factors, yarn_keys};
use crate::gguf_writer::{Meta, Writer};

/// The models; each has its prompts.
pub(super) fn golden() -> Vec<Json> {
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

pub(super) fn prompts(model: &Json) -> Vec<Vec<u32>> {
    serde_json::from_value(model["prompts"].clone()).unwrap()
}

/// The architecture, and what is special about this model of it.
pub(super) fn label(model: &Json) -> String {
    match model["variant"].as_str() {
        Some(variant) => format!("{} ({variant})", name(model)),
        None => name(model).into(),
    }
}

pub(super) fn name(model: &Json) -> &str {
    model["name"].as_str().unwrap()
}

pub(super) fn logits(model: &Json, prompt: usize) -> Vec<f64> {
    serde_json::from_value(model["logits"][prompt].clone()).unwrap()
}

pub(super) fn number(model: &Json, key: &str) -> Option<u64> {
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
pub(super) fn tensor(model: &Json, source: &str) -> (Vec<u64>, Vec<f32>) {
    let shape: Vec<u64> = serde_json::from_value(model["tensors"][source].clone()).unwrap();
    let mut values = numbers(source, shape.iter().product::<u64>() as usize);
    let (scale, offset) = match source.rsplit_once('.').unwrap() {
        (_, "layer_scalar" | "scale" | "per_expert_scale") => (4.0, 1.0),
        (stem, "weight")
            if ["norm", "norm_1", "norm_2", "Norm", "norm1", "norm2", "emb_ln"]
                .iter()
                .any(|n| stem.ends_with(n)) =>
        {
            let plain = !is_less_one(name(model)) || stem.ends_with("linear_attn.norm");
            (4.0, if plain { 1.0 } else { 0.0 })
        }
        (stem, "weight")
            if ["embed_tokens", "embed_tokens_per_layer"].iter().any(|n| stem.ends_with(n))
                || stem.ends_with("embeddings") =>
        {
            (1.0, 0.0)
        }
        (_, kind) => (if kind == "bias" { 4.0 } else { 8.0 }, 0.0),
    };
    values.iter_mut().for_each(|value| *value = *value / scale + offset);
    (shape, values)
}

pub(super) fn sources(model: &Json) -> Vec<String> {
    model["tensors"].as_object().unwrap().keys().cloned().collect()
}

/// The GGUF name of a tensor.
fn gguf_name(architecture: &str, source: &str) -> String {
    let (stem, kind) = source.rsplit_once('.').unwrap();
    // Files of models without an output matrix lack the prefix.
    let long = match ["embed_tokens", "layers", "norm"].contains(&stem.split('.').next().unwrap()) {
        true => format!("model.{stem}"),
        false => stem.to_owned(),
    };
    let stem = match &*long {
        "dense_2" | "dense_3" => stem.to_owned(),
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.embed_tokens_per_layer" => "per_layer_token_embd".to_owned(),
        "model.per_layer_model_projection" => "per_layer_model_proj".to_owned(),
        "model.per_layer_projection_norm" => "per_layer_proj_norm".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "model.embedding_norm" => "token_embd_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        _ => {
            let in_layer = long.strip_prefix("model.layers.").unwrap();
            if let Some(name) = gemma4::name(in_layer, kind) {
                return name;
            }
            let (layer, part) = in_layer.split_once('.').unwrap();
            let part = match (architecture, part) {
                (_, "input_layernorm" | "operator_norm") => "attn_norm",
                (_, "ffn_norm") => "ffn_norm",
                (_, "self_attn.out_proj") => "attn_output",
                (_, "self_attn.q_layernorm") => "attn_q_norm",
                (_, "self_attn.k_layernorm") => "attn_k_norm",
                (_, "conv.in_proj") => "shortconv.in_proj",
                (_, "conv.conv") => "shortconv.conv",
                (_, "conv.out_proj") => "shortconv.out_proj",
                (_, "feed_forward.w1") => "ffn_gate",
                (_, "feed_forward.w2") => "ffn_down",
                (_, "feed_forward.w3") => "ffn_up",
                (
                    "gemma2" | "gemma3" | "gemma4" | "gemma-embedding" | "olmo2" | "exaone4"
                    | "seed_oss" | "qwen35" | "qwen35moe" | "gpt-oss" | "glm4moe",
                    "post_attention_layernorm",
                ) => "post_attention_norm",
                (_, "pre_feedforward_layernorm") => "ffn_norm",
                (_, "post_feedforward_layernorm") => "post_ffw_norm",
                (_, "post_attention_layernorm") => "ffn_norm",
                (_, "self_attn.q_proj") => "attn_q",
                (_, "self_attn.k_proj") => "attn_k",
                (_, "self_attn.v_proj") => "attn_v",
                (_, "self_attn.qkv_proj") => "attn_qkv",
                (_, "self_attn.o_proj") => "attn_output",
                (_, "self_attn.q_norm") => "attn_q_norm",
                (_, "self_attn.k_norm") => "attn_k_norm",
                (_, "self_attn.attn_sub_norm") => "attn_sub_norm",
                (_, "linear_attn.in_proj_qkv") => "attn_qkv",
                (_, "linear_attn.in_proj_z") => "attn_gate",
                (_, "linear_attn.in_proj_b") => "ssm_beta",
                (_, "linear_attn.in_proj_a") => "ssm_alpha",
                (_, "linear_attn.conv1d") => "ssm_conv1d",
                (_, "linear_attn.norm") => "ssm_norm",
                (_, "linear_attn.out_proj") => "ssm_out",
                (_, "linear_attn") if kind == "dt_bias" => {
                    return format!("blk.{layer}.ssm_dt.bias");
                }
                (_, "linear_attn") if kind == "A_log" => return format!("blk.{layer}.ssm_a"),
                (_, "self_attn") if kind == "sinks" => {
                    return format!("blk.{layer}.attn_sinks.weight");
                }
                (_, "mlp.router") => "ffn_gate_inp",
                (_, "mlp.shared_expert_gate") => "ffn_gate_inp_shexp",
                (_, "mlp.gate" | "mlp.moe_statics") if kind == "e_score_correction_bias" => {
                    return format!("blk.{layer}.exp_probs_b.bias");
                }
                (_, "mlp.shared_experts.gate_proj") => "ffn_gate_shexp",
                (_, "mlp.shared_experts.up_proj") => "ffn_up_shexp",
                (_, "mlp.shared_experts.down_proj") => "ffn_down_shexp",
                (_, "mlp.shared_expert.gate_proj") => "ffn_gate_shexp",
                (_, "mlp.shared_expert.up_proj") => "ffn_up_shexp",
                (_, "mlp.shared_expert.down_proj") => "ffn_down_shexp",
                (_, "mlp.gate") => "ffn_gate_inp",
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

/// The matrices of all experts as one tensor, by GGUF name.
fn experts(model: &Json) -> BTreeMap<String, (Vec<u64>, Vec<f32>)> {
    let mut all = BTreeMap::new();
    let keys = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
    let count = keys.iter().find_map(|key| number(model, key)).unwrap_or(0);
    for source in sources(model).iter().filter(|source| source.contains(".mlp.experts.0.")) {
        let (layer, part) = source.split_once(".mlp.experts.0.").unwrap();
        let layer = layer.strip_prefix("model.layers.").unwrap();
        let part = part.strip_suffix("_proj.weight").unwrap();
        let each: Vec<_> = (0..count)
            .map(|expert| {
                tensor(model, &source.replace("experts.0.", &format!("experts.{expert}.")))
            })
            .collect();
        let shape = [&[count], &each[0].0[..]].concat();
        let values = each.into_iter().flat_map(|(_, values)| values).collect();
        all.insert(format!("blk.{layer}.ffn_{part}_exps.weight"), (shape, values));
    }
    for source in
        sources(model).iter().filter(|source| source.contains(".mlp.experts.gate_up_proj"))
    {
        // Gates and the other operand take turns, in the columns of a transposed matrix.
        let layer = source.strip_prefix("model.layers.").unwrap().split('.').next().unwrap();
        let (shape, values) = tensor(model, source);
        let last = *shape.last().unwrap();
        let kind = if source.ends_with("_bias") { "bias" } else { "weight" };
        for (first, part) in [(0, "gate"), (1, "up")] {
            let own: Vec<f32> = values.iter().skip(first).step_by(2).copied().collect();
            let own = experts_of(shape[0], last / 2, &own);
            all.insert(format!("blk.{layer}.ffn_{part}_exps.{kind}"), own);
        }
        let source = source.replace("gate_up_proj", "down_proj");
        let (shape, values) = tensor(model, &source);
        let own = experts_of(shape[0], *shape.last().unwrap(), &values);
        all.insert(format!("blk.{layer}.ffn_down_exps.{kind}"), own);
    }
    all
}

/// The matrices `[n, k]` of experts that are stored as `[k, n]`, or their vectors `[n]`.
fn experts_of(count: u64, n: u64, values: &[f32]) -> (Vec<u64>, Vec<f32>) {
    let k = values.len() as u64 / (count * n);
    let at = |e: u64, row: u64, column: u64| values[((e * k + column) * n + row) as usize];
    let all =
        (0..count).flat_map(|e| (0..n).flat_map(move |row| (0..k).map(move |c| at(e, row, c))));
    let shape = if k == 1 { vec![count, n] } else { vec![count, n, k] };
    (shape, all.collect())
}

/// Whether llama.cpp's converter orders rows of queries and keys for neighbours to rotate.
fn is_interleaved(arch: &str) -> bool {
    matches!(arch, "llama" | "mistral3" | "smollm3" | "granite")
}

/// Whether files of this architecture store the weights of norms minus 1.
fn is_less_one(arch: &str) -> bool {
    matches!(arch, "gemma2" | "gemma3" | "gemma-embedding" | "qwen35" | "qwen35moe")
}

/// A tensor of a gated delta net as llama.cpp's converter writes it: value heads in the order in
/// which head `h` has the keys of `h % key_heads`, and the factors of decays without their logarithm.
fn tiled(model: &Json, name: &str, shape: &[u64], mut values: Vec<f32>) -> Vec<f32> {
    let of = |key: &str| number(model, key).unwrap() as usize;
    let (keys, heads) = (of("linear_num_key_heads"), of("linear_num_value_heads"));
    let e = of("linear_value_head_dim");
    let source = |head: usize| head % keys * (heads / keys) + head / keys;
    if name.ends_with("ssm_a") {
        values.iter_mut().for_each(|value| *value = -value.exp());
    }
    let columns = shape.get(1).copied().unwrap_or(1) as usize;
    // Elements of the row of a head, and elements before the first value head.
    let (row, before) = match name.rsplit_once("blk.").unwrap().1.split_once('.').unwrap().1 {
        "attn_qkv.weight" | "ssm_conv1d.weight" => (e * columns, 2 * keys * e * columns),
        "attn_gate.weight" => (e * columns, 0),
        "ssm_beta.weight" | "ssm_alpha.weight" => (columns, 0),
        "ssm_dt.bias" | "ssm_a" => (1, 0),
        "ssm_out.weight" => {
            let rows = values.chunks(columns);
            let head = |row: &[f32], head: usize| row[source(head) * e..][..e].to_vec();
            return rows.flat_map(|row| (0..heads).flat_map(move |h| head(row, h))).collect();
        }
        "ssm_norm.weight" => return values,
        other => panic!("{other}"),
    };
    let sorted: Vec<f32> =
        (0..heads).flat_map(|h| values[before + source(h) * row..][..row].to_vec()).collect();
    values.splice(before.., sorted);
    values
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

/// Whole numbers of the config: the key in GGUF, and that of `transformers`.
const COUNTS: [(&str, &str); 26] = [
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "head_dim"),
    ("attention.sliding_window", "sliding_window"),
    ("expert_count", "num_local_experts"),
    ("expert_count", "num_experts"),
    ("expert_count", "n_routed_experts"),
    ("expert_count", "moe_num_experts"),
    ("expert_used_count", "moe_k"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_shared_count", "moe_num_shared_experts"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("leading_dense_block_count", "moe_layer_start_index"),
    ("interleave_moe_layer_step", "moe_layer_interval"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("ssm.conv_kernel", "linear_conv_kernel_dim"),
    ("ssm.state_size", "linear_key_head_dim"),
    ("ssm.group_count", "linear_num_key_heads"),
    ("ssm.time_step_rank", "linear_num_value_heads"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

/// The file that llama.cpp's converter would write, except for the tokenizer.
pub(super) fn gguf(model: &Json) -> Gguf {
    Gguf::from_bytes(gguf_bytes(model), &format!("{} of a formula", name(model))).unwrap()
}

/// Adds the keys of experts that are not those of `COUNTS`.
fn expert_keys(model: &Json, mut file: Writer) -> Writer {
    let arch = name(model);
    let key = |key: &str| format!("{arch}.{key}");
    if let Some(shared) = number(model, "moe_num_shared_experts") {
        let inner = shared * number(model, "moe_intermediate_size").unwrap();
        file = file.key(&key("expert_shared_feed_forward_length"), Meta::U32(inner as u32));
    }
    if arch == "glm4moe" {
        // The sigmoid.
        file = file.key(&key("expert_gating_func"), Meta::U32(2));
        file = file.key(&key("expert_weights_norm"), Meta::Bool(true));
    }
    if arch == "gpt-oss" {
        let inner = number(model, "intermediate_size").unwrap();
        file = file.key(&key("expert_feed_forward_length"), Meta::U32(inner as u32));
    }
    file
}

pub(super) fn gguf_bytes(model: &Json) -> Vec<u8> {
    gguf_with(model, &[], &[]).write().bytes
}

/// The same with more keys of the architecture, and more matrices.
pub(super) fn gguf_with(
    model: &Json,
    keys: &[(&str, Meta)],
    matrices: &[(&str, [u64; 2], Vec<f32>)],
) -> Writer {
    let arch = name(model);
    let key = |key: &str| format!("{arch}.{key}");
    let mut file = Writer::new().key("general.architecture", Meta::Str(arch.into()));
    for (name, value) in keys {
        file = file.key(&key(name), value.clone());
    }
    for (name, shape, values) in matrices {
        file = file.tensor(name, shape, Format::F32, values);
    }
    let of_layers = arch == "gemma4";
    if of_layers {
        file = gemma4::keys(model, file);
    }
    for (ours, theirs) in COUNTS {
        let is_own = of_layers && gemma4::OWN.contains(&ours)
            || arch == "lfm2" && ours == "attention.head_count_kv";
        if is_own {
            continue;
        }
        if let Some(n) = number(model, theirs) {
            file = file.key(&key(ours), Meta::U32(n as u32));
        }
    }
    file = expert_keys(model, file);
    if let Some(heads) = number(model, "linear_num_value_heads") {
        let inner = heads * number(model, "linear_value_head_dim").unwrap();
        file = file.key(&key("ssm.inner_size"), Meta::U32(inner as u32));
        // Positions of texts are equal in all sections.
        file = file.key(&key("rope.dimension_sections"), Meta::i32s([2, 1, 1, 0]));
    }
    let rope = &model["config"]["rope_parameters"];
    let rope = rope.get("full_attention").unwrap_or(rope);
    let float = |json: &Json| Meta::F32(json.as_f64().unwrap() as f32);
    if arch == "lfm2" {
        file = lfm2_keys(model, file);
    }
    let epsilon = &model["config"]["norm_eps"];
    let epsilon = if epsilon.is_null() { &model["config"]["rms_norm_eps"] } else { epsilon };
    file = file
        .key(&key("attention.layer_norm_rms_epsilon"), float(epsilon))
        .key(&key("rope.freq_base"), float(&rope["rope_theta"]));
    if rope["rope_type"] == "linear" {
        file = file.key(&key("rope.scaling.type"), Meta::Str("linear".into()));
        file = file.key(&key("rope.scaling.factor"), float(&rope["factor"]));
    }
    if let Some(beta) = rope["llama_4_scaling_beta"].as_f64() {
        file = file.key(&key("attention.temperature_scale"), Meta::F32(beta as f32));
    }
    if rope["rope_type"] == "yarn" {
        for (ours, value) in yarn_keys(arch, rope) {
            file = file.key(&key(&format!("rope.scaling.{ours}")), value);
        }
    }
    let part = rope.get("partial_rotary_factor").and_then(Json::as_f64);
    if let Some(part) = part.filter(|_| !of_layers) {
        let head = number(model, "head_dim").unwrap_or_else(|| {
            number(model, "hidden_size").unwrap() / number(model, "num_attention_heads").unwrap()
        });
        file = file.key(&key("rope.dimension_count"), Meta::U32((head as f64 * part) as u32));
    }
    let factors: [(&str, &str); 7] = [
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("attention.scale", "attention_multiplier"),
        ("logit_scale", "logits_scaling"),
        ("expert_weights_scale", "routed_scaling_factor"),
    ];
    for (ours, theirs) in factors {
        if let Some(factor) = model["config"][theirs].as_f64() {
            file = file.key(&key(ours), Meta::F32(factor as f32));
        }
    }
    if let Some(scalar) = model["config"]["query_pre_attn_scalar"].as_f64() {
        file = file.key(&key("attention.scale"), Meta::F32((1.0 / scalar.sqrt()) as f32));
    }
    if rope["rope_type"] == "llama3" {
        let factors = llama3_factors(rope, 16);
        file = file.tensor("rope_freqs.weight", &[factors.len() as u64], Format::F32, &factors);
    }
    file = tokenizer_keys(model, file);
    with_tensors(model, file)
}

/// Adds the tensors, under their names and in the order of their rows in GGUF.
fn with_tensors(model: &Json, mut file: Writer) -> Writer {
    let arch = name(model);
    for (name, (shape, values)) in experts(model) {
        file = file.tensor(&name, &shape, Format::F32, &values);
    }
    for source in sources(model).iter().filter(|source| !source.contains(".mlp.experts.")) {
        let (shape, mut values) = tensor(model, source);
        let name = gguf_name(arch, source);
        if is_less_one(arch) && name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight")
        {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        let heads = match name.rsplit('.').nth(1) {
            Some("attn_q") if is_interleaved(arch) => number(model, "num_attention_heads"),
            Some("attn_k") if is_interleaved(arch) => number(model, "num_key_value_heads"),
            _ => None,
        };
        let shape = match ["linear_attn.conv1d.weight", "conv.conv.weight"]
            .iter()
            .find_map(|end| source.strip_suffix(end))
        {
            Some(_) => vec![shape[0], shape[2]],
            None if source.ends_with("shared_expert_gate.weight") => vec![shape[1]],
            None if source.ends_with("e_score_correction_bias") => vec![*shape.last().unwrap()],
            None => shape,
        };
        if source.contains(".linear_attn.") {
            values = tiled(model, &name, &shape, values);
        }
        if let Some(heads) = heads {
            values = interleaved(&values, heads, shape[1] as usize);
        }
        file = file.tensor(&name, &shape, Format::F32, &values);
    }
    file
}

/// Layers without key and value heads are convolutions.
fn lfm2_keys(model: &Json, file: Writer) -> Writer {
    let heads = number(model, "num_key_value_heads").unwrap() as i32;
    let types = model["config"]["layer_types"].as_array().unwrap();
    let of = |kind: &Json| if kind == "conv" { 0 } else { heads };
    let taps = number(model, "conv_L_cache").unwrap() as u32;
    file.key("lfm2.attention.head_count_kv", Meta::i32s(types.iter().map(of)))
        .key("lfm2.shortconv.l_cache", Meta::U32(taps))
}

/// Adds a byte-level tokenizer: that of the model's row, or one whose tokens are no texts.
fn tokenizer_keys(model: &Json, file: Writer) -> Writer {
    let count = number(model, "vocab_size").unwrap();
    let texts = |key: &str| serde_json::from_value::<Vec<String>>(model[key].clone()).ok();
    let tokens = texts("tokens").unwrap_or_else(|| (0..count).map(|i| format!("t{i}")).collect());
    let kind = |token: &String| if token.starts_with("<|") { 3 } else { 1 };
    let types: Vec<i32> = tokens.iter().map(kind).collect();
    let file = match types.contains(&3) {
        true => file.key("tokenizer.ggml.token_type", Meta::i32s(types)),
        false => file,
    };
    file.key("tokenizer.ggml.model", Meta::Str("gpt2".into()))
        .key("tokenizer.ggml.pre", Meta::Str("gpt-2".into()))
        .key("tokenizer.ggml.tokens", Meta::strings(tokens))
        .key("tokenizer.ggml.merges", Meta::strings(texts("merges").unwrap_or_default()))
}
