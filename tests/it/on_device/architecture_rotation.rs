//! Scaling of rotary frequencies in files of tiny models, as llama.cpp's converter writes it.

use serde_json::Value as Json;

use crate::gguf_writer::Meta;

/// YaRN's keys as llama.cpp's converter writes them, with `attn_factor` beyond 1 + ln(factor) / 10, and our
/// key for borders that are not rounded.
pub(super) fn yarn_keys(arch: &str, rope: &Json) -> Vec<(&'static str, Meta)> {
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
    ];
    match (arch, get("mscale_all_dim"), get("llama_4_scaling_beta")) {
        ("mistral3", Some(all), Some(_)) => keys.push(("yarn_log_multiplier", float(all))),
        _ => keys.push(("attn_factor", float(attention / magnitude(1.0)))),
    }
    for (ours, theirs) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
        keys.extend(get(theirs).map(|number| (ours, float(number))));
    }
    if rope["truncate"] == false {
        keys.push(("yarn_truncate", Meta::Bool(false)));
    }
    keys
}

/// Llama 3's scaling as in llama.cpp's converter: by wavelengths.
pub(super) fn llama3_factors(rope: &Json, dim: u32) -> Vec<f32> {
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
