//! What files of tiny models of `gemma4` have of their own: sizes that differ between layers.

use serde_json::Value as Json;
use warploom_core::base::Format;

use super::architecture_files::number;
use crate::gguf_writer::{Meta, Writer};

/// Keys that `keys` writes.
pub(super) const OWN: [&str; 4] = [
    "feed_forward_length",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
];

/// Whether each layer has a window.
fn windows(model: &Json) -> Vec<bool> {
    let types = model["config"]["layer_types"].as_array().unwrap();
    types.iter().map(|kind| kind == "sliding_attention").collect()
}

/// Adds the keys of llama.cpp's converter, and the factors by which a part of each wide head does not
/// rotate.
pub(super) fn keys(model: &Json, mut file: Writer) -> Writer {
    let config = &model["config"];
    let windows = windows(model);
    let full = windows.iter().position(|window| !window).unwrap();
    let of_full = |key: &str| config["per_layer_config"][full.to_string()][key].as_u64();
    let count = |key: &str| number(model, key).unwrap();
    let local = count("head_dim");
    let wide = of_full("head_dim").unwrap();
    let local_kv = count("num_key_value_heads");
    let wide_kv = of_full("num_key_value_heads").unwrap_or(local_kv);
    let shared = number(model, "num_kv_shared_layers").unwrap_or(0);
    let ff = count("intermediate_size");
    let own = windows.len() - shared as usize;
    let doubles = config["use_double_wide_mlp"] == true;
    let ffs = (0..windows.len()).map(|n| if doubles && n >= own { 2 * ff } else { ff } as i32);
    let kvs = windows.iter().map(|window| if *window { local_kv } else { wide_kv } as i32);
    let u32 = |n: u64| Meta::U32(n as u32);
    let embedding = number(model, "hidden_size_per_layer_input").unwrap_or(0);
    let pattern = Meta::Array(7, windows.iter().map(|window| Meta::Bool(*window)).collect());
    let mut all = vec![
        ("attention.shared_kv_layers", u32(shared)),
        ("embedding_length_per_layer_input", u32(embedding)),
        ("attention.sliding_window_pattern", pattern),
        ("attention.key_length", u32(wide)),
        ("attention.value_length", u32(wide)),
        ("attention.key_length_swa", u32(local)),
        ("attention.value_length_swa", u32(local)),
        ("rope.dimension_count", u32(wide)),
        ("rope.dimension_count_swa", u32(local)),
        ("rope.freq_base_swa", Meta::F32(1e4)),
        ("attention.head_count_kv", Meta::i32s(kvs)),
        ("feed_forward_length", if doubles { Meta::i32s(ffs) } else { u32(ff) }),
    ];
    all.extend(number(model, "top_k_experts").map(|n| ("expert_used_count", u32(n))));
    for (key, value) in all {
        file = file.key(&format!("gemma4.{key}"), value);
    }
    let part = config["rope_parameters"]["full_attention"]["partial_rotary_factor"].as_f64();
    let turned = (wide as f64 * part.unwrap()) as u64 / 2;
    let factors: Vec<f32> = (0..wide / 2).map(|i| if i < turned { 1.0 } else { 1e30 }).collect();
    file.tensor("rope_freqs.weight", &[wide / 2], Format::F32, &factors)
}

/// The GGUF name of a tensor that only these models have, `kind` being the last word of its name.
pub(super) fn name(in_layer: &str, kind: &str) -> Option<String> {
    let (layer, part) = in_layer.split_once('.').unwrap_or((in_layer, ""));
    let ours = match (part, kind) {
        ("", "layer_scalar") => "layer_output_scale.weight",
        ("per_layer_input_gate", _) => "inp_gate.weight",
        ("per_layer_projection", _) => "proj.weight",
        ("post_per_layer_input_norm", _) => "post_norm.weight",
        ("router", "scale") => "ffn_gate_inp.scale",
        ("router", "per_expert_scale") => "ffn_down_exps.scale",
        ("router.proj", _) => "ffn_gate_inp.weight",
        ("experts", "gate_up_proj") => "ffn_gate_up_exps.weight",
        ("experts", "down_proj") => "ffn_down_exps.weight",
        ("pre_feedforward_layernorm_2", _) => "pre_ffw_norm_2.weight",
        ("post_feedforward_layernorm_1", _) => "post_ffw_norm_1.weight",
        ("post_feedforward_layernorm_2", _) => "post_ffw_norm_2.weight",
        _ => return None,
    };
    Some(format!("blk.{layer}.{ours}"))
}
