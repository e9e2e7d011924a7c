//! Shape and type inference.
//!
//! Every rule of `op.rs` is checked here and nowhere else: a node that passes can be computed.
//! Sizes are symbolic. A provable mismatch is an error, and sizes that must be equal must be
//! provably equal, because a plan must hold for every run. The floating-point operands of an
//! operation have the same type, with two exceptions: weights may be `f32`, the element type of
//! every storage format, and keys and values may be `f16` with `f32` queries.

mod compute;
mod movement;
#[cfg(test)]
mod tests;

use super::custom::Custom;
use super::graph::Node;
use super::op::{Op, ReduceOp};
use super::scalar::{BinaryOp, UnaryOp};
use crate::base::{DType, Dim, Shape};
use crate::error::{Error, Result};
use crate::sampling::{NoToken, SampleParams};

/// Infers the shape and element type of the result of `op` on these operands.
///
/// # Errors
/// Invalid, naming the operation and the shapes, if the operands violate the rule of `op`, or if
/// `op` is a leaf (input, weight, state, constant): the shape of a leaf is declared, not inferred.
pub fn infer(op: &Op, operands: &[&Node]) -> Result<(Shape, DType)> {
    let call = Call { op, operands };
    call.arity()?;
    call.no_packed_operand()?;
    let (shape, dtype) = match op {
        Op::Input { .. }
        | Op::Weight { .. }
        | Op::Merged { .. }
        | Op::State { .. }
        | Op::Constant { .. } => {
            return Err(call.fail("has a given shape, and none to infer"));
        }
        Op::Unary(unary) => unary_rule(&call, *unary)?,
        Op::Binary(binary) => binary_rule(&call, *binary)?,
        Op::Select => select_rule(&call)?,
        Op::Cast(dtype) => (call.shape(0).clone(), *dtype),
        Op::Reduce { op, axes, keep } => reduce_rule(&call, *op, axes, *keep)?,
        Op::ArgMax => argmax_rule(&call)?,
        Op::Greedy => token_rule(&call)?,
        Op::Sample => sample_rule(&call)?,
        Op::TopK { k } => compute::top_k(&call, *k)?,
        Op::ArgSort { .. } => compute::argsort(&call)?,
        Op::Softmax => {
            let dtype = call.float(0)?;
            call.last(0)?;
            (call.shape(0).clone(), dtype)
        }
        Op::MatMul => compute::matmul(&call)?,
        Op::Linear { mode } => compute::linear(&call, *mode)?,
        Op::ExpertLinear { mode } => compute::expert_linear(&call, *mode)?,
        Op::Conv2d(conv) => compute::conv2d(&call, conv)?,
        Op::Pool2d(pool) => compute::pool2d(&call, pool)?,
        Op::RmsNorm { eps } | Op::LayerNorm { eps } => compute::norm(&call, *eps)?,
        Op::Rope { rot_dim, .. } => compute::rope(&call, *rot_dim)?,
        Op::Attention { scale, causal, window, past, mode, soft_cap, .. } => {
            compute::attention_mode(&call, *mode)?;
            compute::soft_cap(&call, *soft_cap)?;
            let [spans, sinks] = op.attention_operands(operands.len());
            if spans.is_some() {
                compute::spans(&call, *causal, past)?;
            }
            if let Some(sinks) = sinks {
                compute::sinks(&call, sinks)?;
            }
            compute::attention(&call, *scale, *window, past)?
        }
        Op::DeltaRule => compute::delta_rule(&call)?,
        Op::Gather { axis } => movement::gather(&call, *axis)?,
        Op::Update { at } => movement::update(&call, at)?,
        Op::Scatter => movement::scatter(&call)?,
        Op::IndexAdd => movement::index_add(&call)?,
        Op::TakeAlong => movement::take_along(&call)?,
        Op::Concat { axis } => movement::concat(&call, *axis)?,
        Op::Pad { amounts, .. } => movement::pad(&call, amounts)?,
        Op::Custom(custom) => custom_rule(&call, custom)?,
        Op::Reshape(to) => movement::reshape(&call, to)?,
        Op::Transpose(perm) => movement::transpose(&call, perm)?,
        Op::Slice { axis, start, len, step } => movement::slice(&call, *axis, start, len, *step)?,
        Op::Expand(to) => movement::expand(&call, to)?,
    };
    check_sizes(&shape).map_err(|e| call.fail(e))?;
    Ok((shape, dtype))
}

/// Checks that no constant size is negative and that the product of constant sizes fits in 63 bits.
///
/// # Errors
/// Invalid, naming the shape.
pub(super) fn check_sizes(shape: &Shape) -> Result<()> {
    let mut elements = 1i64;
    for size in shape.dims().iter().filter_map(Dim::as_const) {
        if size < 0 {
            return Err(Error::invalid(format!("shape {shape} has the negative size {size}")));
        }
        // A zero size must not hide an overflow of the others, so it counts as one.
        elements = elements
            .checked_mul(size.max(1))
            .ok_or_else(|| Error::invalid(format!("shape {shape} does not fit 63 bits")))?;
    }
    Ok(())
}

/// An operation and its operands, with checks that the rules share.
struct Call<'a> {
    op: &'a Op,
    operands: &'a [&'a Node],
}

impl Call<'_> {
    /// Creates an error with the message `linear(f32[4, 8], f32[3, 9]) what`.
    fn fail(&self, what: impl std::fmt::Display) -> Error {
        let operands: Vec<String> =
            self.operands.iter().map(|n| format!("{}{}", n.dtype, n.shape)).collect();
        Error::invalid(format!("{}({}) {what}", self.op.name(), operands.join(", ")))
    }

    fn shape(&self, operand: usize) -> &Shape {
        &self.operands[operand].shape
    }

    fn dtype(&self, operand: usize) -> DType {
        self.operands[operand].dtype
    }

    /// Checks the number of operands, so that rules may index them.
    fn arity(&self) -> Result<()> {
        let given = self.operands.len();
        let want = match self.op {
            Op::Input { .. }
            | Op::Weight { .. }
            | Op::Merged { .. }
            | Op::State { .. }
            | Op::Constant { .. } => 0,
            Op::Concat { .. } if given == 0 => return Err(self.fail("needs an operand")),
            Op::Concat { .. } => given,
            Op::Custom(custom) => custom.inputs.len(),
            Op::Unary(_)
            | Op::Cast(_)
            | Op::Reduce { .. }
            | Op::ArgMax
            | Op::Greedy
            | Op::Softmax
            | Op::TopK { .. }
            | Op::ArgSort { .. }
            | Op::Pool2d(_)
            | Op::Pad { .. }
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice { .. }
            | Op::Expand(_) => 1,
            Op::Binary(_)
            | Op::Sample
            | Op::MatMul
            | Op::Linear { .. }
            | Op::Conv2d(_)
            | Op::RmsNorm { .. }
            | Op::Gather { .. }
            | Op::TakeAlong
            | Op::Update { .. } => 2,
            Op::Attention { sinks, .. } => {
                let least = 3 + usize::from(*sinks);
                given.clamp(least, least + 1)
            }
            Op::DeltaRule => 6,
            Op::Select
            | Op::LayerNorm { .. }
            | Op::Rope { .. }
            | Op::Scatter
            | Op::ExpertLinear { .. }
            | Op::IndexAdd => 3,
        };
        if given != want {
            return Err(self.fail(format!("has {given} operands instead of {want}")));
        }
        Ok(())
    }

    /// Checks that packed weights are read only by products with weights and by gathers of rows.
    fn no_packed_operand(&self) -> Result<()> {
        for (i, node) in self.operands.iter().enumerate() {
            let Some(format) = node.op.stored() else { continue };
            let reads_packed = matches!(
                (self.op, i),
                (Op::Linear { .. } | Op::ExpertLinear { .. }, 1) | (Op::Gather { axis: 0 }, 0)
            );
            if format.is_quantised() && !reads_packed {
                return Err(self.fail(format!(
                    "cannot read weight {:?} in format {format}: only linear, expert_linear and \
                     gather of axis 0 can",
                    weight_name(&node.op)
                )));
            }
        }
        Ok(())
    }

    fn want(&self, operand: usize, dtype: DType) -> Result<()> {
        if self.dtype(operand) != dtype {
            return Err(self.fail(format!("needs {dtype} for operand {operand}")));
        }
        Ok(())
    }

    /// Returns the type of an operand; fails if it is not a float.
    fn float(&self, operand: usize) -> Result<DType> {
        let dtype = self.dtype(operand);
        match dtype.is_float() {
            true => Ok(dtype),
            false => Err(self.fail(format!("needs floats for operand {operand}"))),
        }
    }

    /// Checks that an operand holds indices.
    fn ids(&self, operand: usize) -> Result<()> {
        match self.dtype(operand) {
            DType::I32 | DType::U32 => Ok(()),
            _ => Err(self.fail("needs i32 or u32 ids")),
        }
    }

    /// Checks that a weight is `f32` or has the type of the other operands, `dtype`.
    fn weight_of(&self, operand: usize, dtype: DType) -> Result<()> {
        match self.dtype(operand) {
            DType::F32 => Ok(()),
            _ => self.want(operand, dtype),
        }
    }

    fn rank(&self, operand: usize, rank: usize) -> Result<()> {
        if self.shape(operand).rank() != rank {
            return Err(self.fail(format!("needs rank {rank} for operand {operand}")));
        }
        Ok(())
    }

    /// Returns the innermost size; fails if the operand is a scalar.
    fn last(&self, operand: usize) -> Result<&Dim> {
        self.shape(operand)
            .dims()
            .last()
            .ok_or_else(|| self.fail(format!("needs an axis in operand {operand}")))
    }

    fn axis(&self, operand: usize, axis: usize) -> Result<&Dim> {
        self.shape(operand)
            .dims()
            .get(axis)
            .ok_or_else(|| self.fail(format!("has no axis {axis} in operand {operand}")))
    }

    fn equal(&self, a: &Dim, b: &Dim, what: &str) -> Result<()> {
        if a != b {
            return Err(self.fail(format!("needs equal {what}, not {a} and {b}")));
        }
        Ok(())
    }

    fn broadcast(&self, a: &Shape, b: &Shape) -> Result<Shape> {
        a.broadcast(b).map_err(|e| self.fail(format!("does not fit: {e}")))
    }
}

/// Returns the name of a weight for messages; the first name of merged weights.
fn weight_name(op: &Op) -> &str {
    op.bound_names().next().unwrap_or_default()
}

/// Returns whether `a > b` provably holds for every run.
fn surely_more(a: &Dim, b: &Dim) -> bool {
    (a.clone() - b.clone()).as_const().is_some_and(|difference| difference > 0)
}

fn unary_rule(call: &Call<'_>, op: UnaryOp) -> Result<(Shape, DType)> {
    let dtype = call.dtype(0);
    let fits = match op {
        UnaryOp::Not => dtype == DType::Bool,
        UnaryOp::Neg | UnaryOp::Abs => dtype.is_float() || dtype == DType::I32,
        _ => dtype.is_float(),
    };
    if !fits {
        return Err(call.fail(format!("is not defined on {dtype}")));
    }
    Ok((call.shape(0).clone(), dtype))
}

fn binary_rule(call: &Call<'_>, op: BinaryOp) -> Result<(Shape, DType)> {
    let dtype = call.dtype(0);
    call.want(1, dtype)?;
    let number = dtype != DType::Bool;
    let fits = match op {
        BinaryOp::And | BinaryOp::Or => dtype == DType::Bool,
        BinaryOp::Pow => dtype.is_float(),
        BinaryOp::Eq | BinaryOp::Ne => number || dtype == DType::Bool,
        _ => number,
    };
    if !fits {
        return Err(call.fail(format!("is not defined on {dtype}")));
    }
    let shape = call.broadcast(call.shape(0), call.shape(1))?;
    Ok((shape, if op.is_comparison() { DType::Bool } else { dtype }))
}

fn select_rule(call: &Call<'_>) -> Result<(Shape, DType)> {
    call.want(0, DType::Bool)?;
    let dtype = call.dtype(1);
    call.want(2, dtype)?;
    let both = call.broadcast(call.shape(1), call.shape(2))?;
    Ok((call.broadcast(call.shape(0), &both)?, dtype))
}

fn reduce_rule(
    call: &Call<'_>,
    op: ReduceOp,
    axes: &[usize],
    keep: bool,
) -> Result<(Shape, DType)> {
    let dtype = match call.dtype(0) {
        DType::Bool => return Err(call.fail("takes numbers, not bool: use any, all or a cast")),
        dtype @ (DType::I32 | DType::U32) if op == ReduceOp::Mean => {
            return Err(call.fail(format!("of {dtype} is no integer: cast to f32 before")));
        }
        dtype => dtype,
    };
    if axes.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(call.fail(format!("needs ascending axes, not {axes:?}")));
    }
    for axis in axes {
        call.axis(0, *axis)?;
    }
    let dims = call.shape(0).dims().iter().enumerate();
    let shape = dims
        .filter_map(|(i, dim)| match (axes.contains(&i), keep) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(Dim::new(1)),
            (true, false) => None,
        })
        .collect();
    Ok((shape, dtype))
}

/// Checks the operands against the kernel's declaration and returns the result that it declares.
fn custom_rule(call: &Call<'_>, custom: &Custom) -> Result<(Shape, DType)> {
    let result = custom.result().map_err(|e| call.fail(e))?;
    for (i, (shape, dtype)) in custom.inputs.iter().enumerate() {
        if call.shape(i) != shape || call.dtype(i) != *dtype {
            return Err(
                call.fail(format!("kernel {:?} takes {dtype}{shape} as operand {i}", custom.name))
            );
        }
    }
    for (shape, _) in &custom.outputs {
        check_sizes(shape).map_err(|e| call.fail(e))?;
    }
    Ok(result)
}

fn argmax_rule(call: &Call<'_>) -> Result<(Shape, DType)> {
    call.float(0)?;
    if call.last(0)?.is(0) {
        return Err(call.fail("has no maximum of zero elements"));
    }
    let dims = call.shape(0).dims();
    Ok((dims[..dims.len() - 1].iter().cloned().collect(), DType::U32))
}

/// Rule of operations that choose a token: no index may equal an error word of [`NoToken`].
fn token_rule(call: &Call<'_>) -> Result<(Shape, DType)> {
    let logits = call.last(0)?.as_const().and_then(|n| u64::try_from(n).ok());
    if let Some(n) = logits.filter(|n| *n > NoToken::MOST_LOGITS) {
        let most = NoToken::MOST_LOGITS;
        return Err(call.fail(format!("has rows of {n} logits, a token is one of {most} at most")));
    }
    argmax_rule(call)
}

fn sample_rule(call: &Call<'_>) -> Result<(Shape, DType)> {
    let result = token_rule(call)?;
    call.want(1, DType::U32)?;
    call.equal(call.last(1)?, &Dim::from(SampleParams::WORDS), "words of a draw")?;
    let draws = call.shape(1).dims();
    call.rank(1, call.shape(0).rank())?;
    for (logits, draws) in call.shape(0).dims().iter().zip(&draws[..draws.len() - 1]) {
        call.equal(logits, draws, "rows")?;
    }
    Ok(result)
}
