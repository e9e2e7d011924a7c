//! Convolution and pooling: operations over windows of two axes.

use super::{Call, Parts};
use crate::error::Result;
use crate::ir::{Conv2d, Pool2d, PoolKind};
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor::convolve::{dilated, pair, transposed};

/// The axis of images that goes with each of a pair (height, width).
const AXES: [usize; 2] = [2, 3];

pub(super) fn conv2d(conv: &Conv2d, call: &Call<'_>) -> Result<Parts> {
    let of = |i: usize| if i == 0 { image(conv, call) } else { weight(conv, call) };
    Ok(call.parts(|i| call.wants[i].then(|| of(i))))
}

/// The gradient of the image: the transposed convolution.
fn image(conv: &Conv2d, call: &Call<'_>) -> Tensor {
    let (x, weight) = (&call.inputs[0], &call.inputs[1]);
    transposed(call.gradient, weight, conv, AXES.map(|axis| x.sizes()[axis]))
}

/// The gradient of the weight: a convolution of the image with the gradient, in which channels and
/// batch change places, and stride and dilation too.
fn weight(conv: &Conv2d, call: &Call<'_>) -> Tensor {
    let (x, weight, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
    let ([batch, in_c, height, width], [_, out_c, out_h, out_w]) = (x.sizes(), g.sizes()) else {
        return weight.clone();
    };
    let groups = conv.groups as usize;
    // [in_c / groups, groups * batch, ..]
    let image = x
        .reshape([*batch, groups, in_c / groups, *height, *width])
        .permute([2, 1, 0, 3, 4])
        .reshape([in_c / groups, groups * batch, *height, *width]);
    // [out_c, batch, ..]
    let filter = g.permute([1, 0, 2, 3]).reshape([*out_c, *batch, *out_h, *out_w]);
    let turned = Conv2d {
        stride: conv.dilation,
        dilation: conv.stride,
        pad_before: conv.pad_before,
        pad_after: conv.pad_after,
        groups: conv.groups,
    };
    // [in_c / groups, out_c, ..], of which a stride that leaves rows over makes too many.
    let mut product = image.conv2d(&filter, turned).permute([1, 0, 2, 3]);
    for axis in AXES {
        product = product.narrow(axis as isize, ..weight.sizes()[axis]);
    }
    product
}

/// The gradient of pooling: for each position of the window, the gradient of the results that took
/// that element.
pub(super) fn pool2d(pool: &Pool2d, call: &Call<'_>) -> Tensor {
    let x = &call.inputs[0];
    let (kernel, stride, dilation) = (pair(pool.kernel), pair(pool.stride), pair(pool.dilation));
    let (before, after) = (pair(pool.pad_before), pair(pool.pad_after));
    let amounts = [(0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])];
    let padded = x.pad(&amounts, f32::NEG_INFINITY);
    let is_inside = x.ones_like().pad(&amounts, 0.0);
    let (g, y) = (call.gradient, call.output);
    let windows: Vec<[usize; 2]> =
        (0..kernel[0]).flat_map(|row| (0..kernel[1]).map(move |column| [row, column])).collect();
    let at = |image: &Tensor, window: &[usize; 2]| {
        AXES.into_iter().enumerate().fold(image.clone(), |part, (i, axis)| {
            let start = window[i] * dilation[i];
            let end = start + (g.sizes()[axis] - 1) * stride[i] + 1;
            part.slice(axis as isize, start..end, stride[i])
        })
    };
    let back = |part: Tensor, window: &[usize; 2]| {
        let apart = AXES
            .into_iter()
            .enumerate()
            .fold(part, |part, (i, axis)| dilated(&part, axis, stride[i]));
        let mut amounts = [(0, 0); 4];
        for (i, axis) in AXES.into_iter().enumerate() {
            let start = window[i] * dilation[i];
            amounts[axis] = (start, padded.sizes()[axis] - start - apart.sizes()[axis]);
        }
        apart.pad(&amounts, 0.0)
    };
    let parts: Vec<Tensor> = match pool.kind {
        PoolKind::Max => {
            let mut free = y.ones_like().gt(0.0);
            windows
                .iter()
                .map(|window| {
                    let taken = at(&padded, window).eq(y).logical_and(&free);
                    free = free.logical_and(taken.logical_not());
                    back(taken.select(g, 0.0), window)
                })
                .collect()
        }
        PoolKind::Mean => {
            let share = match pool.count_pad {
                true => g.mul(1.0 / windows.len().max(1) as f32),
                false => {
                    let counts = windows.iter().map(|window| at(&is_inside, window));
                    match counts.reduce(|sum, count| sum.add(count)) {
                        Some(count) => g.div(count.maximum(1.0)),
                        None => g.clone(),
                    }
                }
            };
            windows.iter().map(|window| back(share.clone(), window)).collect()
        }
    };
    let sum = parts.into_iter().reduce(|sum, part| sum.add(part));
    let sum = sum.unwrap_or_else(|| padded.zeros_like());
    AXES.into_iter().enumerate().fold(sum, |sum, (i, axis)| {
        sum.narrow(axis as isize, before[i]..before[i] + x.sizes()[axis])
    })
}
