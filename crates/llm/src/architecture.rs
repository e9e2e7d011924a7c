//! A table of the differences between the supported architectures, one row for each. All share one
//! decoder.
//!
//! To add an architecture, add a row here, a row in `huggingface/names` and a model in
//! `tests/golden/architectures`. Tensors and keys are given by their GGUF names.

use warploom::graph::RopePairs;

/// The properties of an architecture that determine its forward pass.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct Architecture {
    /// Value of `general.architecture`, and prefix of the architecture's keys.
    pub name: &'static str,
    /// Which elements of a head rotate together.
    pub rope: RopePairs,
    /// Whether q, k and v are merged into one matrix, `attn_qkv`, and gate and up into another,
    /// `ffn_up`.
    pub merged: bool,
    /// Names of the matrices in each layer that must have a bias. Other matrices may have one too.
    pub biases: &'static [&'static str],
    /// Whether each head of q and k is normalised before its rotation: `attn_q_norm`,
    /// `attn_k_norm`.
    pub head_norms: bool,
    /// Whether the inputs of `attn_output` and `ffn_down` are normalised: `attn_sub_norm`,
    /// `ffn_sub_norm`.
    pub sub_norms: bool,
    /// Whether the outputs of attention and feed-forward are normalised before they are added to
    /// the hidden state: `post_attention_norm`, `post_ffw_norm`.
    pub post_norms: bool,
    /// The activation function of the gate.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the square root of the hidden state's width.
    pub scales_embedding: bool,
    /// Which layers use sliding-window attention.
    pub windows: Windows,
    /// Default base of the rotary frequencies of sliding-window layers, for files without
    /// `rope.freq_base_swa`; `None` if all layers use the same frequencies.
    pub local_rope_base: Option<f64>,
    /// Layer count of the one model size in which attention scores are scaled by
    /// `1 / sqrt(width / heads)` instead of `1 / sqrt(head size)`, unless the file has
    /// `attention.scale`.
    pub scales_by_width: Option<usize>,
}

/// The activation function of the feed-forward gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
    /// `max(x, 0)^2`.
    ReluSquared,
}

/// Which layers use sliding-window attention, if the file has a window size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Windows {
    /// No layer; a file with a window size is refused.
    None,
    /// All layers.
    Every,
    /// All layers but every n-th, counted from 1. A period in the file takes precedence over n.
    AllBut(usize),
}

/// The default of each property.
const PLAIN: Architecture = Architecture {
    name: "",
    rope: RopePairs::Half,
    merged: false,
    biases: &[],
    head_norms: false,
    sub_norms: false,
    post_norms: false,
    activation: Activation::Silu,
    scales_embedding: false,
    windows: Windows::None,
    local_rope_base: None,
    scales_by_width: None,
};

/// Every supported architecture.
static ALL: [Architecture; 7] = [
    Architecture::LLAMA,
    Architecture { name: "qwen2", biases: &["attn_q", "attn_k", "attn_v"], ..PLAIN },
    Architecture { name: "qwen3", head_norms: true, ..PLAIN },
    Architecture {
        name: "gemma3",
        head_norms: true,
        post_norms: true,
        activation: Activation::GeluTanh,
        scales_embedding: true,
        windows: Windows::AllBut(6),
        local_rope_base: Some(10_000.0),
        // The 27-billion-parameter model.
        scales_by_width: Some(62),
        ..PLAIN
    },
    Architecture { name: "phi3", merged: true, windows: Windows::Every, ..PLAIN },
    Architecture { name: "bitnet", sub_norms: true, ..PLAIN },
    Architecture {
        name: "bitnet-b1.58",
        sub_norms: true,
        activation: Activation::ReluSquared,
        ..PLAIN
    },
];

impl Architecture {
    /// Llama 1 to 3, and models with the same network, such as Mistral. Some have a window.
    pub const LLAMA: Architecture = Architecture {
        name: "llama",
        rope: RopePairs::Interleaved,
        windows: Windows::Every,
        ..PLAIN
    };

    /// Returns the architecture with this name, or `None` if it is not supported.
    pub fn of(name: &str) -> Option<&'static Architecture> {
        ALL.iter().find(|row| row.name == name)
    }

    /// Returns the names of the supported architectures.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|row| row.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_own_row() {
        for name in Architecture::names() {
            assert_eq!(Architecture::of(name).map(|row| row.name), Some(name));
            assert_eq!(Architecture::names().filter(|n| *n == name).count(), 1, "{name} twice");
        }
        assert_eq!(Architecture::of("mamba"), None);
    }
}
