//! Inference rules of operations that move or view elements.

use super::compute::whole_blocks;
use super::{Call, check_sizes, surely_more, weight_name};
use crate::base::{DType, Dim, Shape};
use crate::error::Result;
use crate::ir::op::Op;

type Rule = Result<(Shape, DType)>;

/// Rule of `gather`: `[a.., n, b..]` and `[ids..]` -> `[a.., ids.., b..]`.
pub(super) fn gather(call: &Call<'_>, axis: usize) -> Rule {
    call.axis(0, axis)?;
    call.ids(1)?;
    let x = call.shape(0).dims();
    let op = &call.operands[0].op;
    if let Some(format) = op.stored().filter(|format| format.is_quantised()) {
        call.rank(0, 2)?;
        whole_blocks(call, weight_name(op), format, &x[1])?;
    }
    let ids = call.shape(1).dims();
    let dims = x[..axis].iter().chain(ids).chain(&x[axis + 1..]);
    Ok((dims.cloned().collect(), call.dtype(0)))
}

/// Rule of `update`: state `[n, rest..]` and src `[r, rest..]` -> the shape of the state.
pub(super) fn update(call: &Call<'_>, at: &Dim) -> Rule {
    let n = rows_of_state(call)?;
    let (state, src) = (call.shape(0), call.shape(1));
    let end = at.clone() + src[0].clone();
    if at.as_const().is_some_and(|at| at < 0) || surely_more(&end, n) {
        return Err(call.fail(format!("cannot write {} of {n} at {at}", src[0])));
    }
    Ok((state.clone(), call.dtype(0)))
}

/// Rule of `scatter`: state `[n, rest..]`, src `[r, rest..]` and rows `[r]` -> the shape of the
/// state.
pub(super) fn scatter(call: &Call<'_>) -> Rule {
    rows_of_state(call)?;
    call.want(2, DType::I32)?;
    call.rank(2, 1)?;
    call.equal(&call.shape(1)[0], &call.shape(2)[0], "rows and their places")?;
    Ok((call.shape(0).clone(), call.dtype(0)))
}

/// Rule of `take_along`: x `[a.., n]` and ids `[a.., k]` -> `[a.., k]`.
pub(super) fn take_along(call: &Call<'_>) -> Rule {
    call.ids(1)?;
    call.last(0)?;
    let (x, ids) = (call.shape(0), call.shape(1));
    call.rank(1, x.rank())?;
    for (a, b) in x.dims().iter().zip(ids.dims()).take(x.rank() - 1) {
        call.equal(a, b, "sizes before the last axis")?;
    }
    Ok((ids.clone(), call.dtype(0)))
}

/// Rule of `index_add`: x `[n, rest..]`, source `[r, rest..]` and ids `[r]` -> the shape of x.
pub(super) fn index_add(call: &Call<'_>) -> Rule {
    let dtype = call.float(0)?;
    call.want(1, dtype)?;
    call.ids(2)?;
    call.axis(0, 0)?;
    let (x, source) = (call.shape(0), call.shape(1));
    call.rank(1, x.rank())?;
    call.rank(2, 1)?;
    for (a, b) in x.dims().iter().zip(source.dims()).skip(1) {
        call.equal(a, b, "sizes after the first axis")?;
    }
    call.equal(&source[0], &call.shape(2)[0], "rows and their ids")?;
    Ok((x.clone(), dtype))
}

/// Checks that the first operand is a state and that the second holds rows for it, and returns the
/// number of rows of the state.
fn rows_of_state<'a>(call: &'a Call<'_>) -> Result<&'a Dim> {
    // The operand of an update was checked by this rule, so its chain begins at a state.
    let op = &call.operands[0].op;
    if !(matches!(op, Op::State { .. }) || op.overwrites()) {
        return Err(call.fail("needs a state, or an update of one, as its first operand"));
    }
    call.want(1, call.dtype(0))?;
    let (state, src) = (call.shape(0), call.shape(1));
    call.rank(1, state.rank())?;
    let n = call.axis(0, 0)?;
    for (a, b) in state.dims().iter().zip(src.dims()).skip(1) {
        call.equal(a, b, "sizes after the first axis")?;
    }
    Ok(n)
}

/// Rule of `concat`: sizes along the axis add up, and all others must be equal.
pub(super) fn concat(call: &Call<'_>, axis: usize) -> Rule {
    let first = call.shape(0);
    let mut total = call.axis(0, axis)?.clone();
    for operand in 1..call.operands.len() {
        call.want(operand, call.dtype(0))?;
        call.rank(operand, first.rank())?;
        let shape = call.shape(operand);
        for (i, (a, b)) in first.dims().iter().zip(shape.dims()).enumerate() {
            if i != axis {
                call.equal(a, b, "sizes of the other axes")?;
            }
        }
        total = total + shape[axis].clone();
    }
    let mut dims = first.dims().to_vec();
    dims[axis] = total;
    Ok((dims.into_iter().collect(), call.dtype(0)))
}

/// Rule of `pad`: every axis grows by its padding before and after.
pub(super) fn pad(call: &Call<'_>, amounts: &[(u64, u64)]) -> Rule {
    call.rank(0, amounts.len())?;
    let dims = call.shape(0).dims().iter().zip(amounts);
    let shape = dims
        .map(|(dim, (before, after))| dim.clone() + Dim::from(*before) + Dim::from(*after))
        .collect();
    Ok((shape, call.dtype(0)))
}

/// Rule of `reshape`: the number of elements must be provably equal.
pub(super) fn reshape(call: &Call<'_>, to: &Shape) -> Rule {
    // Products saturate, so an oversized shape must be rejected before the comparison.
    check_sizes(to).map_err(|e| call.fail(e))?;
    let (from, into) = (call.shape(0).elements(), to.elements());
    if from != into {
        return Err(call.fail(format!("has {from} elements, and {to} has {into}")));
    }
    Ok((to.clone(), call.dtype(0)))
}

/// Rule of `transpose`: axis `i` of the result is axis `perm[i]` of the operand.
pub(super) fn transpose(call: &Call<'_>, perm: &[usize]) -> Rule {
    let dims = call.shape(0).dims();
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..dims.len()) {
        return Err(call.fail(format!("cannot order its axes as {perm:?}")));
    }
    Ok((perm.iter().map(|axis| dims[*axis].clone()).collect(), call.dtype(0)))
}

/// Rule of `slice`: the axis keeps `len` indices, from `start` on with stride `step`.
pub(super) fn slice(call: &Call<'_>, axis: usize, start: &Dim, len: &Dim, step: u64) -> Rule {
    let n = call.axis(0, axis)?;
    if step == 0 {
        return Err(call.fail("needs a step of at least 1"));
    }
    let negative = |d: &Dim| d.as_const().is_some_and(|value| value < 0);
    // One past the last index; an empty slice may start anywhere up to the end.
    let end = match len.as_const() {
        Some(0) => start.clone(),
        _ => start.clone() + (len.clone() - Dim::new(1)) * Dim::from(step) + Dim::new(1),
    };
    if negative(start) || negative(len) || surely_more(&end, n) {
        return Err(call.fail(format!(
            "cannot take {len} of axis {axis} from {start} with step {step}: it has {n}"
        )));
    }
    let mut dims = call.shape(0).dims().to_vec();
    dims[axis] = len.clone();
    Ok((dims.into_iter().collect(), call.dtype(0)))
}

/// Rule of `expand`: dimensions of size 1, and new leading dimensions, repeat.
pub(super) fn expand(call: &Call<'_>, to: &Shape) -> Rule {
    let shape = call.broadcast(call.shape(0), to)?;
    if shape != *to {
        return Err(call.fail(format!("cannot become {to}: only sizes of 1 repeat")));
    }
    Ok((shape, call.dtype(0)))
}
