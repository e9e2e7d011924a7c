//! Matrix products, convolution, pooling, norms, attention and gather.

use super::eval::upload;
use super::place::here;
use super::{Element, Tensor};
use crate::base::{DType, Dim, Format, Shape};
use crate::error::Error;
use crate::ir::{Conv2d, Op, Pool2d, RopePairs};
use crate::provider::Usage;

/// Scale and mask of [`Tensor::attention`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// Factor of the scores; `None` for `1 / sqrt(head_dim)`.
    pub scale: Option<f32>,
    /// Whether a token attends only to keys up to its own position.
    pub causal: bool,
    /// Window in keys, including the token's own; `None` for all.
    pub window: Option<u32>,
    /// Number of keys before the first token.
    pub past: usize,
}

impl Tensor {
    /// Computes the matrix product `[.., m, n]` of `[.., m, k]` and `[.., k, n]`; leading
    /// dimensions broadcast.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let a = Tensor::from_vec(&runtime, vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
    /// assert_eq!(a.matmul(a.t()).to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: impl AsRef<Tensor>) -> Tensor {
        Tensor::record("matmul", here(), Op::MatMul, &[self, other.as_ref()])
    }

    /// Computes the product `[.., n]` of `[.., k]` and the transpose of a weight `[n, k]`. A weight
    /// on the device is read in its storage format: packed, `f16`, `bf16` or `f32`.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor) -> Tensor {
        let at = here();
        self.attempt("linear", at, || {
            if weight.node.stored()?.is_some() || weight.sizes().len() != 2 {
                return Ok(Tensor::record("linear", at, Op::linear(), &[self, weight]));
            }
            let k = self.sizes().last().copied();
            if k != Some(weight.sizes()[1]) {
                let what = format!("{} against rows of {}", self.dims(), weight.dims());
                return Err(Error::invalid(what));
            }
            let turned = Tensor::record("linear", at, Op::Transpose(vec![1, 0]), &[weight]);
            if self.sizes().len() != 1 {
                return Ok(Tensor::record("linear", at, Op::MatMul, &[self, &turned]));
            }
            let row = self.reshaped([1, self.count()].into_iter().collect(), "linear", at)?;
            let product = Tensor::record("linear", at, Op::MatMul, &[&row, &turned]);
            product.reshaped([weight.sizes()[0]].into_iter().collect(), "linear", at)
        })
    }

    /// Convolves `[batch, in_c, h, w]` with a weight `[out_c, in_c / groups, kh, kw]`.
    /// `Conv2d::default()` has stride 1, no padding and one group.
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, conv: Conv2d) -> Tensor {
        Tensor::record("conv2d", here(), Op::Conv2d(conv), &[self, weight])
    }

    /// Computes the maximum or mean over windows of `[batch, channels, h, w]`.
    #[track_caller]
    pub fn pool2d(&self, pool: Pool2d) -> Tensor {
        Tensor::record("pool2d", here(), Op::Pool2d(pool), &[self])
    }

    /// Computes `x * rsqrt(mean(x^2) + eps) * weight` along the last axis, with a weight `[n]`.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f32) -> Tensor {
        Tensor::record("rms_norm", here(), Op::RmsNorm { eps }, &[self, weight])
    }

    /// Computes `(x - mean) * rsqrt(variance + eps) * weight + bias` along the last axis, with
    /// weight and bias `[n]`.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f32) -> Tensor {
        let operands = [self, weight, bias];
        Tensor::record("layer_norm", here(), Op::LayerNorm { eps }, &operands)
    }

    /// Applies rotary position embedding (RoPE) to `[tokens, heads, head_dim]`, with positions
    /// `[tokens]` of `i32` and frequencies `[rot_dim / 2]` in radians per position. Rotates the
    /// first `rot_dim` elements of each head.
    #[track_caller]
    pub fn rope(&self, positions: &Tensor, frequencies: &Tensor, pairs: RopePairs) -> Tensor {
        let op = Op::Rope { pairs, rot_dim: 2 * frequencies.count() };
        Tensor::record("rope", here(), op, &[self, positions, frequencies])
    }

    /// Computes attention of queries `[tokens, heads, head_dim]` to keys and values
    /// `[kv_len, kv_heads, head_dim]`; several heads may share a KV head (grouped-query attention).
    #[track_caller]
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Tensor {
        let head_dim = self.sizes().last().copied().unwrap_or(1).max(1);
        let op = Op::attention(
            options.scale.unwrap_or_else(|| (head_dim as f32).sqrt().recip()),
            options.causal,
            options.window,
            Dim::from(options.past),
        );
        Tensor::record("attention", here(), op, &[self, k, v])
    }

    /// Selects the elements of one axis at `ids` (`i32` or `u32`), like NumPy's `take`:
    /// `[a.., n, b..]` and `[ids..]` yield `[a.., ids.., b..]`. An id outside the axis yields
    /// zeros. Rows (axis 0) of a packed table are unpacked to `f32`.
    #[track_caller]
    pub fn gather(&self, axis: isize, ids: &Tensor) -> Tensor {
        let at = here();
        self.attempt("gather", at, || {
            let op = Op::Gather { axis: self.axis(axis)? };
            Ok(Tensor::record("gather", at, op, &[self, ids]))
        })
    }

    /// Same as [`Tensor::gather`], for ids on the host; an id outside the axis is an error.
    #[track_caller]
    pub fn index_select(&self, axis: isize, ids: &[u32]) -> Tensor {
        let at = here();
        self.attempt("index_select", at, || {
            let axis = self.axis(axis)?;
            let size = self.sizes()[axis];
            if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
                let shape = self.dims();
                return Err(Error::invalid(format!("no index {id} on axis {axis} of {shape}")));
            }
            let (format, shape) = (Format::Plain(DType::U32), Shape::new([ids.len()]));
            let ids = upload(self.runtime(), &u32::encode(ids)?, format, Usage::Working)?;
            let (name, dtype) = ("index_select", DType::U32);
            let ids = Tensor::from_stored(self.runtime(), shape, dtype, name, at, ids);
            Ok(Tensor::record("index_select", at, Op::Gather { axis }, &[self, &ids]))
        })
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}
