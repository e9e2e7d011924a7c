//! Matrix products.

use super::{Call, Parts, sum_to};
use crate::error::Result;
use crate::runtime::tensor::Tensor;

/// Gradients of `a @ b`: `g @ b^T` and `a^T @ g`.
pub(super) fn matmul(call: &Call<'_>) -> Parts {
    let (a, b, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
    let of = |i: usize| match i {
        0 => sum_to(&g.matmul(b.t()), a.sizes()),
        // One product over all rows of a batch instead of a product for each and a sum.
        _ if b.sizes().len() == 2 => rows(a).t().matmul(rows(g)),
        _ => sum_to(&a.t().matmul(g), b.sizes()),
    };
    call.parts(|i| call.wants[i].then(|| of(i)))
}

/// Gradients of `x @ weight^T`.
pub(super) fn linear(call: &Call<'_>) -> Result<Parts> {
    let (x, weight, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
    let of = |i: usize| match i {
        0 => {
            let product = rows(g).matmul(weight.unpacked()?.cast(g.dtype()));
            Ok(product.reshape(x.sizes()))
        }
        _ => Ok(rows(g).t().matmul(rows(x)).cast(weight.dtype())),
    };
    (0..2).map(|i| call.wants[i].then(|| of(i)).transpose()).collect()
}

/// Merges all axes but the last.
fn rows(x: &Tensor) -> Tensor {
    let last = x.sizes().last().copied().unwrap_or(1);
    let count: usize = x.sizes().iter().rev().skip(1).product();
    x.reshape([count, last])
}

impl Tensor {
    /// Returns a packed weight in `f32`, and any other tensor as it is.
    fn unpacked(&self) -> Result<Tensor> {
        match self.node.stored()? {
            Some(stored) if stored.format.is_quantised() => {
                let count = u32::try_from(self.sizes()[0]).unwrap_or(u32::MAX);
                Ok(self.gather(0, &Tensor::arange(self.runtime(), 0, count, 1)))
            }
            _ => Ok(self.clone()),
        }
    }
}
