//! What differs between the architectures that can be run: one decoder, a row for each.
//!
//! A new architecture is a row here, one in `huggingface/names` and a model in
//! `tests/golden/architectures`. Tensors and keys have the names that GGUF files give them.

use warploom::ir::RopePairs;

/// One architecture, as far as its forward pass differs from the others'.
#[derive(Debug, PartialEq)]
pub struct Architecture {
    /// `general.architecture`, and what its keys begin with.
    pub name: &'static str,
    /// Which elements of a head rotate together.
    pub rope: RopePairs,
    /// Whether q, k and v are one matrix, `attn_qkv`, and gate and up another, `ffn_up`.
    pub merged: bool,
    /// Matrices of a layer that have a bias in every file. Any other may have one too.
    pub biases: &'static [&'static str],
    /// Whether each head of q and k is normalised before it rotates: `attn_q_norm`, `attn_k_norm`.
    pub head_norms: bool,
    /// Whether what `attn_output` and `ffn_down` read is normalised: `attn_sub_norm`,
    /// `ffn_sub_norm`.
    pub sub_norms: bool,
    /// Whether what the two halves of a layer give is normalised before it is added to the hidden
    /// state: `post_attention_norm`, `post_ffw_norm`.
    pub post_norms: bool,
    /// The function of the gate.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the root of the width.
    pub scales_embedding: bool,
    /// Which layers see a window of keys only.
    pub windows: Windows,
    /// Base of the rotary frequencies of layers with a window, where it is another one and the
    /// file does not say.
    pub local_rope_base: Option<f64>,
    /// Layers of the one size of model whose scores are scaled by `width / heads` rather than by
    /// the size of a head, which files do not say.
    pub scales_by_width: Option<usize>,
}

/// The function of the gate of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its approximation through tanh.
    GeluTanh,
    /// `max(x, 0)^2`.
    ReluSquared,
}

/// Which layers see a window of keys only, where the file gives the window's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// None: a file with a window is refused.
    None,
    /// Every layer.
    Every,
    /// All but each layer of this number, counted from 1, unless the file gives another number.
    AllBut(usize),
}

/// What most have in common.
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

/// Every architecture that can be run.
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
        // The model of 27 billion weights.
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
    /// Llama 1 to 3, and all that went by their form, Mistral too: some of those have a window.
    pub const LLAMA: Architecture = Architecture {
        name: "llama",
        rope: RopePairs::Interleaved,
        windows: Windows::Every,
        ..PLAIN
    };

    /// The architecture of a name; none where it is not known.
    pub fn of(name: &str) -> Option<&'static Architecture> {
        ALL.iter().find(|row| row.name == name)
    }

    /// The names that are known.
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
