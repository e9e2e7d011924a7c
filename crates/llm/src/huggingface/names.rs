//! Translates tensor names of safetensors to those of GGUF, with a table row for each model type.

use super::config::Config;
use crate::config::Architecture;
use warploom::{Error, Result};

/// A model type of `transformers`: its defaults, and the GGUF names of its tensors.
#[derive(Debug)]
pub(super) struct Names {
    /// `model_type` of `config.json`.
    pub(super) model_type: &'static str,
    /// `hidden_act` or `hidden_activation` of `config.json`.
    pub(super) activation: &'static str,
    /// `use_bidirectional_attention` of `config.json`.
    bidirectional: bool,
    /// `general.architecture` of GGUF.
    pub(super) architecture: &'static str,
    /// Default base of the rotary frequencies.
    pub(super) rope_theta: f64,
    /// Whether the embedding is also the output matrix by default.
    pub(super) tied: bool,
    /// Whether matrices may have a bias.
    biases: bool,
    /// Whether `sliding_window` of `config.json` enables sliding-window attention.
    pub(super) windows: bool,
    /// Whether the weights of norms are stored minus 1.
    pub(super) norms_less_one: bool,
    /// Whether neighbouring elements of a head rotate together in the file too.
    neighbours: bool,
    /// Whether the first position is the one after the token of padding.
    pub(super) positions_after_padding: bool,
    /// Names of tensors outside the layers: in safetensors, and in GGUF.
    model: &'static [(&'static str, &'static str)],
    /// Prefix of the names in layers, up to the number of the layer.
    layers: &'static str,
    /// Prefix that files have or not, before every name.
    prefix: &'static str,
    /// Beginnings of the names of tensors that are not part of the network.
    left_out: &'static [&'static str],
    /// Names of the layers that make a score, in rerankers; elsewhere they are left out.
    head: &'static [(&'static str, &'static str)],
    /// Names in a layer that take precedence over those in [`LAYER`].
    own: &'static [(&'static str, &'static str)],
}

/// The default of each field.
const PLAIN: Names = Names {
    model_type: "",
    activation: "silu",
    bidirectional: false,
    architecture: "",
    rope_theta: 10_000.0,
    tied: false,
    biases: false,
    windows: true,
    norms_less_one: false,
    neighbours: false,
    positions_after_padding: false,
    model: &MODEL,
    layers: "model.layers.",
    prefix: "",
    left_out: &[],
    head: &[],
    own: &[],
};

static ALL: [Names; 22] = [
    Names { model_type: "llama", architecture: "llama", windows: false, ..PLAIN },
    // Llama's network, with a window in some models.
    Names { model_type: "mistral", architecture: "llama", ..PLAIN },
    Names {
        model_type: "ministral3",
        architecture: "mistral3",
        rope_theta: 1e6,
        windows: false,
        ..PLAIN
    },
    Names { model_type: "qwen2", architecture: "qwen2", biases: true, ..PLAIN },
    Names { model_type: "qwen3", architecture: "qwen3", own: &HEAD_NORMS, ..PLAIN },
    Names { ..GEMMA3 },
    Names { bidirectional: true, architecture: "gemma-embedding", ..GEMMA3 },
    Names {
        model_type: "gemma2",
        activation: "gelu_pytorch_tanh",
        architecture: "gemma2",
        tied: true,
        norms_less_one: true,
        own: &NORMS_AROUND,
        ..PLAIN
    },
    Names {
        model_type: "phi3",
        architecture: "phi3",
        own: &[("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up")],
        ..PLAIN
    },
    Names {
        model_type: "qwen3_moe",
        architecture: "qwen3moe",
        own: &[HEAD_NORMS[0], HEAD_NORMS[1], ("mlp.gate", "ffn_gate_inp")],
        ..PLAIN
    },
    Names {
        model_type: "ernie4_5",
        architecture: "ernie4_5",
        rope_theta: 500_000.0,
        tied: true,
        neighbours: true,
        ..PLAIN
    },
    Names { model_type: "smollm3", architecture: "smollm3", windows: false, tied: true, ..PLAIN },
    Names {
        model_type: "seed_oss",
        architecture: "seed_oss",
        biases: true,
        own: &[("post_attention_layernorm", "post_attention_norm")],
        ..PLAIN
    },
    Names { model_type: "olmo2", architecture: "olmo2", own: &NORMS_AFTER, ..PLAIN },
    Names { model_type: "exaone4", architecture: "exaone4", own: &NORMS_AFTER, ..PLAIN },
    Names { model_type: "granite", architecture: "granite", ..PLAIN },
    Names { activation: "relu2", architecture: "bitnet-b1.58", ..BITNET },
    Names { architecture: "bitnet", ..BITNET },
    Names { model_type: "bert", ..BERT },
    Names { model_type: "roberta", positions_after_padding: true, prefix: "roberta.", ..BERT },
    Names { model_type: "xlm-roberta", positions_after_padding: true, prefix: "roberta.", ..BERT },
    Names {
        model_type: "nomic_bert",
        architecture: "nomic-bert",
        rope_theta: 1000.0,
        tied: true,
        biases: true,
        windows: false,
        model: &[
            ("embeddings.word_embeddings", "token_embd"),
            ("embeddings.token_type_embeddings", "token_types"),
            ("emb_ln", "token_embd_norm"),
        ],
        layers: "encoder.layers.",
        own: &[
            ("attn.Wqkv", "attn_qkv"),
            ("attn.out_proj", "attn_output"),
            ("norm1", "attn_output_norm"),
            ("mlp.fc11", "ffn_up"),
            ("mlp.fc12", "ffn_gate"),
            ("mlp.fc2", "ffn_down"),
            ("norm2", "layer_output_norm"),
        ],
        ..PLAIN
    },
];

const GEMMA3: Names = Names {
    model_type: "gemma3_text",
    activation: "gelu_pytorch_tanh",
    architecture: "gemma3",
    rope_theta: 1e6,
    tied: true,
    norms_less_one: true,
    own: &[HEAD_NORMS[0], HEAD_NORMS[1], NORMS_AROUND[0], NORMS_AROUND[1], NORMS_AROUND[2]],
    ..PLAIN
};

const BERT: Names = Names {
    activation: "gelu",
    architecture: "bert",
    tied: true,
    biases: true,
    windows: false,
    model: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ],
    layers: "encoder.layer.",
    prefix: "bert.",
    left_out: &["embeddings.position_ids", "cls.", "lm_head."],
    head: &[
        ("pooler.dense", "cls"),
        ("classifier.dense", "cls"),
        ("classifier.out_proj", "cls.output"),
        ("classifier", "cls.output"),
    ],
    own: &[
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
        ("output.LayerNorm", "layer_output_norm"),
    ],
    ..PLAIN
};

const BITNET: Names = Names {
    model_type: "bitnet",
    rope_theta: 500_000.0,
    own: &[("self_attn.attn_sub_norm", "attn_sub_norm"), ("mlp.ffn_sub_norm", "ffn_sub_norm")],
    ..PLAIN
};

/// Names of tensors outside the layers: in safetensors, and in GGUF.
const MODEL: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
/// Names of an expert's matrices, after `model.layers.N.mlp.experts.E.` in safetensors and `blk.N.` in
/// GGUF, which has those of all experts in one tensor.
const EXPERT: [(&str, &str); 3] = [
    ("gate_proj.weight", "ffn_gate_exps"),
    ("up_proj.weight", "ffn_up_exps"),
    ("down_proj.weight", "ffn_down_exps"),
];
/// Names of tensors in a layer, after `model.layers.N.` in safetensors and `blk.N.` in GGUF.
const LAYER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
/// Names of norms of queries and keys, and of what attention and feed-forward compute.
const NORMS_AFTER: [(&str, &str); 4] = [
    HEAD_NORMS[0],
    HEAD_NORMS[1],
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
/// Names of norms after attention, and before and after the feed-forward network.
const NORMS_AROUND: [(&str, &str); 3] = [
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
const HEAD_NORMS: [(&str, &str); 2] =
    [("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];

/// Returns the row of a model type, with this activation function if one is given, whose tokens attend
/// to later ones if it is bidirectional.
///
/// # Errors
/// Unsupported, listing the supported ones, for an unknown model type or activation function, and for
/// attention to later tokens in other models.
pub(super) fn of(
    model_type: &str,
    activation: Option<&str>,
    bidirectional: bool,
) -> Result<&'static Names> {
    let of_type: Vec<&Names> = ALL.iter().filter(|row| row.model_type == model_type).collect();
    let Some(first) = of_type.first() else {
        let mut known: Vec<&str> = ALL.iter().map(|row| row.model_type).collect();
        known.dedup();
        let known = known.join(", ");
        return Err(Error::unsupported(format!(
            "model_type {model_type:?} is not supported; known: {known}"
        )));
    };
    let of_type: Vec<&Names> =
        of_type.iter().filter(|row| row.bidirectional == bidirectional).copied().collect();
    let first = of_type.first().copied().ok_or_else(|| {
        let what = format!("use_bidirectional_attention is not supported for {}", first.model_type);
        Error::unsupported(what)
    })?;
    let Some(activation) = activation else { return Ok(first) };
    of_type.iter().find(|row| row.activation == activation).copied().ok_or_else(|| {
        let known: Vec<&str> = of_type.iter().map(|row| row.activation).collect();
        let known = known.join(", ");
        Error::unsupported(format!(
            "hidden_act {activation:?} is not supported for {model_type}; known: {known}"
        ))
    })
}

impl Names {
    /// Returns the architecture, which describes the forward pass.
    ///
    /// # Errors
    /// Unsupported if the architecture is unknown, which is true of no row in this table.
    pub(super) fn architecture(&self) -> Result<&'static Architecture> {
        let name = self.architecture;
        Architecture::of(name)
            .ok_or_else(|| Error::unsupported(format!("architecture {name:?} is not supported")))
    }

    /// Returns the GGUF name of a tensor, or `None` for one that GGUF files omit.
    ///
    /// # Errors
    /// Unsupported for a tensor that the model type does not have; bad file for a layer beyond the
    /// config's.
    pub(super) fn translate(&self, source: &str, config: &Config) -> Result<Option<String>> {
        let source = source.strip_prefix(self.prefix).unwrap_or(source);
        // Folders of models without an output matrix lack the prefix.
        let long = match ["embed_tokens.", "layers.", "norm."]
            .iter()
            .any(|begin| source.starts_with(begin))
        {
            true if self.layers == PLAIN.layers => format!("model.{source}"),
            _ => source.to_owned(),
        };
        let source = &*long;
        if self.left_out.iter().any(|name| source.starts_with(name)) {
            return Ok(None);
        }
        // Old files contain these frequencies, which are computed from the config instead.
        if source.ends_with(".rotary_emb.inv_freq") {
            return Ok(None);
        }
        if source == "lm_head.weight" && config.tied(self) {
            return Ok(None);
        }
        let unknown = || {
            let kind = self.model_type;
            Error::unsupported(format!("no tensor of architecture {kind} has this name"))
        };
        let (stem, kind) = source.rsplit_once('.').ok_or_else(unknown)?;
        if kind == "bias" && !self.biases {
            let kind = self.model_type;
            return Err(Error::unsupported(format!(
                "biases are not supported for {kind} (config.json: attention_bias, mlp_bias)"
            )));
        }
        if !["weight", "bias"].contains(&kind) {
            return Err(unknown());
        }
        let find = |table: &[(&str, &'static str)], stem: &str| {
            table.iter().find(|(theirs, _)| *theirs == stem).map(|(_, ours)| *ours)
        };
        if let Some(ours) = find(self.head, stem) {
            return Ok(config.is_reranker().then(|| format!("{ours}.{kind}")));
        }
        if let Some(ours) = find(self.model, stem) {
            return Ok(Some(format!("{ours}.{kind}")));
        }
        let in_layer = stem.strip_prefix(self.layers).and_then(|rest| rest.split_once('.'));
        let (layer, stem) = in_layer.ok_or_else(unknown)?;
        let layer: u64 = layer.parse().map_err(|_| unknown())?;
        if layer >= config.num_hidden_layers {
            let layers = config.num_hidden_layers;
            return Err(Error::bad_file(format!("layer {layer}, num_hidden_layers is {layers}")));
        }
        let ours = find(self.own, stem).or_else(|| find(&LAYER, stem)).ok_or_else(unknown)?;
        Ok(Some(format!("blk.{layer}.{ours}.{kind}")))
    }

    /// Returns the GGUF name of the matrices of all experts to which a tensor belongs, and the index
    /// of its expert; `None` for a tensor that is no expert's.
    ///
    /// # Errors
    /// Bad file for an expert beyond the config's.
    pub(super) fn expert(&self, source: &str, config: &Config) -> Result<Option<(String, u64)>> {
        let Some((layer, rest)) = source.split_once(".mlp.experts.") else { return Ok(None) };
        let Some((expert, part)) = rest.split_once('.') else { return Ok(None) };
        let ours = EXPERT.iter().find(|(theirs, _)| *theirs == part).map(|(_, ours)| *ours);
        let (Some(ours), Ok(expert), Some(layer)) =
            (ours, expert.parse::<u64>(), layer.strip_prefix("model.layers."))
        else {
            return Ok(None);
        };
        let count = config.experts();
        if expert >= count {
            return Err(Error::bad_file(format!("expert {expert}, num_experts is {count}")));
        }
        Ok(Some((format!("blk.{layer}.{ours}.weight"), expert)))
    }

    /// Returns the number of heads of a tensor whose rows must be interleaved, or `None` for other
    /// tensors. In GGUF, some architectures rotate neighbouring elements together, while
    /// `transformers` always rotates the first half of a head with the second.
    pub(super) fn interleave(&self, name: &str, config: &Config) -> Option<usize> {
        let heads = match name.strip_suffix(".weight")?.rsplit_once('.')?.1 {
            "attn_q" => config.num_attention_heads,
            "attn_k" => config.kv_heads(),
            _ => return None,
        };
        let rope = Architecture::of(self.architecture)?.rope;
        let pairs = rope == warploom::graph::RopePairs::Interleaved && !self.neighbours;
        pairs.then_some(heads as usize)
    }
}

/// Returns the sort key of a tensor in a GGUF file: tensors outside the layers first, then layer by
/// layer.
pub(super) fn place(name: &str) -> (u64, String) {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
    (layer.map_or(0, |layer: u64| layer.saturating_add(1)), name.to_owned())
}
