//! Data movement and views.

use smallvec::smallvec;

use super::{Call, Parts};
use crate::base::{DType, Dim};
use crate::error::{Error, Result};
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor::convolve::dilated;

/// The gradient of a lookup: each row that was read gets the sum of the gradients of its copies.
pub(super) fn gather(axis: usize, call: &Call<'_>) -> Result<Parts> {
    let (x, ids, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
    let (count, dtype) = (x.sizes()[axis], x.dtype());
    // The axes of the ids come first, as one.
    let placed: Vec<usize> = (axis..axis + ids.sizes().len()).collect();
    let others: Vec<usize> = (0..axis).chain(axis + ids.sizes().len()..g.sizes().len()).collect();
    let order: Vec<usize> = placed.iter().chain(&others).copied().collect();
    let sizes: Vec<usize> = others.iter().map(|axis| g.sizes()[*axis]).collect();
    let mut rows = sizes.clone();
    rows.insert(0, ids.count());
    let source = g.permute(order).reshape(rows).cast(DType::F32);
    let mut table = sizes;
    table.insert(0, count);
    let zeros = Tensor::zeros(x.runtime(), table);
    let sums = zeros.index_add(0, &ids.flatten().cast(DType::I32), &source);
    Ok(smallvec![Some(sums.movedim(0, axis as isize).cast(dtype)), None])
}

/// Gradients of `base + sum of the rows of source by ids`.
pub(super) fn index_add(call: &Call<'_>) -> Parts {
    let (ids, g) = (&call.inputs[2], call.gradient);
    let parts: Parts = smallvec![Some(g.clone()), Some(g.gather(0, ids)), None];
    call.parts(|i| parts[i].clone())
}

pub(super) fn concat(axis: usize, call: &Call<'_>) -> Parts {
    let mut start = 0;
    let part = |(input, wants): (&Tensor, &bool)| {
        let from = start;
        start += input.sizes()[axis];
        wants.then(|| call.gradient.narrow(axis as isize, from..start))
    };
    call.inputs.iter().zip(call.wants).map(part).collect()
}

pub(super) fn pad(amounts: &[(u64, u64)], call: &Call<'_>) -> Tensor {
    let x = &call.inputs[0];
    let inside = |g: Tensor, (axis, (before, _)): (usize, &(u64, u64))| {
        let before = *before as usize;
        g.narrow(axis as isize, before..before + x.sizes()[axis])
    };
    amounts.iter().enumerate().fold(call.gradient.clone(), inside)
}

pub(super) fn transpose(order: &[usize], g: &Tensor) -> Tensor {
    let mut inverse = vec![0_usize; order.len()];
    for (to, from) in order.iter().enumerate() {
        inverse[*from] = to;
    }
    g.permute(inverse)
}

pub(super) fn slice(axis: usize, start: &Dim, step: u64, call: &Call<'_>) -> Result<Tensor> {
    let start = start.as_const().and_then(|start| usize::try_from(start).ok());
    let start =
        start.ok_or_else(|| Error::invalid("a slice at a position that is not constant"))?;
    let size = call.inputs[0].sizes()[axis];
    let apart = dilated(call.gradient, axis, usize::try_from(step).unwrap_or(usize::MAX));
    let end = size - start - apart.sizes()[axis];
    let mut amounts = vec![(0, 0); apart.sizes().len()];
    amounts[axis] = (start, end);
    Ok(apart.pad(&amounts, 0.0))
}
