//! Embeddings of a token that each layer has for itself.

use super::{Forward, add};

impl Forward {
    /// What each layer reads of a token whose embedding is `x`: `[layers * size]`; empty if nothing.
    pub(super) fn of_layers(&self, token: u32, x: &[f64]) -> Vec<f64> {
        let n = self.config.layer_sizes.embedding;
        if n == 0 {
            return Vec::new();
        }
        let all = n * self.config.layers;
        let own = &self.weights["per_layer_token_embd.weight"][token as usize * all..][..all];
        let by = 1.0 / (self.config.width as f64).sqrt();
        let projected = self.product("per_layer_model_proj", x);
        let projected = projected.chunks(n).flat_map(|part| {
            let part: Vec<f64> = part.iter().map(|v| v * by).collect();
            self.norm("per_layer_proj_norm.weight", &part)
        });
        let root = (n as f64).sqrt();
        let both = projected.zip(own).map(|(p, own)| (p + f64::from(*own) * root) / 2f64.sqrt());
        both.collect()
    }

    /// Adds to `x` what a layer makes of its part of `of_layers`, and multiplies the sum.
    pub(super) fn add_of_layer(&self, layer: usize, x: &mut [f64], of_layers: &[f64]) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let n = self.config.layer_sizes.embedding;
        if n > 0 {
            let gate = self.product(&name("inp_gate"), x);
            let y = self.gated(&gate, &of_layers[layer * n..][..n]);
            let y = self.product(&name("proj"), &y);
            add(x, &self.norm(&name("post_norm.weight"), &y));
        }
        if let Some(factor) = self.weights.get(&name("layer_output_scale.weight")) {
            x.iter_mut().for_each(|x| *x *= f64::from(factor[0]));
        }
    }
}
