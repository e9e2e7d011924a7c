//! Attention, whose softmax is computed again: `P = softmax(scale * Q K^T)`, `O = P V`.

use super::{Call, Parts, wide};
use crate::error::{Error, Result};
use crate::runtime::tensor::Tensor;

/// Which keys a token sees.
pub(super) struct Mask {
    pub(super) causal: bool,
    pub(super) window: Option<u32>,
    pub(super) past: i32,
}

impl Mask {
    /// Returns the mask `[tokens, keys]` of `bool`; `None` if every token sees every key.
    fn tensor(&self, q: &Tensor, keys: usize) -> Result<Option<Tensor>> {
        if !self.causal && self.window.is_none() {
            return Ok(None);
        }
        let count = |n: usize| {
            i32::try_from(n).map_err(|_| Error::invalid(format!("{n} tokens are over 2^31 - 1")))
        };
        let (tokens, keys) = (count(q.sizes()[0])?, count(keys)?);
        let row = |end: i32| Tensor::arange(q.runtime(), 0, end, 1);
        let position = row(tokens).add(self.past).unsqueeze(1);
        // How far a key lies before the token.
        let distance = position.sub(row(keys).unsqueeze(0));
        let seen = self.causal.then(|| distance.ge(0));
        let near = self.window.map(|window| distance.lt(i32::try_from(window).unwrap_or(i32::MAX)));
        Ok(match (seen, near) {
            (Some(seen), Some(near)) => Some(seen.logical_and(near)),
            (seen, near) => seen.or(near),
        })
    }
}

pub(super) fn attention(scale: f32, mask: &Mask, call: &Call<'_>) -> Result<Parts> {
    if call.inputs.len() > 3 {
        return Err(Error::invalid("attention with spans has no gradient"));
    }
    let (q, k, v) = (wide(&call.inputs[0]), wide(&call.inputs[1]), wide(&call.inputs[2]));
    let ([tokens, heads, dim], [keys, kv_heads, _]) = (q.sizes(), k.sizes()) else {
        return Err(Error::invalid("attention of tensors that are not of rank 3"));
    };
    let (tokens, dim, keys, kv_heads, shared) = (*tokens, *dim, *keys, *kv_heads, heads / kv_heads);
    let v_dim = v.sizes()[2];
    // The heads that share keys are rows of one product: [kv_heads, shared * tokens, ..].
    let by_head =
        |x: &Tensor, last: usize| x.permute([1, 0, 2]).reshape([kv_heads, shared * tokens, last]);
    let queries = by_head(&q, dim);
    let keys_t = k.permute([1, 2, 0]);
    let values = v.permute([1, 0, 2]);
    let g = by_head(&wide(call.gradient), v_dim);
    let scores = queries.matmul(&keys_t).mul(scale);
    let scores = match mask.tensor(&q, keys)? {
        Some(mask) => mask
            .select(scores.reshape([kv_heads, shared, tokens, keys]), f32::NEG_INFINITY)
            .reshape([kv_heads, shared * tokens, keys]),
        None => scores,
    };
    let p = scores.softmax(-1);
    let of = |i: usize| {
        if i == 2 {
            return p.t().matmul(&g).permute([1, 0, 2]);
        }
        let dp = g.matmul(values.t());
        let ds = p.mul(dp.sub(dp.mul(&p).sum_keep(-1))).mul(scale);
        match i {
            0 => {
                let dq = ds.matmul(keys_t.t());
                dq.reshape([kv_heads * shared, tokens, dim]).permute([1, 0, 2])
            }
            _ => ds.t().matmul(&queries).permute([1, 0, 2]),
        }
    };
    Ok(call.parts(|i| call.wants[i].then(|| of(i).cast(call.inputs[i].dtype()))))
}
