//! Softmax and normalisation along the last axis.

use super::{Call, Parts, sum_to, wide};
use crate::runtime::tensor::Tensor;

pub(super) fn softmax(y: &Tensor, g: &Tensor) -> Tensor {
    let dtype = g.dtype();
    let (y, g) = (wide(y), wide(g));
    let mean = g.mul(&y).sum_keep(-1);
    y.mul(g.sub(mean)).cast(dtype)
}

/// `y = n * weight` with `n = x * r` and `r = rsqrt(mean(x^2) + eps)`.
pub(super) fn rms_norm(eps: f32, call: &Call<'_>) -> Parts {
    let (x, weight, g) = (wide(&call.inputs[0]), wide(&call.inputs[1]), wide(call.gradient));
    let r = x.square().mean_keep(-1).add(eps).rsqrt();
    let n = x.mul(&r);
    let of = |i: usize| match i {
        0 => {
            let h = g.mul(&weight);
            let along = h.mul(&n).mean_keep(-1);
            Some(r.mul(h.sub(n.mul(along))))
        }
        1 => Some(sum_to(&g.mul(&n), weight.sizes())),
        _ => None,
    };
    call.parts(|i| of(i).filter(|_| call.wants[i]).map(|part| part.cast(call.inputs[i].dtype())))
}

/// `y = n * weight + bias` with `n = (x - mean) * r` and `r = rsqrt(variance + eps)`.
pub(super) fn layer_norm(eps: f32, call: &Call<'_>) -> Parts {
    let (x, weight, g) = (wide(&call.inputs[0]), wide(&call.inputs[1]), wide(call.gradient));
    let centred = x.sub(x.mean_keep(-1));
    let r = centred.square().mean_keep(-1).add(eps).rsqrt();
    let n = centred.mul(&r);
    let of = |i: usize| match i {
        0 => {
            let h = g.mul(&weight);
            let along = h.mul(&n).mean_keep(-1);
            Some(r.mul(h.sub(h.mean_keep(-1)).sub(n.mul(along))))
        }
        1 => Some(sum_to(&g.mul(&n), weight.sizes())),
        2 => Some(sum_to(&g, call.inputs[2].sizes())),
        _ => None,
    };
    call.parts(|i| of(i).filter(|_| call.wants[i]).map(|part| part.cast(call.inputs[i].dtype())))
}
