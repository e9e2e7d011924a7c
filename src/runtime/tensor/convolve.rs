//! Convolutions over one axis, transposed convolutions, and interpolation.

use super::place::here;
use super::{Place, Tensor};
use crate::error::Error;
use crate::ir::Conv2d;

/// Geometry of a 1-D convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    /// Stride of the window.
    pub stride: u32,
    /// Zero padding before the first element.
    pub pad_before: u32,
    /// Zero padding after the last element.
    pub pad_after: u32,
    /// Dilation of the window.
    pub dilation: u32,
    /// Number of channel groups.
    pub groups: u32,
}

impl Default for Conv1d {
    /// Stride 1, no padding, no dilation, one group.
    fn default() -> Conv1d {
        Conv1d { stride: 1, pad_before: 0, pad_after: 0, dilation: 1, groups: 1 }
    }
}

impl Conv1d {
    /// Returns the same convolution over the columns of images of one row.
    fn of_row(self) -> Conv2d {
        Conv2d {
            stride: (1, self.stride),
            pad_before: (0, self.pad_before),
            pad_after: (0, self.pad_after),
            dilation: (1, self.dilation),
            groups: self.groups,
        }
    }
}

/// The axis of images that goes with each of a pair (height, width).
const AXES: [usize; 2] = [2, 3];

pub(super) fn pair((height, width): (u32, u32)) -> [usize; 2] {
    [height as usize, width as usize]
}

impl Tensor {
    /// Convolves `[batch, in_c, n]` with a weight `[out_c, in_c / groups, k]`.
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, conv: Conv1d) -> Tensor {
        self.in_a_row("conv1d", weight, here(), |x, weight| x.conv2d(weight, conv.of_row()))
    }

    /// Computes the transposed convolution of `[batch, in_c, n]` with a weight
    /// `[in_c, out_c / groups, k]`, as [`Tensor::conv_transpose2d`] does; `extra` elements are added
    /// to the result.
    #[track_caller]
    pub fn conv_transpose1d(&self, weight: &Tensor, conv: Conv1d, extra: usize) -> Tensor {
        self.in_a_row("conv_transpose1d", weight, here(), |x, weight| {
            x.conv_transpose2d(weight, conv.of_row(), (0, extra))
        })
    }

    /// Computes the transposed convolution of `[batch, in_c, h, w]` with a weight
    /// `[in_c, out_c / groups, kh, kw]`: the map from results to images of [`Tensor::conv2d`] with
    /// the same geometry. `extra` rows and columns (PyTorch's `output_padding`) are added to the
    /// result, whose height is
    /// `(h - 1) * stride + dilation * (kh - 1) + 1 - pad_before - pad_after + extra`.
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, conv: Conv2d, extra: (usize, usize)) -> Tensor {
        let at = here();
        self.attempt("conv_transpose2d", at, || {
            weight.check()?;
            let (groups, x) = (conv.groups as usize, self.sizes());
            let fits = self.sizes().len() == 4
                && weight.sizes().len() == 4
                && x[1] == weight.sizes()[0]
                && groups > 0
                && x[1].is_multiple_of(groups)
                && weight.count() > 0
                && x[2] > 0
                && x[3] > 0;
            if !fits {
                return Err(Error::invalid(format!(
                    "needs [batch, in_c, h, w] and a weight [in_c, out_c / groups, kh, kw], not {} \
                     and {} in {groups} groups",
                    self.dims(),
                    weight.dims()
                )));
            }
            let (extra, stride) = ([extra.0, extra.1], pair(conv.stride));
            let (before, after) = (pair(conv.pad_before), pair(conv.pad_after));
            let mut sizes = [0; 2];
            for (i, axis) in AXES.into_iter().enumerate() {
                let reach = (weight.sizes()[axis] - 1) * pair(conv.dilation)[i];
                if stride[i] == 0 || extra[i] >= stride[i].max(pair(conv.dilation)[i]) {
                    return Err(Error::invalid(format!(
                        "{} extra rows or columns with a stride of {}",
                        extra[i], stride[i]
                    )));
                }
                let whole = (x[axis] - 1) * stride[i] + reach + 1 + extra[i];
                sizes[i] = whole.checked_sub(before[i] + after[i]).filter(|n| *n > 0).ok_or_else(
                    || Error::invalid(format!("padding leaves none of {whole} rows or columns")),
                )?;
            }
            let done = transposed(self, weight, &conv, sizes);
            done.check()?;
            Ok(done)
        })
    }

    /// Enlarges or shrinks the last two axes to `rows` and `columns` by linear interpolation, like
    /// PyTorch's `interpolate` with `bilinear`. With `align_corners` the first and last elements
    /// stay at the edges; else the elements are areas, as in images.
    #[track_caller]
    pub fn upsample_bilinear2d(&self, rows: usize, columns: usize, align_corners: bool) -> Tensor {
        let at = here();
        self.attempt("upsample_bilinear2d", at, || {
            let (height, width) = (self.axis(-2)?, self.axis(-1)?);
            if !self.dtype().is_float() || rows == 0 || columns == 0 || self.count() == 0 {
                return Err(Error::invalid(format!(
                    "no {} of the shape {} has {rows} x {columns} interpolated elements",
                    self.dtype(),
                    self.dims()
                )));
            }
            let tall = self.interpolated(height, rows, align_corners);
            let done = tall.interpolated(width, columns, align_corners);
            done.check()?;
            Ok(done)
        })
    }

    /// Interpolates one axis linearly to `size` elements.
    fn interpolated(&self, axis: usize, size: usize, align_corners: bool) -> Tensor {
        let count = self.sizes()[axis];
        if count == size {
            return self.clone();
        }
        let place = |i: usize| match align_corners {
            true => i as f64 * (count - 1) as f64 / (size - 1).max(1) as f64,
            false => ((i as f64 + 0.5) * count as f64 / size as f64 - 0.5).max(0.0),
        };
        let low = |i: usize| (place(i) as usize).min(count - 1);
        let below: Vec<u32> = (0..size).map(|i| low(i) as u32).collect();
        let above: Vec<u32> = (0..size).map(|i| (low(i) + 1).min(count - 1) as u32).collect();
        let weights: Vec<f32> = (0..size).map(|i| (place(i) - low(i) as f64) as f32).collect();
        let mut sizes = vec![1; self.sizes().len()];
        sizes[axis] = size;
        let weights = Tensor::from_vec(self.runtime(), weights, sizes).cast(self.dtype());
        let axis = axis as isize;
        self.index_select(axis, &below).lerp(&self.index_select(axis, &above), &weights)
    }

    /// Computes an operation on images for tensors `[batch, channels, n]` as images of one row.
    fn in_a_row(
        &self,
        name: &'static str,
        weight: &Tensor,
        at: Place,
        run: impl FnOnce(&Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        self.attempt(name, at, || {
            weight.check()?;
            if self.sizes().len() != 3 || weight.sizes().len() != 3 {
                return Err(Error::invalid(format!(
                    "needs [batch, channels, n] and a weight of three axes, not {} and {}",
                    self.dims(),
                    weight.dims()
                )));
            }
            let done = run(&self.unsqueeze(2), &weight.unsqueeze(2));
            done.check().map_err(|error| error.context("as images of one row"))?;
            Ok(done.squeeze(2))
        })
    }
}

/// Computes the transposed convolution of `g` to images of these sizes: a convolution of the dilated
/// `g` with the turned weight `[out_c, in_c / groups, kh, kw]` of the convolution.
pub(super) fn transposed(g: &Tensor, weight: &Tensor, conv: &Conv2d, sizes: [usize; 2]) -> Tensor {
    let [out_c, per_group, rows, columns] = *weight.sizes() else { return g.clone() };
    let groups = conv.groups as usize;
    let (stride, dilation) = (pair(conv.stride), pair(conv.dilation));
    // Of the padded image; those positions that are padding are cut.
    let cut = pair(conv.pad_before);
    let (mut g, mut turned, mut amounts) = (g.clone(), weight.clone(), [(0, 0); 4]);
    for (i, axis) in AXES.into_iter().enumerate() {
        g = dilated(&g, axis, stride[i]);
        turned = turned.flip(axis as isize);
        let reach = (weight.sizes()[axis] - 1) * dilation[i];
        amounts[axis] = (reach, (cut[i] + sizes[i]).saturating_sub(g.sizes()[axis]));
    }
    // [out_c, in_c / groups, ..] as [in_c, out_c / groups, ..]
    let turned = turned
        .reshape([groups, out_c / groups, per_group, rows, columns])
        .permute([0, 2, 1, 3, 4])
        .reshape([groups * per_group, out_c / groups, rows, columns]);
    let all = Conv2d { dilation: conv.dilation, groups: conv.groups, ..Conv2d::default() };
    let mut image = g.pad(&amounts, 0.0).conv2d(&turned, all);
    for (i, axis) in AXES.into_iter().enumerate() {
        image = image.narrow(axis as isize, cut[i]..cut[i] + sizes[i]);
    }
    image
}

/// Inserts `step - 1` zeros between the elements of an axis.
pub(super) fn dilated(x: &Tensor, axis: usize, step: usize) -> Tensor {
    let size = x.sizes()[axis];
    if step == 1 || size <= 1 {
        return x.clone();
    }
    let wide = x.unsqueeze(axis as isize + 1);
    let mut amounts = vec![(0, 0); wide.sizes().len()];
    amounts[axis + 1] = (0, step - 1);
    let mut sizes = x.sizes().to_vec();
    sizes[axis] = size * step;
    wide.pad(&amounts, 0.0).reshape(sizes).narrow(axis as isize, ..size * step - (step - 1))
}
