//! The gradient of each operation: from that of its output, those of its operands.
//!
//! A rule records operations on tensors and looks at no element, so it holds for every size, type
//! and device. `tests/it/on_device/gradients.rs` compares each with differences of the reference.

mod attention;
mod elementwise;
mod movement;
mod norms;
mod products;
mod reduce;
mod windows;

use smallvec::{SmallVec, smallvec};

use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::runtime::tensor::Tensor;

/// The gradient of each operand; `None` for one that is not wanted, or whose gradient is 0.
pub(super) type Parts = SmallVec<[Option<Tensor>; 3]>;

/// An operation whose operands' gradients are wanted.
pub(super) struct Call<'a> {
    pub(super) op: &'a Op,
    pub(super) inputs: &'a [Tensor],
    pub(super) output: &'a Tensor,
    /// Of the output, with its shape and type.
    pub(super) gradient: &'a Tensor,
    /// Which operands' gradients are wanted.
    pub(super) wants: &'a [bool],
}

impl Call<'_> {
    /// Returns the gradients that are wanted; `of` makes that of an operand.
    fn parts(&self, of: impl Fn(usize) -> Option<Tensor>) -> Parts {
        self.wants.iter().enumerate().map(|(i, wants)| of(i).filter(|_| *wants)).collect()
    }

    /// Checks that no operand but the first `count` ones is a variable's.
    fn only_first(&self, count: usize, what: &str) -> Result<()> {
        match self.wants.iter().skip(count).any(|wants| *wants) {
            true => Err(Error::invalid(format!("there is no gradient of {what}"))),
            false => Ok(()),
        }
    }
}

/// Returns the gradients of the operands.
///
/// # Errors
/// Invalid for an operation that has none.
pub(super) fn pull_back(call: &Call<'_>) -> Result<Parts> {
    let (g, x) = (call.gradient, call.inputs);
    Ok(match call.op {
        Op::Unary(op) => smallvec![elementwise::unary(*op, &x[0], call.output, g)],
        Op::Binary(op) => elementwise::binary(*op, call),
        Op::Select => elementwise::select(call),
        Op::Cast(_) => smallvec![Some(g.cast(x[0].dtype()))],
        Op::Reduce { op, axes, .. } => smallvec![Some(reduce::reduce(*op, axes, call))],
        Op::Softmax => smallvec![Some(norms::softmax(call.output, g))],
        Op::MatMul => products::matmul(call),
        Op::Linear { .. } => products::linear(call)?,
        Op::Conv2d(conv) => windows::conv2d(conv, call)?,
        Op::Pool2d(pool) => smallvec![Some(windows::pool2d(pool, call))],
        Op::RmsNorm { eps } => norms::rms_norm(*eps, call),
        Op::LayerNorm { eps } => norms::layer_norm(*eps, call),
        Op::Rope { pairs, .. } => {
            call.only_first(1, "the positions and frequencies of RoPE")?;
            smallvec![Some(g.rope(&x[1], &x[2].neg(), *pairs))]
        }
        Op::Attention { sinks: true, .. } => {
            return Err(Error::invalid("attention with sinks has no gradient"));
        }
        Op::Attention { soft_cap: Some(_), .. } => {
            return Err(Error::invalid("attention with a soft cap has no gradient"));
        }
        Op::Attention { scale, causal, window, past, .. } => {
            call.only_first(3, "the spans of attention")?;
            let number = past.as_const().and_then(|past| i32::try_from(past).ok());
            let past = number.ok_or_else(|| {
                Error::invalid(format!(
                    "attention after {past} keys, which is no constant below 2^31"
                ))
            })?;
            let mask = attention::Mask { causal: *causal, window: *window, past };
            attention::attention(*scale, &mask, call)?
        }
        Op::Gather { axis } => movement::gather(*axis, call)?,
        Op::IndexAdd => movement::index_add(call),
        Op::Concat { axis } => movement::concat(*axis, call),
        Op::Pad { amounts, .. } => smallvec![Some(movement::pad(amounts, call))],
        Op::Reshape(_) => smallvec![Some(g.reshape(x[0].sizes()))],
        Op::Transpose(order) => smallvec![Some(movement::transpose(order, g))],
        Op::Slice { axis, start, step, .. } => {
            smallvec![Some(movement::slice(*axis, start, *step, call)?)]
        }
        Op::Expand(_) => smallvec![Some(sum_to(g, x[0].sizes()))],
        Op::Custom(custom) => {
            let name = &custom.name;
            return Err(Error::invalid(format!("the kernel {name:?} of a pack has no gradient")));
        }
        other => return Err(Error::invalid(format!("{} has no gradient", other.name()))),
    })
}

/// Sums the axes along which an operand of this shape was broadcast.
fn sum_to(g: &Tensor, shape: &[usize]) -> Tensor {
    if g.sizes() == shape {
        return g.clone();
    }
    let extra = g.sizes().len() - shape.len();
    let repeated =
        |(i, size): (usize, &usize)| (*size == 1 && g.sizes()[extra + i] != 1).then_some(extra + i);
    let axes: Vec<usize> =
        (0..extra).chain(shape.iter().enumerate().filter_map(repeated)).collect();
    g.sum(axes).reshape(shape)
}

/// Returns the tensor in `f32` if it is narrower: sums of gradients need the digits.
fn wide(x: &Tensor) -> Tensor {
    if x.dtype().is_half() { x.cast(DType::F32) } else { x.clone() }
}
