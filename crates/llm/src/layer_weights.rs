//! The tensors of a layer.

use super::config::{DeltaNet, Experts, HeadNorms};
use super::weights::{Need, Table};
use warploom::Result;
use warploom_core::base::Format;

impl<F: Fn(&str, &[u64], Need) -> Result<Option<Format>>> Table<'_, F> {
    /// Adds the tensors of a layer.
    pub(super) fn layer(&mut self, layer: usize) -> Result<()> {
        let config = self.config;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let d = config.width as u64;
        self.norms(layer)?;
        if config.architecture.has_sinks {
            self.vector(&name("attn_sinks.weight"), config.heads as u64, Need::Required)?;
        }
        let mut products = self.attention_products(layer)?;
        let (ff, architecture) = (config.feed_forward_of(layer) as u64, config.architecture);
        let experts = config.experts_of(layer);
        match (experts, architecture.merged_gate) {
            (Some(experts), _) if !experts.is_beside => {
                products.push(("ffn_gate_inp", [experts.count as u64, d]));
            }
            (_, true) => products.extend([("ffn_up", [2 * ff, d]), ("ffn_down", [d, ff])]),
            (_, false) => {
                products.extend(architecture.gated.then_some(("ffn_gate", [ff, d])));
                products.extend([("ffn_up", [ff, d]), ("ffn_down", [d, ff])]);
            }
        }
        for (product, shape) in products {
            self.product(&name(product), shape)?;
        }
        if let Some(experts) = experts {
            self.experts(layer, experts)?;
        }
        let each = config.layer_sizes.embedding as u64;
        if each > 0 {
            self.product(&name("inp_gate"), [each, d])?;
            self.product(&name("proj"), [d, each])?;
            self.norm(&name("post_norm"), d)?;
        }
        match architecture.varies {
            true => self.vector(&name("layer_output_scale.weight"), 1, Need::Optional),
            false => Ok(()),
        }
    }

    fn norms(&mut self, layer: usize) -> Result<()> {
        let config = self.config;
        let architecture = config.architecture;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (d, e) = (config.width as u64, config.head_dim_of(layer) as u64);
        let (q, kv) = (config.heads as u64 * e, config.kv_width_of(layer) as u64);
        let mut vectors = match architecture.pre_norms {
            true => vec![("attn_norm", d), (architecture.ffn_norm, d)],
            false => Vec::new(),
        };
        let has_keys = config.keys_of(layer) == layer;
        match architecture.head_norms {
            _ if config.delta_net_of(layer).is_some() => {}
            _ if config.short_conv_of(layer).is_some() => {}
            HeadNorms::None => {}
            HeadNorms::EachIfPresent => {
                for kind in ["attn_q_norm", "attn_k_norm"] {
                    self.vector(&name(&format!("{kind}.weight")), e, Need::Optional)?;
                }
            }
            HeadNorms::Each => {
                vectors.push(("attn_q_norm", e));
                vectors.extend(has_keys.then_some(("attn_k_norm", e)));
            }
            HeadNorms::Whole => vectors.extend([("attn_q_norm", q), ("attn_k_norm", kv)]),
        }
        if architecture.sub_norms {
            let ff = config.feed_forward_of(layer) as u64;
            vectors.extend([("attn_sub_norm", q), ("ffn_sub_norm", ff)]);
        }
        if architecture.post_norms {
            vectors.extend([("post_attention_norm", d), ("post_ffw_norm", d)]);
        }
        if architecture.sum_norms {
            vectors.extend([("attn_output_norm", d), ("layer_output_norm", d)]);
        }
        vectors.into_iter().try_for_each(|(norm, len)| self.norm(&name(norm), len))
    }

    /// Returns the shapes of the products of attention, or of what a layer has in its place.
    fn attention_products(&mut self, layer: usize) -> Result<Vec<(&'static str, [u64; 2])>> {
        let config = self.config;
        let architecture = config.architecture;
        let d = config.width as u64;
        let q = (config.heads * config.head_dim_of(layer)) as u64;
        let kv = config.kv_width_of(layer) as u64;
        let rows = if architecture.gated_attention { 2 * q } else { q };
        if let Some(net) = config.delta_net_of(layer) {
            return self.delta_net(layer, net);
        }
        if let Some(taps) = config.short_conv_of(layer) {
            let conv = format!("blk.{layer}.shortconv.conv.weight");
            self.small(&conv, &[d, taps as u64], Need::Required)?;
            return Ok(vec![("shortconv.in_proj", [3 * d, d]), ("shortconv.out_proj", [d, d])]);
        }
        if architecture.merged_qkv {
            return Ok(vec![("attn_qkv", [q + 2 * kv, d]), ("attn_output", [d, q])]);
        }
        let mut products = vec![("attn_q", [rows, d]), ("attn_output", [d, q])];
        if config.keys_of(layer) == layer {
            products.push(("attn_k", [kv, d]));
            match architecture.unit_values {
                // Without it, keys are the values.
                true => {
                    let name = format!("blk.{layer}.attn_v.weight");
                    self.matrix_if_present(&name, &[kv, d])?;
                }
                false => products.push(("attn_v", [kv, d])),
            }
        }
        Ok(products)
    }

    /// Adds the matrices and vectors of a mixture of experts, except for its router's.
    fn experts(&mut self, layer: usize, experts: &Experts) -> Result<()> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (d, count) = (self.config.width as u64, experts.count as u64);
        let f = experts.feed_forward as u64;
        if experts.is_beside {
            // Gate and up are one matrix, and the router and the results of experts have factors.
            self.matrix(&name("ffn_gate_up_exps"), &[count, 2 * f, d])?;
            self.matrix(&name("ffn_down_exps"), &[count, d, f])?;
            self.vector(&name("ffn_gate_inp.scale"), d, Need::Required)?;
            self.vector(&name("ffn_down_exps.scale"), count, Need::Required)?;
            for norm in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
                self.norm(&name(norm), d)?;
            }
            return self.matrix(&name("ffn_gate_inp"), &[count, d]);
        }
        for (product, [n, k]) in
            [("ffn_gate_exps", [f, d]), ("ffn_up_exps", [f, d]), ("ffn_down_exps", [d, f])]
        {
            self.matrix(&name(product), &[count, n, k])?;
            self.small(&format!("{}.bias", name(product)), &[count, n], Need::Optional)?;
        }
        if experts.has_selection_bias {
            self.vector(&name("exp_probs_b.bias"), count, Need::Required)?;
        }
        let Some(shared) = experts.shared else { return Ok(()) };
        let f = shared.feed_forward as u64;
        for (product, shape) in
            [("ffn_gate_shexp", [f, d]), ("ffn_up_shexp", [f, d]), ("ffn_down_shexp", [d, f])]
        {
            self.product(&name(product), shape)?;
        }
        match shared.gated {
            true => self.vector(&name("ffn_gate_inp_shexp.weight"), d, Need::Required),
            false => Ok(()),
        }
    }

    /// Adds the vectors of a gated delta net, and returns the shapes of its products.
    fn delta_net(&mut self, layer: usize, net: &DeltaNet) -> Result<Vec<(&'static str, [u64; 2])>> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (d, heads) = (self.config.width as u64, net.heads as u64);
        let (channels, inner) = (net.channels() as u64, net.inner() as u64);
        self.small(&name("ssm_conv1d.weight"), &[channels, net.taps as u64], Need::Required)?;
        self.vector(&name("ssm_dt.bias"), heads, Need::Required)?;
        self.vector(&name("ssm_a"), heads, Need::Required)?;
        self.vector(&name("ssm_norm.weight"), net.head_dim as u64, Need::Required)?;
        Ok(vec![
            ("attn_qkv", [channels, d]),
            ("attn_gate", [inner, d]),
            ("ssm_beta", [heads, d]),
            ("ssm_alpha", [heads, d]),
            ("ssm_out", [d, inner]),
        ])
    }
}
