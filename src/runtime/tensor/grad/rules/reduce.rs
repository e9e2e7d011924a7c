//! Reductions.

use super::Call;
use crate::ir::ReduceOp;
use crate::runtime::tensor::Tensor;

pub(super) fn reduce(op: ReduceOp, axes: &[usize], call: &Call<'_>) -> Tensor {
    let x = &call.inputs[0];
    let mut kept = x.sizes().to_vec();
    for axis in axes {
        kept[*axis] = 1;
    }
    let g = call.gradient.reshape(&kept[..]);
    let y = || call.output.reshape(&kept[..]);
    match op {
        ReduceOp::Sum => g.expand(x.sizes()),
        ReduceOp::Mean => {
            let count: usize = axes.iter().map(|axis| x.sizes()[*axis]).product();
            g.mul(1.0 / count.max(1) as f32).expand(x.sizes())
        }
        ReduceOp::Max | ReduceOp::Min => {
            let largest = x.eq(y());
            let count = largest.cast(g.dtype()).sum_keep(axes);
            largest.select(g.div(count), 0.0)
        }
        ReduceOp::Prod => prod(x, &g, axes),
    }
}

/// The product of the others: without a zero among them, the product divided by the element.
fn prod(x: &Tensor, g: &Tensor, axes: &[usize]) -> Tensor {
    let is_zero = x.eq(0.0);
    let others = is_zero.select(1.0, x);
    let product = others.prod_keep(axes);
    let zeros = is_zero.cast(g.dtype()).sum_keep(axes);
    let at_zero = zeros.eq(1.0).select(&product, 0.0);
    let elsewhere = zeros.eq(0.0).select(&product, 0.0).div(others);
    is_zero.select(at_zero, elsewhere).mul(g)
}
