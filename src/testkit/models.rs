//! The numbers of real models, for plans that are made without their files.

use crate::llm::config::{Config, RopeScaling};

/// SmolLM2-135M: 30 layers, 9 query and 3 key heads, a tied embedding.
pub fn smollm2_135m() -> Config {
    Config {
        architecture: "llama".into(),
        layers: 30,
        width: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        feed_forward: 1536,
        context: 8192,
        vocabulary: 49_152,
        norm_epsilon: 1e-5,
        rope_base: 100_000.0,
        rope_dim: 64,
        rope_scaling: RopeScaling::None,
        has_rope_factors: false,
        tied_output: true,
    }
}
