//! What tensors are called there and here, for each architecture.

use super::config::Config;
use crate::error::{Error, Result};

/// An architecture as far as names go.
pub(super) struct Names {
    /// `model_type` of `config.json`, and `general.architecture` of GGUF.
    pub(super) model_type: &'static str,
    /// Whether GGUF has neighbours rotate where the original rotates halves of a head.
    interleaved: bool,
    /// Whether matrices may have a bias.
    biases: bool,
    /// Whether queries and keys have a norm of their own.
    head_norms: bool,
}

static ALL: [Names; 3] = [
    Names { model_type: "llama", interleaved: true, biases: false, head_norms: false },
    Names { model_type: "qwen2", interleaved: false, biases: true, head_norms: false },
    Names { model_type: "qwen3", interleaved: false, biases: false, head_norms: true },
];

/// Outside of layers.
const MODEL: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
/// In a layer, behind `model.layers.N.` and `blk.N.`.
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
const HEAD_NORMS: [(&str, &str); 2] =
    [("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];

/// The names of an architecture.
pub(super) fn of(model_type: &str) -> Option<&'static Names> {
    ALL.iter().find(|names| names.model_type == model_type)
}

/// Every `model_type` that is known.
pub(super) fn known() -> Vec<&'static str> {
    ALL.iter().map(|names| names.model_type).collect()
}

impl Names {
    /// The name in GGUF of a tensor; none for what a GGUF file does not hold.
    ///
    /// # Errors
    /// Unsupported, for a tensor that this architecture does not have here.
    pub(super) fn translate(&self, source: &str, config: &Config) -> Result<Option<String>> {
        // Of old files: computed from the config.
        if source.ends_with(".rotary_emb.inv_freq") {
            return Ok(None);
        }
        if source == "lm_head.weight" && config.tied() {
            return Ok(None);
        }
        let unknown = || {
            let kind = self.model_type;
            Error::unsupported(format!("no tensor of architecture {kind} has this name"))
        };
        let (stem, kind) = source.rsplit_once('.').ok_or_else(unknown)?;
        if kind != "weight" && !(kind == "bias" && self.biases) {
            return Err(unknown());
        }
        let find = |table: &[(&str, &'static str)], stem: &str| {
            table.iter().find(|(theirs, _)| *theirs == stem).map(|(_, ours)| *ours)
        };
        if let Some(ours) = find(&MODEL, stem) {
            return Ok(Some(format!("{ours}.{kind}")));
        }
        let in_layer = stem.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (layer, stem) = in_layer.ok_or_else(unknown)?;
        let layer: u64 = layer.parse().map_err(|_| unknown())?;
        if layer >= config.num_hidden_layers {
            let layers = config.num_hidden_layers;
            return Err(Error::bad_file(format!("layer {layer}, num_hidden_layers is {layers}")));
        }
        let norms = if self.head_norms { &HEAD_NORMS[..] } else { &[] };
        let ours = find(&LAYER, stem).or_else(|| find(norms, stem)).ok_or_else(unknown)?;
        Ok(Some(format!("blk.{layer}.{ours}.{kind}")))
    }

    /// How many heads the rows of a tensor are, where their halves are to be interleaved.
    pub(super) fn interleave(&self, name: &str, config: &Config) -> Option<usize> {
        let heads = match name.strip_suffix(".weight")?.rsplit_once('.')?.1 {
            "attn_q" => config.num_attention_heads,
            "attn_k" => config.kv_heads(),
            _ => return None,
        };
        self.interleaved.then_some(heads as usize)
    }
}

/// Where a tensor stands in a file: what is outside of layers first, then layer by layer.
pub(super) fn place(name: &str) -> (u64, String) {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
    (layer.map_or(0, |layer: u64| layer.saturating_add(1)), name.to_owned())
}
