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
    /// Whether the model reads a whole text at once, and returns its hidden states: every token
    /// attends to all tokens of its text, there is no KV cache, and no text is generated.
    pub encodes: bool,
    /// The norm that all norms of the model are.
    pub norm: Norm,
    /// What is added to the embedding of a token, before the first layer.
    pub embedding: EmbeddingParts,
    /// Which elements of a head rotate together.
    pub rope: RopePairs,
    /// Whether q, k and v are merged into one matrix, `attn_qkv`.
    pub merged_qkv: bool,
    /// Whether gate and up are merged into one matrix, `ffn_up`.
    pub merged_gate: bool,
    /// Names of the matrices in each layer that must have a bias. Other matrices may have one too.
    pub biases: &'static [&'static str],
    /// Whether and how q and k are normalised before their rotation: `attn_q_norm`, `attn_k_norm`.
    pub head_norms: HeadNorms,
    /// Whether the inputs of attention and feed-forward are normalised: `attn_norm`, and the tensor
    /// that `ffn_norm` names.
    pub pre_norms: bool,
    /// Name of the norm of the feed-forward network's input.
    pub ffn_norm: &'static str,
    /// Whether the inputs of `attn_output` and `ffn_down` are normalised: `attn_sub_norm`,
    /// `ffn_sub_norm`.
    pub sub_norms: bool,
    /// Whether the outputs of attention and feed-forward are normalised before they are added to
    /// the hidden state: `post_attention_norm`, `post_ffw_norm`.
    pub post_norms: bool,
    /// Whether the sums of the hidden state and of what attention and feed-forward add to it are
    /// normalised: `attn_output_norm`, `layer_output_norm`. Such a model has no norm after the last
    /// layer.
    pub sum_norms: bool,
    /// Whether the feed-forward network has a gate, `ffn_gate`, to which the activation function is
    /// applied; otherwise it is applied to `ffn_up`.
    pub gated: bool,
    /// The activation function of the feed-forward network.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the square root of the hidden state's width.
    pub scales_embedding: bool,
    /// Whether the file has factors of the embedding, of what a layer adds, and of the logits:
    /// `embedding_scale`, `residual_scale`, `logit_scale`.
    pub has_scales: bool,
    /// Which layers rotate queries and keys.
    pub rotated: Rotated,
    /// Whether `attn_q` also computes a gate of the result of attention, head by head.
    pub gated_attention: bool,
    /// Default bound of the attention scores (soft cap), for files without `attn_logit_softcapping`;
    /// `None` if scores have none.
    pub score_cap: Option<f64>,
    /// Default bound of the logits, for files without `final_logit_softcapping`, 0 for no bound;
    /// `None` if logits have none.
    pub logit_cap: Option<f64>,
    /// Whether each head has a sink, which takes part in the sum of its weights: `attn_sinks`.
    pub has_sinks: bool,
    /// Whether YaRN rounds the pairs at its borders, for files that do not say so.
    pub rounds_yarn: bool,
    /// Whether some layers are gated delta nets.
    pub delta_nets: bool,
    /// Whether layers without key and value heads are gated short convolutions, `shortconv.conv`.
    pub short_convs: bool,
    /// Name of the norm after the last layer.
    pub output_norm: &'static str,
    /// Whether queries may have a factor that grows with the position: `attention.temperature_scale`.
    pub tempers: bool,
    /// The mixture of experts that replaces the feed-forward network, if there is one.
    pub experts: Option<Routing>,
    /// Whether values are normalised, each head by itself and without a weight, and whether keys before
    /// their norm are the values of layers without `attn_v`.
    pub unit_values: bool,
    /// Whether heads, the feed-forward network, and what layers keep of a text may differ from layer to
    /// layer: keys of `layer_sizes`.
    pub varies: bool,
    /// Which layers use sliding-window attention.
    pub windows: Windows,
    /// Default size of the window, in keys, for files without `attention.sliding_window`; `None` if
    /// such a file has no window.
    pub default_window: Option<u32>,
    /// Default base of the rotary frequencies of sliding-window layers, for files without
    /// `rope.freq_base_swa`; `None` if all layers use the same frequencies.
    pub local_rope_base: Option<f64>,
    /// Factor of the attention scores, for files without `attention.scale`; `None` for
    /// `1 / sqrt(head size)`.
    pub default_scale: Option<f64>,
    /// What is put before a text that is a query, and before one that is searched, in models that make
    /// vectors of texts; `None` if nothing is known.
    pub prompts: Option<[&'static str; 2]>,
    /// Whether a reranker of this architecture answers yes or no, after a text that asks for it.
    pub answers: bool,
    /// Whether dense layers may follow the vector of a text: `dense_2`, `dense_3`.
    pub dense: bool,
    /// Layer count of the one model size in which attention scores are scaled by
    /// `1 / sqrt(width / heads)` instead of `1 / sqrt(head size)`, unless the file has
    /// `attention.scale`.
    pub scales_by_width: Option<usize>,
}

/// A norm of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Norm {
    /// RMSNorm, with a weight.
    Rms,
    /// LayerNorm, with a weight and a bias.
    Layer,
}

/// What is added to the embedding of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddingParts {
    /// Nothing.
    None,
    /// A row of `token_types`, by the token's type; the sum is normalised: `token_embd_norm`.
    Types,
    /// As `Types`, and a row of `position_embd`, by the position.
    PositionsAndTypes,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadNorms {
    /// None.
    None,
    /// Each head by itself, with one weight of a head's size.
    Each,
    /// As `Each`, in files that have the weights.
    EachIfPresent,
    /// All heads as one row, with a weight for each element.
    Whole,
}

/// Which layers rotate queries and keys by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rotated {
    /// All layers.
    All,
    /// No layer: positions are part of the embedding.
    None,
    /// All layers but every n-th, counted from 1.
    AllBut(usize),
    /// Layers with a sliding window; all layers if the file states none.
    Windowed,
}

/// How a mixture of experts chooses experts and weighs their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Routing {
    /// The function that makes weights of logits.
    pub gate: Gate,
    /// Whether the weights of the chosen experts are divided by their sum, for files that do not
    /// say so (`expert_weights_norm`).
    pub normalises: bool,
    /// Whether `exp_probs_b` is added to the weights by which experts are chosen, and only there.
    pub has_selection_bias: bool,
    /// Whether a network beside the experts computes every token: `ffn_up_shexp` and its kin.
    pub shared: Sharing,
    /// Whether the feed-forward network computes every token too, each with norms of its own, and
    /// files may have no experts.
    pub is_beside: bool,
}

/// A network that computes every token beside a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// None.
    None,
    /// Its result is added to that of the experts.
    Plain,
    /// Its result is first multiplied by the sigmoid of a product of its own,
    /// `ffn_gate_inp_shexp`.
    Gated,
}

/// The function that makes weights of a router's logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
}

/// The activation function of the feed-forward gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
    /// GELU.
    Gelu,
    /// `max(x, 0)^2`.
    ReluSquared,
    /// `x * sigmoid(1.702 x)` of gates that are at most 7; the other operand, which is kept within -7
    /// and 7, is increased by 1.
    ClampedSwiglu,
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
    encodes: false,
    norm: Norm::Rms,
    embedding: EmbeddingParts::None,
    rope: RopePairs::Half,
    merged_qkv: false,
    merged_gate: false,
    biases: &[],
    head_norms: HeadNorms::None,
    pre_norms: true,
    ffn_norm: "ffn_norm",
    sub_norms: false,
    post_norms: false,
    sum_norms: false,
    gated: true,
    activation: Activation::Silu,
    scales_embedding: false,
    has_scales: false,
    rotated: Rotated::All,
    gated_attention: false,
    score_cap: None,
    logit_cap: None,
    has_sinks: false,
    rounds_yarn: true,
    delta_nets: false,
    short_convs: false,
    output_norm: "output_norm",
    tempers: false,
    experts: None,
    unit_values: false,
    varies: false,
    windows: Windows::None,
    default_window: None,
    local_rope_base: None,
    default_scale: None,
    prompts: None,
    answers: false,
    dense: false,
    scales_by_width: None,
};

/// A softmax over all experts, whose weights are divided by their sum.
const SOFTMAX: Routing = Routing {
    gate: Gate::Softmax,
    normalises: true,
    has_selection_bias: false,
    shared: Sharing::None,
    is_beside: false,
};

/// What both architectures of Qwen 3.5 have in common.
const QWEN35: Architecture = Architecture {
    head_norms: HeadNorms::Each,
    ffn_norm: "post_attention_norm",
    gated_attention: true,
    delta_nets: true,
    ..PLAIN
};

/// What is put before queries of models that the authors of Qwen 3 made for vectors.
const QWEN3_QUERY: &str = "Instruct: Given a web search query, retrieve relevant passages that answer \
                           the query\nQuery:";

/// Gemma 3, and its encoder but for what makes it one.
const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    head_norms: HeadNorms::Each,
    post_norms: true,
    activation: Activation::GeluTanh,
    scales_embedding: true,
    windows: Windows::AllBut(6),
    local_rope_base: Some(10_000.0),
    ..PLAIN
};

/// Every supported architecture.
static ALL: [Architecture; 26] = [
    Architecture::LLAMA,
    Architecture { name: "qwen2", biases: &["attn_q", "attn_k", "attn_v"], ..PLAIN },
    Architecture {
        name: "qwen3",
        head_norms: HeadNorms::Each,
        prompts: Some([QWEN3_QUERY, ""]),
        answers: true,
        ..PLAIN
    },
    // The 27-billion-parameter model has 62 layers.
    Architecture { scales_by_width: Some(62), ..GEMMA3 },
    Architecture {
        name: "gemma4",
        logit_cap: Some(0.0),
        unit_values: true,
        varies: true,
        experts: Some(Routing { is_beside: true, ..SOFTMAX }),
        default_scale: Some(1.0),
        ..GEMMA3
    },
    Architecture {
        name: "gemma2",
        post_norms: true,
        activation: Activation::GeluTanh,
        scales_embedding: true,
        score_cap: Some(50.0),
        logit_cap: Some(30.0),
        windows: Windows::AllBut(2),
        default_window: Some(4096),
        // The 27-billion-parameter model.
        scales_by_width: Some(46),
        ..PLAIN
    },
    Architecture {
        name: "phi3",
        merged_qkv: true,
        merged_gate: true,
        windows: Windows::Every,
        ..PLAIN
    },
    Architecture { name: "qwen3moe", head_norms: HeadNorms::Each, experts: Some(SOFTMAX), ..PLAIN },
    Architecture {
        name: "gpt-oss",
        biases: &["attn_q", "attn_k", "attn_v", "attn_output"],
        ffn_norm: "post_attention_norm",
        activation: Activation::ClampedSwiglu,
        has_sinks: true,
        rounds_yarn: false,
        experts: Some(SOFTMAX),
        windows: Windows::AllBut(2),
        ..PLAIN
    },
    Architecture { name: "qwen35", ..QWEN35 },
    Architecture {
        name: "qwen35moe",
        experts: Some(Routing { shared: Sharing::Gated, ..SOFTMAX }),
        ..QWEN35
    },
    Architecture {
        name: "lfm2",
        head_norms: HeadNorms::Each,
        short_convs: true,
        output_norm: "token_embd_norm",
        ..PLAIN
    },
    Architecture { name: "mistral3", rope: RopePairs::Interleaved, tempers: true, ..PLAIN },
    Architecture { name: "ernie4_5", rope: RopePairs::Interleaved, ..PLAIN },
    Architecture {
        name: "ernie4_5-moe",
        rope: RopePairs::Interleaved,
        experts: Some(Routing { has_selection_bias: true, shared: Sharing::Plain, ..SOFTMAX }),
        ..PLAIN
    },
    Architecture {
        name: "glm4moe",
        head_norms: HeadNorms::EachIfPresent,
        ffn_norm: "post_attention_norm",
        experts: Some(Routing {
            gate: Gate::Sigmoid,
            has_selection_bias: true,
            shared: Sharing::Plain,
            ..SOFTMAX
        }),
        ..PLAIN
    },
    Architecture {
        name: "smollm3",
        rope: RopePairs::Interleaved,
        rotated: Rotated::AllBut(4),
        ..PLAIN
    },
    Architecture {
        name: "seed_oss",
        biases: &["attn_q", "attn_k", "attn_v"],
        ffn_norm: "post_attention_norm",
        ..PLAIN
    },
    Architecture {
        name: "olmo2",
        head_norms: HeadNorms::Whole,
        pre_norms: false,
        post_norms: true,
        ..PLAIN
    },
    Architecture {
        name: "exaone4",
        head_norms: HeadNorms::Each,
        pre_norms: false,
        post_norms: true,
        rotated: Rotated::Windowed,
        windows: Windows::AllBut(4),
        ..PLAIN
    },
    Architecture { name: "granite", rope: RopePairs::Interleaved, has_scales: true, ..PLAIN },
    Architecture { name: "bitnet", sub_norms: true, ..PLAIN },
    Architecture {
        name: "bitnet-b1.58",
        sub_norms: true,
        activation: Activation::ReluSquared,
        ..PLAIN
    },
    Architecture {
        name: "bert",
        encodes: true,
        norm: Norm::Layer,
        embedding: EmbeddingParts::PositionsAndTypes,
        biases: &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"],
        pre_norms: false,
        sum_norms: true,
        gated: false,
        activation: Activation::Gelu,
        rotated: Rotated::None,
        ..PLAIN
    },
    Architecture {
        name: "gemma-embedding",
        encodes: true,
        prompts: Some(["task: search result | query: ", "title: none | text: "]),
        dense: true,
        ..GEMMA3
    },
    Architecture {
        name: "nomic-bert",
        encodes: true,
        norm: Norm::Layer,
        embedding: EmbeddingParts::Types,
        merged_qkv: true,
        pre_norms: false,
        sum_norms: true,
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
