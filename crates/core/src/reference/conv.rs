//! 2-D convolution and pooling of tensors `[batch, channels, height, width]`.

use super::Call;
use super::elementwise::larger;
use super::tensor::Tensor;
use crate::error::Result;
use crate::ir::{Conv2d, Pool2d, PoolKind};

/// Returns the input position of tap `tap` of window `at` along one axis, or `None` if it lies in
/// the padding.
fn place(
    at: usize,
    tap: usize,
    stride: u32,
    dilation: u32,
    pad: u32,
    size: usize,
) -> Option<usize> {
    let padded = at * stride as usize + tap * dilation as usize;
    padded.checked_sub(pad as usize).filter(|i| *i < size)
}

/// Convolves x `[b, in_c, h, w]` with a weight `[out_c, in_c / groups, kh, kw]`:
/// `y[b, o, i, j] = sum over c, r, s of
/// x[b, g(o) + c, i*stride + r*dilation - pad, ..] * weight[o, c, r, s]`,
/// where `g(o)` is the first input channel of the group of `o`.
pub(super) fn conv2d(call: &Call<'_>, conv: &Conv2d) -> Result<Tensor> {
    let (x, weight) = (call.operands[0].floats(), call.operands[1].floats());
    let (xd, wd, to) = (call.dims(0), call.dims(1), call.out_dims());
    let per_group = to[1] / conv.groups as usize;
    let mut y = Vec::with_capacity(to.iter().product());
    for batch in 0..to[0] {
        for out_c in 0..to[1] {
            let first_c = out_c / per_group * wd[1];
            for i in 0..to[2] {
                for j in 0..to[3] {
                    let mut sum = 0.0;
                    for (c, r, s) in taps(wd[1], wd[2], wd[3]) {
                        let (stride, dilation, pad) = (conv.stride, conv.dilation, conv.pad_before);
                        let row = place(i, r, stride.0, dilation.0, pad.0, xd[2]);
                        let column = place(j, s, stride.1, dilation.1, pad.1, xd[3]);
                        if let (Some(row), Some(column)) = (row, column) {
                            let channel = batch * xd[1] + first_c + c;
                            sum += x[(channel * xd[2] + row) * xd[3] + column]
                                * weight[((out_c * wd[1] + c) * wd[2] + r) * wd[3] + s];
                        }
                    }
                    y.push(sum);
                }
            }
        }
    }
    call.floats(y)
}

fn taps(
    channels: usize,
    height: usize,
    width: usize,
) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..channels)
        .flat_map(move |c| (0..height).flat_map(move |r| (0..width).map(move |s| (c, r, s))))
}

/// Computes the maximum or the mean of each window of x `[b, c, h, w]`.
///
/// Padding never counts for the maximum; it counts for the mean, as zeros, if `count_pad` is set.
/// For a window entirely in the padding the maximum is -inf and the mean is 0.
pub(super) fn pool2d(call: &Call<'_>, pool: &Pool2d) -> Result<Tensor> {
    let x = call.operands[0].floats();
    let (xd, to) = (call.dims(0), call.out_dims());
    let (kh, kw) = (pool.kernel.0 as usize, pool.kernel.1 as usize);
    let mut y = Vec::with_capacity(to.iter().product());
    for image in 0..to[0] * to[1] {
        for i in 0..to[2] {
            for j in 0..to[3] {
                let (mut max, mut sum, mut count) = (f64::NEG_INFINITY, 0.0, 0);
                for (_, r, s) in taps(1, kh, kw) {
                    let (stride, dilation, pad) = (pool.stride, pool.dilation, pool.pad_before);
                    let row = place(i, r, stride.0, dilation.0, pad.0, xd[2]);
                    let column = place(j, s, stride.1, dilation.1, pad.1, xd[3]);
                    if let (Some(row), Some(column)) = (row, column) {
                        let value = x[(image * xd[2] + row) * xd[3] + column];
                        max = larger(max, value);
                        sum += value;
                        count += 1;
                    }
                }
                let divisor = if pool.count_pad { kh * kw } else { count.max(1) };
                y.push(match pool.kind {
                    PoolKind::Max => max,
                    PoolKind::Mean => sum / divisor as f64,
                });
            }
        }
    }
    call.floats(y)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{DType, Shape, SymbolValues};
    use crate::ir::{Graph, Op};
    use crate::reference::{Data, eval};

    fn image(height: u64, width: u64) -> Tensor {
        let values = (1..=height * width).map(|i| i as f32).collect();
        Tensor::new(vec![1, 1, height, width], Data::F32(values)).unwrap()
    }

    #[test]
    fn a_convolution_by_hand() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([1, 1, 3, 3]), DType::F32);
        let w = g.constant_f32(Shape::new([1, 1, 2, 2]), &[1.0, 10.0, 100.0, 1000.0]);
        let conv = Conv2d {
            stride: (2, 1),
            pad_before: (1, 0),
            pad_after: (0, 0),
            dilation: (1, 2),
            groups: 1,
        };
        let y = g.add(Op::Conv2d(conv), &[x, w]).unwrap();
        let bindings = BTreeMap::from([("x".to_string(), image(3, 3))]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        // Rows (-1, 0) and (1, 2), columns (0, 2).
        let want = vec![100.0 + 3000.0, 4.0 + 60.0 + 700.0 + 9000.0];
        assert_eq!(run.value(y).data, Data::F32(want));
    }

    #[test]
    fn groups_do_not_mix() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([1, 2, 1, 1]), DType::F32);
        let w = g.constant_f32(Shape::new([4, 1, 1, 1]), &[1.0, 2.0, 3.0, 4.0]);
        let conv = Conv2d {
            stride: (1, 1),
            pad_before: (0, 0),
            pad_after: (0, 0),
            dilation: (1, 1),
            groups: 2,
        };
        let y = g.add(Op::Conv2d(conv), &[x, w]).unwrap();
        let x = Tensor::new(vec![1, 2, 1, 1], Data::F32(vec![1.0, 10.0])).unwrap();
        let bindings = BTreeMap::from([("x".to_string(), x)]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        assert_eq!(run.value(y).data, Data::F32(vec![1.0, 2.0, 30.0, 40.0]));
    }

    #[test]
    fn pooling_and_its_padding() {
        let pool = |kind, count_pad| {
            let mut g = Graph::new("g");
            let x = g.input("x", Shape::new([1, 1, 2, 2]), DType::F32);
            let pool = Pool2d {
                kind,
                kernel: (2, 2),
                stride: (2, 2),
                pad_before: (1, 1),
                pad_after: (1, 1),
                dilation: (1, 1),
                count_pad,
            };
            let y = g.add(Op::Pool2d(pool), &[x]).unwrap();
            let bindings = BTreeMap::from([("x".to_string(), image(2, 2))]);
            eval(&g, &SymbolValues::new(), &bindings).unwrap().value(y).data.clone()
        };
        assert_eq!(pool(PoolKind::Max, false), Data::F32(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(pool(PoolKind::Mean, false), Data::F32(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(pool(PoolKind::Mean, true), Data::F32(vec![0.25, 0.5, 0.75, 1.0]));
    }
}
