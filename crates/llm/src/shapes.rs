//! Hyperparameters of real models, for making plans without the model files.

use crate::config::{Architecture, Config, LayerSizes, Pooling, RopeScaling, Window};

/// Returns the config of SmolLM2-135M: 30 layers, 9 query heads, 3 key and value heads, a tied
/// embedding.
pub fn smollm2_135m() -> Config {
    Config {
        architecture: &Architecture::LLAMA,
        layers: 30,
        width: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        feed_forward: 1536,
        experts: None,
        delta_net: None,
        short_convs: None,
        temperature: None,
        layer_sizes: LayerSizes::default(),
        context: 8192,
        vocabulary: 49_152,
        token_types: 0,
        pooling: Pooling::Last,
        dense: Vec::new(),
        norm_epsilon: 1e-5,
        attention_scale: 0.125,
        score_cap: None,
        logit_cap: None,
        window: None,
        rope_base: 100_000.0,
        local_rope_base: None,
        rope_dim: 64,
        rope_scaling: RopeScaling::None,
        has_rope_factors: false,
        unrotated_period: None,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        tied_output: true,
    }
}

/// Returns the config of Qwen2.5-0.5B: 24 layers, 14 query heads, 2 key and value heads, biases on
/// q, k and v, and a separate output matrix as in the Coder variant. Returns `None` if the
/// architecture is not supported.
pub fn qwen2_5_0_5b() -> Option<Config> {
    Some(Config {
        architecture: Architecture::of("qwen2")?,
        layers: 24,
        width: 896,
        heads: 14,
        kv_heads: 2,
        feed_forward: 4864,
        context: 32_768,
        vocabulary: 151_936,
        norm_epsilon: 1e-6,
        rope_base: 1e6,
        tied_output: false,
        ..smollm2_135m()
    })
}

/// Returns the config of Gemma 3 270M: 18 layers, 4 query heads, one key and value head, head size
/// 256, and windows of 512 keys in five of every six layers. Returns `None` if the architecture is
/// not supported.
pub fn gemma3_270m() -> Option<Config> {
    Some(Config {
        architecture: Architecture::of("gemma3")?,
        layers: 18,
        width: 640,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        feed_forward: 2048,
        context: 32_768,
        vocabulary: 262_144,
        norm_epsilon: 1e-6,
        attention_scale: 0.0625,
        window: Some(Window { size: 512, period: Some(6) }),
        rope_base: 1e6,
        local_rope_base: Some(10_000.0),
        rope_dim: 256,
        embedding_scale: 640.0f32.sqrt(),
        ..smollm2_135m()
    })
}
