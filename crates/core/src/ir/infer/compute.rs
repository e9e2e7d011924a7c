//! Inference rules of products, convolution, pooling, norms, RoPE and attention.

use super::{Call, surely_more, weight_name};
use crate::base::{ComputeMode, DType, Dim, Format, Shape};
use crate::error::Result;
use crate::ir::op::{Conv2d, Op, Pool2d};

type Rule = Result<(Shape, DType)>;

/// Rule of a matrix product: `[.., m, k]` and `[.., k, n]` -> `[.., m, n]`.
pub(super) fn matmul(call: &Call<'_>) -> Rule {
    let dtype = call.float(0)?;
    call.want(1, dtype)?;
    let (a, b) = (call.shape(0).dims(), call.shape(1).dims());
    let ([a_lead @ .., m, a_k], [b_lead @ .., b_k, n]) = (a, b) else {
        return Err(call.fail("needs rank 2 or more for both operands"));
    };
    call.equal(a_k, b_k, "inner sizes")?;
    let lead =
        call.broadcast(&a_lead.iter().cloned().collect(), &b_lead.iter().cloned().collect())?;
    Ok((lead.dims().iter().chain([m, n]).cloned().collect(), dtype))
}

/// Rule of a product with a weight: `[.., k]` and `[n, k]` -> `[.., n]`.
pub(super) fn linear(call: &Call<'_>, mode: ComputeMode) -> Rule {
    let dtype = call.float(0)?;
    call.want(1, DType::F32)?;
    call.rank(1, 2)?;
    let op = &call.operands[1].op;
    let Some(format) = op.stored() else {
        return Err(call.fail("needs a weight as its second operand"));
    };
    let (k, weight) = (call.last(0)?, call.shape(1));
    call.equal(k, &weight[1], "inner sizes")?;
    whole_blocks(call, weight_name(op), format, k)?;
    int8_needs_packed(call, mode, op, format)?;
    let dims = call.shape(0).dims();
    let lead = &dims[..dims.len() - 1];
    Ok((lead.iter().chain([&weight[0]]).cloned().collect(), dtype))
}

/// Rule of the gated delta rule: `[b, s, kh, dk]` twice, `[b, s, h, dv]`, `[b, s, h]` twice and
/// `[b, h, dk, dv]` -> `[b, h, s + dk, dv]`.
pub(super) fn delta_rule(call: &Call<'_>) -> Rule {
    for (operand, rank) in [4, 4, 4, 3, 3, 4].into_iter().enumerate() {
        call.want(operand, DType::F32)?;
        call.rank(operand, rank)?;
    }
    let (q, k, v) = (call.shape(0), call.shape(1), call.shape(2));
    let (decay, beta, state) = (call.shape(3), call.shape(4), call.shape(5));
    if q != k {
        return Err(call.fail(format!("needs keys of the shape of the queries, not {k} and {q}")));
    }
    for (what, a, b) in [
        ("sequences", &q[0], &v[0]),
        ("tokens", &q[1], &v[1]),
        ("sequences", &v[0], &state[0]),
        ("heads", &v[2], &state[1]),
        ("key sizes", &q[3], &state[2]),
        ("value sizes", &v[3], &state[3]),
    ] {
        call.equal(a, b, what)?;
    }
    for part in [decay, beta] {
        for axis in 0..3 {
            call.equal(&part[axis], &v[axis], "sizes of values and of their decay and beta")?;
        }
    }
    if !v[2].modulo(&q[2]).is(0) && !q[2].is(1) {
        return Err(call.fail(format!("cannot share {} heads by {} key heads", v[2], q[2])));
    }
    let rows = q[1].clone() + q[3].clone();
    Ok((Shape::new([v[0].clone(), v[2].clone(), rows, v[3].clone()]), DType::F32))
}

/// Rule of sorted indices: `[.., n]` -> `[.., n]` of `u32`.
pub(super) fn argsort(call: &Call<'_>) -> Rule {
    if call.dtype(0) == DType::Bool {
        return Err(call.fail("sorts numbers, not bool: cast before"));
    }
    call.last(0)?;
    Ok((call.shape(0).clone(), DType::U32))
}

/// Rule of the largest elements: `[.., n]` -> `[.., k]` of `u32`.
pub(super) fn top_k(call: &Call<'_>, k: usize) -> Rule {
    call.float(0)?;
    let (n, k) = (call.last(0)?, Dim::from(k));
    if surely_more(&k, n) {
        return Err(call.fail(format!("has no {k} largest of {n} elements")));
    }
    let dims = call.shape(0).dims();
    let lead = &dims[..dims.len() - 1];
    Ok((lead.iter().chain([&k]).cloned().collect(), DType::U32))
}

/// Rule of a product with experts: `[t, 1 or a, k]`, `[e, n, k]` and `[t, a]` -> `[t, a, n]`.
pub(super) fn expert_linear(call: &Call<'_>, mode: ComputeMode) -> Rule {
    let dtype = call.float(0)?;
    call.want(1, DType::F32)?;
    call.ids(2)?;
    for (operand, rank) in [(0, 3), (1, 3), (2, 2)] {
        call.rank(operand, rank)?;
    }
    let op = &call.operands[1].op;
    let Some(format) = op.stored() else {
        return Err(call.fail("needs a weight as its second operand"));
    };
    let (x, weight, ids) = (call.shape(0), call.shape(1), call.shape(2));
    call.equal(&x[2], &weight[2], "inner sizes")?;
    call.equal(&x[0], &ids[0], "tokens")?;
    if !x[1].is(1) {
        call.equal(&x[1], &ids[1], "rows for each token and their ids")?;
    }
    whole_blocks(call, weight_name(op), format, &x[2])?;
    int8_needs_packed(call, mode, op, format)?;
    Ok((Shape::new([ids[0].clone(), ids[1].clone(), weight[1].clone()]), dtype))
}

/// Checks that a weight whose product is computed in int8 is packed.
fn int8_needs_packed(call: &Call<'_>, mode: ComputeMode, op: &Op, format: Format) -> Result<()> {
    if mode == ComputeMode::Int8 && !format.is_quantised() {
        let name = weight_name(op);
        return Err(call.fail(format!(
            "computes in int8, which weight {name:?} in format {format} does not support"
        )));
    }
    Ok(())
}

/// Checks that `row`, the row length of weight `name`, is a whole number of blocks of its format.
pub(super) fn whole_blocks(call: &Call<'_>, name: &str, format: Format, row: &Dim) -> Result<()> {
    let block = format.block_len();
    if !row.modulo(&Dim::from(block)).is(0) && block != 1 {
        return Err(call.fail(format!(
            "needs rows of weight {name:?} to be whole {format} blocks of {block}, not {row}"
        )));
    }
    Ok(())
}

/// A sliding window along one axis: its size in elements, its stride, the padding before and after
/// the axis, and the dilation.
struct Window {
    size: Dim,
    stride: u32,
    pad: (u32, u32),
    dilation: u32,
}

/// Returns the number of positions of a window along an axis of `n` elements:
/// `floor((n + pad - dilation * (size - 1) - 1) / stride) + 1`, with `pad` the sum of both
/// paddings.
fn windows(call: &Call<'_>, n: &Dim, window: Window) -> Result<Dim> {
    if window.stride == 0 || window.dilation == 0 {
        return Err(call.fail("needs strides and dilations of at least 1"));
    }
    if window.size.as_const().is_some_and(|size| size < 1) {
        return Err(call.fail("needs a window of at least one element"));
    }
    let padded = n.clone() + Dim::from(window.pad.0) + Dim::from(window.pad.1);
    let extent = (window.size - Dim::new(1)) * Dim::from(window.dilation) + Dim::new(1);
    if surely_more(&extent, &padded) {
        return Err(call.fail(format!("has a window of {extent} on a padded size of {padded}")));
    }
    Ok((padded - extent).floor_div(&Dim::from(window.stride)) + Dim::new(1))
}

/// Rule of a convolution: `[batch, in_c, h, w]` and `[out_c, in_c / groups, kh, kw]` ->
/// `[batch, out_c, oh, ow]`.
pub(super) fn conv2d(call: &Call<'_>, conv: &Conv2d) -> Rule {
    let dtype = call.float(0)?;
    call.weight_of(1, dtype)?;
    for operand in 0..2 {
        call.rank(operand, 4)?;
    }
    let (x, weight) = (call.shape(0), call.shape(1));
    if conv.groups == 0 {
        return Err(call.fail("needs at least one group"));
    }
    let groups = Dim::from(conv.groups);
    call.equal(&x[1], &(weight[1].clone() * groups.clone()), "input channels")?;
    if !weight[0].modulo(&groups).is(0) && conv.groups != 1 {
        return Err(call.fail(format!("cannot share {} channels by {groups} groups", weight[0])));
    }
    let axis = |stride, before, after, dilation, i: usize| {
        let size = weight[i].clone();
        windows(call, &x[i], Window { size, stride, pad: (before, after), dilation })
    };
    let Conv2d { stride, pad_before, pad_after, dilation, .. } = *conv;
    let height = axis(stride.0, pad_before.0, pad_after.0, dilation.0, 2)?;
    let width = axis(stride.1, pad_before.1, pad_after.1, dilation.1, 3)?;
    Ok((Shape::new([x[0].clone(), weight[0].clone(), height, width]), dtype))
}

/// Rule of pooling: `[batch, channels, h, w]` -> `[batch, channels, oh, ow]`.
pub(super) fn pool2d(call: &Call<'_>, pool: &Pool2d) -> Rule {
    let dtype = call.float(0)?;
    call.rank(0, 4)?;
    let x = call.shape(0);
    let axis = |size: u32, stride, before, after, dilation, i: usize| {
        let size = Dim::from(size);
        windows(call, &x[i], Window { size, stride, pad: (before, after), dilation })
    };
    let Pool2d { kernel, stride, pad_before, pad_after, dilation, .. } = *pool;
    let height = axis(kernel.0, stride.0, pad_before.0, pad_after.0, dilation.0, 2)?;
    let width = axis(kernel.1, stride.1, pad_before.1, pad_after.1, dilation.1, 3)?;
    Ok((Shape::new([x[0].clone(), x[1].clone(), height, width]), dtype))
}

/// Rule of a norm: `[.., n]`, and `[n]` for every other operand -> `[.., n]`.
pub(super) fn norm(call: &Call<'_>, eps: f32) -> Rule {
    if !(eps >= 0.0 && eps.is_finite()) {
        return Err(call.fail(format!("needs an eps that is finite and not negative, not {eps}")));
    }
    let n = call.last(0)?;
    let dtype = call.float(0)?;
    for operand in 1..call.operands.len() {
        call.weight_of(operand, dtype)?;
        call.rank(operand, 1)?;
        call.equal(n, &call.shape(operand)[0], "row sizes")?;
    }
    Ok((call.shape(0).clone(), dtype))
}

/// Rule of RoPE: x `[tokens, heads, head_dim]`, positions `[tokens]`, frequencies `[rot_dim / 2]`
/// -> the shape of x.
pub(super) fn rope(call: &Call<'_>, rot_dim: usize) -> Rule {
    let dtype = call.float(0)?;
    call.want(1, DType::I32)?;
    call.weight_of(2, dtype)?;
    call.rank(0, 3)?;
    call.rank(1, 1)?;
    call.rank(2, 1)?;
    let x = call.shape(0);
    call.equal(&x[0], &call.shape(1)[0], "token counts")?;
    let rot = Dim::from(rot_dim);
    if !rot_dim.is_multiple_of(2) || surely_more(&rot, &x[2]) {
        return Err(call.fail(format!("cannot rotate {rot_dim} elements of a head of {}", x[2])));
    }
    call.equal(&Dim::from(rot_dim / 2), &call.shape(2)[0], "counts of pairs and frequencies")?;
    Ok((x.clone(), dtype))
}

/// Checks the fourth operand of attention, spans `[tokens, 2]`. Spans exclude a causal mask and
/// keys before the first token.
pub(super) fn spans(call: &Call<'_>, causal: bool, past: &Dim) -> Result<()> {
    call.want(3, DType::I32)?;
    call.rank(3, 2)?;
    call.equal(&call.shape(0)[0], &call.shape(3)[0], "tokens and their spans")?;
    call.equal(&Dim::new(2), &call.shape(3)[1], "ends of a span")?;
    if causal || !past.is(0) {
        return Err(call.fail("has spans, and is causal or has keys before the first token"));
    }
    Ok(())
}

/// Checks that attention computes in f32, or in f16 if both keys and values are f16.
pub(super) fn attention_mode(call: &Call<'_>, mode: ComputeMode) -> Result<()> {
    let halves = [1, 2].iter().all(|i| call.dtype(*i) == DType::F16);
    match mode {
        ComputeMode::F32 => Ok(()),
        ComputeMode::F16 if halves => Ok(()),
        _ => Err(call.fail(format!(
            "computes in {mode}, with keys of {} and values of {}; it takes f32, or f16 if both \
             are f16",
            call.dtype(1),
            call.dtype(2)
        ))),
    }
}

/// Checks the sinks of attention: `[heads]`, `f32`.
pub(super) fn sinks(call: &Call<'_>, operand: usize) -> Result<()> {
    call.want(operand, DType::F32)?;
    call.rank(operand, 1)?;
    call.equal(&call.shape(operand)[0], &call.shape(0)[1], "sinks and heads")
}

/// Checks the soft cap of attention: a number above 0.
pub(super) fn soft_cap(call: &Call<'_>, cap: Option<f32>) -> Result<()> {
    match cap {
        Some(cap) if !(cap.is_finite() && cap > 0.0) => {
            Err(call.fail(format!("needs a finite soft cap above 0, not {cap}")))
        }
        _ => Ok(()),
    }
}

/// Rule of attention: q `[tokens, heads, head_dim]`, k and v `[kv_len, kv_heads, head_dim]` -> the
/// shape of q.
pub(super) fn attention(call: &Call<'_>, scale: f32, window: Option<u32>, past: &Dim) -> Rule {
    let dtype = call.float(0)?;
    // Keys and values may be f16 with f32 queries.
    let halves = dtype == DType::F32 && [1, 2].iter().all(|i| call.dtype(*i) == DType::F16);
    for operand in 0..3 {
        if operand == 0 || !halves {
            call.want(operand, dtype)?;
        }
        call.rank(operand, 3)?;
    }
    let (q, k, v) = (call.shape(0), call.shape(1), call.shape(2));
    call.equal(&k[0], &v[0], "lengths of keys and values")?;
    call.equal(&k[1], &v[1], "heads of keys and values")?;
    call.equal(&q[2], &k[2], "head sizes of queries and keys")?;
    call.equal(&k[2], &v[2], "head sizes of keys and values")?;
    let shared = match (q[1].as_const(), k[1].as_const()) {
        (Some(heads), Some(kv_heads)) => kv_heads > 0 && heads % kv_heads == 0,
        _ => q[1] == k[1],
    };
    if !shared {
        return Err(call.fail(format!("cannot share {} key heads by {} heads", k[1], q[1])));
    }
    if !scale.is_finite() {
        return Err(call.fail(format!("needs a finite scale, not {scale}")));
    }
    if window == Some(0) {
        return Err(call.fail("needs a window of at least one key"));
    }
    if past.as_const().is_some_and(|past| past < 0) {
        return Err(call.fail(format!("cannot have {past} keys before the first token")));
    }
    Ok((q.clone(), dtype))
}
