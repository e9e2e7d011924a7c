//! Embeddings of a token that each layer has for itself. `n` is the size of one.

use super::Builder;
use crate::layer_sizes::LAYER_EMBEDDING;
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op};
use warploom_core::base::{Dim, Shape};

impl Builder<'_> {
    /// Computes what each layer reads of the tokens `[s]`, whose embeddings are `x` `[s, d]`: the mean,
    /// but for a factor, of an embedding of its own and of a product of `x`. `[s, layers, n]`, or `None`
    /// if layers read nothing.
    pub(super) fn embedded_for_layers(
        &mut self,
        tokens: NodeId,
        x: NodeId,
    ) -> Result<Option<NodeId>> {
        let (n, layers) = (self.config.layer_sizes.embedding, self.config.layers);
        if n == 0 {
            return Ok(None);
        }
        let each = Op::Reshape(Shape::new([self.tokens.clone(), layers.into(), n.into()]));
        let table = self.weight(&format!("{LAYER_EMBEDDING}.weight"))?; // [v, layers * n]
        let own = self.add("layer_embedding", Op::Gather { axis: 0 }, &[table, tokens])?;
        let own = self.scaled("layer_embedding_scale", own, (n as f32).sqrt())?; // [s, layers * n]
        let own = self.add("", each.clone(), &[own])?; // [s, layers, n]
        let y = self.product("per_layer_model_proj", x)?; // [s, layers * n]
        let y =
            self.scaled("layer_projection_scale", y, (self.config.width as f32).sqrt().recip())?;
        let y = self.add("", each, &[y])?; // [s, layers, n]
        let y = self.normalised("per_layer_proj_norm", y)?;
        let y = self.add("layer_inputs", Op::Binary(BinaryOp::Add), &[own, y])?;
        self.scaled("layer_inputs_scale", y, std::f32::consts::FRAC_1_SQRT_2).map(Some)
    }

    /// Adds to the result `x` `[s, d]` of a layer what it makes of its embedding of the token, and
    /// multiplies the sum by the layer's factor, if there are any.
    pub(super) fn with_layer_input(&mut self, layer: usize, mut x: NodeId) -> Result<NodeId> {
        let n = self.config.layer_sizes.embedding;
        if let Some(inputs) = self.layer_inputs {
            let one = Op::Slice { axis: 1, start: layer.into(), len: Dim::new(1), step: 1 };
            let own = self.add("", one, &[inputs])?; // [s, 1, n]
            let own =
                self.add("", Op::Reshape(Shape::new([self.tokens.clone(), n.into()])), &[own])?;
            let gate = self.linear(layer, "inp_gate", x)?; // [s, n]
            let gate = self.activated(layer, gate)?;
            let y = self.binary(layer, "inp_gated", BinaryOp::Mul, gate, own)?; // [s, n]
            let y = self.linear(layer, "proj", y)?; // [s, d]
            let y = self.norm(layer, "post_norm", y)?;
            x = self.binary(layer, "inp_residual", BinaryOp::Add, x, y)?;
        }
        match self.find_weight(&format!("blk.{layer}.layer_output_scale.weight")) {
            Some(factor) => self.binary(layer, "layer_output_scale", BinaryOp::Mul, x, factor),
            None => Ok(x),
        }
    }
}
