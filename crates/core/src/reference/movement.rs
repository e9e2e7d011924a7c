//! Data movement without arithmetic: each operation reads its result at a list of source indices.

use super::Call;
use super::index::{broadcast, strides, walk};
use super::tensor::{Data, Tensor};
use crate::base::Dim;
use crate::error::{Error, Result};

/// Returns the elements of the first operand at these indices.
fn at_places(call: &Call<'_>, places: Vec<usize>) -> Result<Tensor> {
    let places: Vec<Option<usize>> = places.into_iter().map(Some).collect();
    picked(call, &places, 0)
}

/// Returns the elements of the first operand at these indices, and `word` for `None`.
fn picked(call: &Call<'_>, places: &[Option<usize>], word: u32) -> Result<Tensor> {
    let fill = Tensor::constant(vec![1], call.dtype, &[word])?;
    call.result(call.operands[0].data.pick(places, &fill.data)?)
}

/// Returns the ids of an operand; `None` for a negative one.
pub(super) fn ids(call: &Call<'_>, operand: usize) -> Result<Vec<Option<usize>>> {
    match &call.operands[operand].data {
        Data::I32(v) => Ok(v.iter().map(|id| usize::try_from(*id).ok()).collect()),
        Data::U32(v) => Ok(v.iter().map(|id| usize::try_from(*id).ok()).collect()),
        _ => Err(Error::invalid("ids are i32 or u32")),
    }
}

/// Adds row `i` of source `[r, rest..]` to row `ids[i]` of x `[n, rest..]`; an id out of range
/// drops the row.
pub(super) fn index_add(call: &Call<'_>) -> Result<Tensor> {
    let (n, row) = (call.dims(0)[0], call.dims(0)[1..].iter().product::<usize>());
    let mut sums = call.operands[0].floats();
    let source = call.operands[1].floats();
    for (from, to) in ids(call, 2)?.into_iter().enumerate() {
        let Some(to) = to.filter(|to| *to < n) else { continue };
        for i in 0..row {
            sums[to * row + i] += source[from * row + i];
        }
    }
    call.floats(sums)
}

/// Takes elements of each row of x `[a.., n]` at ids `[a.., k]`: `y[.., j] = x[.., ids[.., j]]`, or 0
/// for an id out of range.
pub(super) fn take_along(call: &Call<'_>) -> Result<Tensor> {
    let (n, k) = (call.dims(0).last().copied(), call.dims(1).last().copied());
    let (n, k) = (n.unwrap_or(1), k.unwrap_or(1));
    let place = |(i, id): (usize, Option<usize>)| id.filter(|id| *id < n).map(|id| i / k * n + id);
    let places: Vec<Option<usize>> = ids(call, 1)?.into_iter().enumerate().map(place).collect();
    picked(call, &places, 0)
}

/// Gathers from x `[a.., n, b..]` with ids `[ids..]`: `y[a.., ids.., b..] = x[a.., ids[..], b..]`,
/// or 0 for an id out of range.
pub(super) fn gather(call: &Call<'_>, axis: usize) -> Result<Tensor> {
    let dims = call.dims(0);
    let (outer, n): (usize, usize) = (dims[..axis].iter().product(), dims[axis]);
    let inner: usize = dims[axis + 1..].iter().product();
    let ids = ids(call, 1)?;
    let mut places = Vec::with_capacity(outer * ids.len() * inner);
    for a in 0..outer {
        for id in &ids {
            let row = id.filter(|id| *id < n).map(|id| (a * n + id) * inner);
            places.extend((0..inner).map(|b| row.map(|row| row + b)));
        }
    }
    picked(call, &places, 0)
}

/// Writes to a KV cache or another state (`Op::Update`): replaces rows `at .. at + r` of the state
/// `[n, rest..]` with src `[r, rest..]`.
pub(super) fn update(call: &Call<'_>, at: &Dim) -> Result<Tensor> {
    let at = at.eval_size(call.symbols)?;
    let (n, r) = (call.operands[0].shape[0], call.operands[1].shape[0]);
    if at.checked_add(r).is_none_or(|end| end > n) {
        return Err(Error::invalid(format!("cannot write {r} rows of {n} at {at}")));
    }
    let row: usize = call.dims(0)[1..].iter().product();
    let written = at as usize * row..(at + r) as usize * row;
    let places: Vec<(bool, usize)> = (0..call.operands[0].data.len())
        .map(|i| match written.contains(&i) {
            true => (true, i - written.start),
            false => (false, i),
        })
        .collect();
    call.result(call.operands[0].data.merge(&call.operands[1].data, &places)?)
}

/// Writes row `i` of the second operand to row `rows[i]` of the first; drops rows out of range.
pub(super) fn scatter(call: &Call<'_>) -> Result<Tensor> {
    let row: usize = call.dims(0)[1..].iter().product();
    let rows = call.operands[2].floats();
    let mut places: Vec<(bool, usize)> =
        (0..call.operands[0].data.len()).map(|i| (false, i)).collect();
    let state = call.dims(0)[0];
    for (from, to) in rows.iter().enumerate().filter(|(_, to)| (0.0..state as f64).contains(*to)) {
        for i in 0..row {
            places[*to as usize * row + i] = (true, from * row + i);
        }
    }
    call.result(call.operands[0].data.merge(&call.operands[1].data, &places)?)
}

/// Concatenates all operands along an axis.
pub(super) fn concat(call: &Call<'_>, axis: usize) -> Result<Tensor> {
    let mut shape = call.operands[0].shape.clone();
    let mut data = call.operands[0].data.clone();
    for next in &call.operands[1..] {
        // For each outer index: the part collected so far, then the part of the next operand.
        let outer: usize = shape[..axis].iter().map(|d| *d as usize).product();
        let part = |shape: &[u64]| shape[axis..].iter().map(|d| *d as usize).product::<usize>();
        let (a, b) = (part(&shape), part(&next.shape));
        let places: Vec<(bool, usize)> = (0..outer)
            .flat_map(|o| {
                let first = (o * a..(o + 1) * a).map(|i| (false, i));
                first.chain((o * b..(o + 1) * b).map(|i| (true, i)))
            })
            .collect();
        data = data.merge(&next.data, &places)?;
        shape[axis] += next.shape[axis];
    }
    call.result(data)
}

/// Pads the operand: `y[i] = x[i - before]`, or `word` outside `x`.
pub(super) fn pad(call: &Call<'_>, amounts: &[(u64, u64)], word: u32) -> Result<Tensor> {
    let (dims, to) = (call.dims(0), call.out_dims());
    let (own, out) = (strides(&dims), strides(&to));
    let inside = |i: usize| {
        (0..to.len()).try_fold(0, |place, axis| {
            let index = (i / out[axis] % to[axis]).checked_sub(amounts[axis].0 as usize)?;
            (index < dims[axis]).then_some(place + index * own[axis])
        })
    };
    let count: usize = to.iter().product();
    let places: Vec<Option<usize>> = (0..count).map(inside).collect();
    picked(call, &places, word)
}

/// Permutes the axes: axis `i` of the result is axis `perm[i]` of the operand.
pub(super) fn transpose(call: &Call<'_>, perm: &[usize]) -> Result<Tensor> {
    let own = strides(&call.dims(0));
    let moved: Vec<usize> = perm.iter().map(|axis| own[*axis]).collect();
    at_places(call, walk(&call.out_dims(), &moved, 0))
}

/// Slices an axis: `y[.., i, ..] = x[.., start + i * step, ..]`.
pub(super) fn slice(call: &Call<'_>, axis: usize, start: &Dim, step: u64) -> Result<Tensor> {
    let start = start.eval_size(call.symbols)?;
    let (n, len) = (call.operands[0].shape[axis], call.shape[axis]);
    let last = len.checked_sub(1).map(|i| i.saturating_mul(step).saturating_add(start));
    if start > n || last.is_some_and(|last| last >= n) {
        return Err(Error::invalid(format!(
            "cannot take {len} of axis {axis} from {start} with step {step}: it has {n}"
        )));
    }
    let mut moved = strides(&call.dims(0));
    let offset = start as usize * moved[axis];
    // A single index needs no step, and a huge step must not overflow.
    moved[axis] = if len > 1 { moved[axis] * step as usize } else { 0 };
    at_places(call, walk(&call.out_dims(), &moved, offset))
}

/// Broadcasts the operand: dimensions of size 1, and new dimensions, repeat.
pub(super) fn expand(call: &Call<'_>) -> Result<Tensor> {
    at_places(call, broadcast(&call.dims(0), &call.out_dims()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{DType, Shape, SymbolValues};
    use crate::ir::{Graph, NodeId, Op};
    use crate::reference::eval;

    fn matrix(g: &mut Graph) -> NodeId {
        g.constant_i32(Shape::new([2, 3]), &[1, 2, 3, 4, 5, 6])
    }

    fn check(g: &mut Graph, op: Op, inputs: &[NodeId], want: &[i32]) {
        let y = g.add(op, inputs).unwrap();
        let none = BTreeMap::new();
        let run = eval(g, &SymbolValues::new(), &none).unwrap();
        assert_eq!(run.value(y).data, Data::I32(want.to_vec()));
    }

    #[test]
    fn gather_from_any_axis_and_outside() {
        let mut g = Graph::new("g");
        let x = matrix(&mut g);
        let ids = g.constant_i32(Shape::new([3]), &[2, -1, 0]);
        check(&mut g, Op::Gather { axis: 1 }, &[x, ids], &[3, 0, 1, 6, 0, 4]);
        check(&mut g, Op::Gather { axis: 0 }, &[x, ids], &[0, 0, 0, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn rows_are_added_at_their_ids() {
        let mut g = Graph::new("g");
        let x = g.constant_f32(Shape::new([3, 1]), &[10.0, 20.0, 30.0]);
        let source = g.constant_f32(Shape::new([4, 1]), &[1.0, 2.0, 3.0, 4.0]);
        let ids = g.constant_i32(Shape::new([4]), &[2, 0, 2, -1]);
        let y = g.add(Op::IndexAdd, &[x, source, ids]).unwrap();
        g.output("y", y).unwrap();
        let none = BTreeMap::new();
        let run = eval(&g, &SymbolValues::new(), &none).unwrap();
        assert_eq!(run.value(y).floats(), [12.0, 20.0, 34.0]);
        let short = g.constant_i32(Shape::new([3]), &[2, 0, 2]);
        assert!(g.add(Op::IndexAdd, &[x, source, short]).is_err());
        assert!(g.add(Op::IndexAdd, &[ids, ids, ids]).is_err());
    }

    #[test]
    fn each_row_is_read_at_its_own_indices() {
        let mut g = Graph::new("g");
        let x = g.constant_i32(Shape::new([2, 3]), &[1, 2, 3, 4, 5, 6]);
        let ids = g.constant_i32(Shape::new([2, 2]), &[2, 0, -1, 1]);
        check(&mut g, Op::TakeAlong, &[x, ids], &[3, 1, 0, 5]);
        let other = g.constant_i32(Shape::new([1, 2]), &[0, 0]);
        assert!(g.add(Op::TakeAlong, &[x, other]).is_err());
    }

    #[test]
    fn joins_and_pads() {
        let mut g = Graph::new("g");
        let x = matrix(&mut g);
        let y = g.constant_i32(Shape::new([2, 1]), &[7, 8]);
        check(&mut g, Op::Concat { axis: 1 }, &[x, y, y], &[1, 2, 3, 7, 7, 4, 5, 6, 8, 8]);
        let pad = Op::Pad { amounts: vec![(0, 1), (2, 0)], word: 9 };
        check(&mut g, pad, &[y], &[9, 9, 7, 9, 9, 8, 9, 9, 9]);
    }

    #[test]
    fn views() {
        let mut g = Graph::new("g");
        let x = matrix(&mut g);
        check(&mut g, Op::Transpose(vec![1, 0]), &[x], &[1, 4, 2, 5, 3, 6]);
        let slice = Op::Slice { axis: 1, start: Dim::new(0), len: Dim::new(2), step: 2 };
        check(&mut g, slice, &[x], &[1, 3, 4, 6]);
        let one = Op::Slice { axis: 1, start: Dim::new(2), len: Dim::new(1), step: u64::MAX };
        check(&mut g, one, &[x], &[3, 6]);
        let y = g.constant_i32(Shape::new([2, 1]), &[7, 8]);
        check(&mut g, Op::Expand(Shape::new([2, 2, 2])), &[y], &[7, 7, 8, 8, 7, 7, 8, 8]);
        check(&mut g, Op::Reshape(Shape::new([6])), &[x], &[1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn an_update_replaces_rows() {
        let mut g = Graph::new("g");
        let state = g.state("s", Shape::new([3, 2]), DType::I32);
        let src = g.constant_i32(Shape::new([1, 2]), &[7, 8]);
        check(&mut g, Op::Update { at: Dim::new(1) }, &[state, src], &[0, 0, 7, 8, 0, 0]);
    }
}
