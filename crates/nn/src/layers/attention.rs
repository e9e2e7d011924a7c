//! Multi-head attention.

use warploom::tensor::AttentionOptions;
use warploom::{Error, Result, Tensor};

use super::Linear;
use crate::Params;

/// Self-attention with projections of queries, keys, values and the result. Several heads may share
/// a head of keys and values.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// Projection of the queries.
    pub q: Linear,
    /// Projection of the keys.
    pub k: Linear,
    /// Projection of the values.
    pub v: Linear,
    /// Projection of the result.
    pub out: Linear,
    heads: usize,
    kv_heads: usize,
}

impl MultiHeadAttention {
    /// Creates a layer without biases. Parameters: `q.weight`, `k.weight`, `v.weight` and
    /// `out.weight`.
    ///
    /// # Errors
    /// Invalid if `width` is no multiple of `heads` or `heads` none of `kv_heads`, or if the
    /// parameters exist with other shapes; a device error.
    pub fn new(
        params: &Params,
        width: usize,
        heads: usize,
        kv_heads: usize,
    ) -> Result<MultiHeadAttention> {
        let is_part = |all: usize, part: usize| part > 0 && all.is_multiple_of(part);
        if !is_part(width, heads) || !is_part(heads, kv_heads) {
            return Err(Error::invalid(format!(
                "a width of {width} for {heads} heads, which share {kv_heads} heads of keys"
            )));
        }
        let kv_width = width / heads * kv_heads;
        Ok(MultiHeadAttention {
            q: Linear::without_bias(&params.at("q"), width, width)?,
            k: Linear::without_bias(&params.at("k"), width, kv_width)?,
            v: Linear::without_bias(&params.at("v"), width, kv_width)?,
            out: Linear::without_bias(&params.at("out"), width, width)?,
            heads,
            kv_heads,
        })
    }

    /// Maps the tokens `[tokens, width]` of one sequence. If `causal`, a token sees only itself and
    /// those before it.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, causal: bool) -> Tensor {
        // An error goes through all operations to the result.
        let Ok(shape) = x.try_shape() else { return x.clone() };
        let split = |y: Tensor, heads: usize| {
            let sizes = [shape.first().copied().unwrap_or(0) as i64, heads as i64, -1];
            y.reshape(sizes)
        };
        let q = split(self.q.forward(x), self.heads);
        let k = split(self.k.forward(x), self.kv_heads);
        let v = split(self.v.forward(x), self.kv_heads);
        let options = AttentionOptions { causal, ..AttentionOptions::default() };
        let y = q.attention(&k, &v, options);
        self.out.forward(&y.reshape(shape))
    }
}
