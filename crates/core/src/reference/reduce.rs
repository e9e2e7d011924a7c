//! Reductions over any axes; `argmax`, `greedy` and `softmax` along the last axis.

use std::cmp::Ordering;

use super::Call;
use super::elementwise::{larger, smaller};
use super::index::{strides, walk};
use super::tensor::{Data, Tensor};
use crate::error::{Error, Result};
use crate::ir::ReduceOp;
use crate::sampling::NoToken;

/// Reduces some axes: `y[kept] = op over x[kept, reduced]`.
pub(super) fn reduce(call: &Call<'_>, op: ReduceOp, axes: &[usize]) -> Result<Tensor> {
    let dims = call.dims(0);
    let step = strides(&dims);
    let (mut kept, mut reduced) = ((vec![], vec![]), (vec![], vec![]));
    for (axis, (dim, stride)) in dims.iter().zip(&step).enumerate() {
        let side = if axes.contains(&axis) { &mut reduced } else { &mut kept };
        side.0.push(*dim);
        side.1.push(*stride);
    }
    let inner = walk(&reduced.0, &reduced.1, 0);
    let outer = walk(&kept.0, &kept.1, 0);
    match &call.operands[0].data {
        Data::I32(x) => {
            let row = |at: &usize| fold_integers(op, inner.iter().map(|i| i64::from(x[at + i])));
            // Of an empty row the largest number is that of the type.
            let bounded = |n: i64| match op {
                ReduceOp::Max | ReduceOp::Min => n.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
                _ => n as i32,
            };
            call.result(Data::I32(outer.iter().map(row).map(bounded).collect()))
        }
        Data::U32(x) => {
            let row = |at: &usize| fold_integers(op, inner.iter().map(|i| i64::from(x[at + i])));
            let bounded = |n: i64| match op {
                ReduceOp::Max | ReduceOp::Min => n.clamp(0, u32::MAX.into()) as u32,
                _ => n as u32,
            };
            call.result(Data::U32(outer.iter().map(row).map(bounded).collect()))
        }
        _ => {
            let x = call.operands[0].floats();
            call.floats(outer.iter().map(|at| fold(op, inner.iter().map(|i| x[at + i]))).collect())
        }
    }
}

/// Folds integers; the low 32 bits of sums and products are those of the type.
fn fold_integers(op: ReduceOp, values: impl Iterator<Item = i64>) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => values.fold(0, i64::wrapping_add),
        ReduceOp::Prod => values.fold(1, i64::wrapping_mul),
        ReduceOp::Max => values.fold(i64::MIN, i64::max),
        ReduceOp::Min => values.fold(i64::MAX, i64::min),
    }
}

fn fold(op: ReduceOp, values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    match op {
        // The empty sum is -0.0 in Rust.
        ReduceOp::Sum => values.sum::<f64>() + 0.0,
        ReduceOp::Mean => values.sum::<f64>() / count,
        ReduceOp::Prod => values.product(),
        ReduceOp::Max => values.fold(f64::NEG_INFINITY, larger),
        ReduceOp::Min => values.fold(f64::INFINITY, smaller),
    }
}

/// Finds the lowest index of the maximum of each row, x `[rows, n]` -> `[rows]`; NaN compares
/// greater than any number.
pub(super) fn argmax(call: &Call<'_>) -> Result<Tensor> {
    let x = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    let rows = x.chunks_exact(n.max(1));
    call.result(Data::U32(rows.map(|row| largest(row) as u32).collect()))
}

fn largest(row: &[f64]) -> usize {
    if let Some(nan) = row.iter().position(|value| value.is_nan()) {
        return nan;
    }
    let mut best = 0;
    for (i, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = i;
        }
    }
    best
}

/// Compares two elements; NaN compares greater than any number.
fn compare(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (a, b) => a.cmp(&b),
    }
}

/// Sorts the indices of each row, x `[rows, n]` -> `[rows, n]`, by their elements; equal elements
/// stay in the order of their indices.
pub(super) fn argsort(call: &Call<'_>, descending: bool) -> Result<Tensor> {
    let x = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    let mut found = Vec::with_capacity(x.len());
    for row in x.chunks_exact(n.max(1)) {
        let mut order: Vec<usize> = (0..n).collect();
        // Stable.
        order.sort_by(|a, b| match descending {
            true => compare(row[*b], row[*a]),
            false => compare(row[*a], row[*b]),
        });
        found.extend(order.iter().map(|i| *i as u32));
    }
    call.result(Data::U32(found))
}

/// Finds the `k` largest elements of each row, x `[rows, n]` -> `[rows, k]`, the largest first, the
/// lowest index first among equals; NaN compares greater than any number.
pub(super) fn top_k(call: &Call<'_>, k: usize) -> Result<Tensor> {
    let x = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    let mut found = Vec::new();
    for row in x.chunks_exact(n.max(1)) {
        let mut order: Vec<usize> = (0..n).collect();
        // Stable, so that equal elements stay in the order of their indices.
        order.sort_by(|a, b| compare(row[*b], row[*a]));
        if k > n {
            return Err(Error::invalid(format!("there are no {k} largest of {n} elements")));
        }
        found.extend(order[..k].iter().map(|i| *i as u32));
    }
    call.result(Data::U32(found))
}

/// Same as [`argmax`], except that a row whose maximum is not finite yields the word of a
/// [`NoToken`].
pub(super) fn greedy(call: &Call<'_>) -> Result<Tensor> {
    let x = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    let row = |row: &[f64]| {
        let best = largest(row);
        match row.get(best) {
            None => NoToken::Forbidden.word(),
            Some(value) if *value == f64::NEG_INFINITY => NoToken::Forbidden.word(),
            Some(value) if !value.is_finite() => NoToken::NotFinite(best as u32).word(),
            Some(_) => best as u32,
        }
    };
    call.result(Data::U32(x.chunks_exact(n.max(1)).map(row).collect()))
}

/// Computes the softmax of each row of x `[rows, n]`: `y = e^(x - max) / sum e^(x - max)`; a row in
/// which every element is -inf becomes zeros.
pub(super) fn softmax(call: &Call<'_>) -> Result<Tensor> {
    let mut x = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    x.chunks_exact_mut(n.max(1)).for_each(softmax_row);
    call.floats(x)
}

pub(super) fn softmax_row(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        row.fill(0.0);
        return;
    }
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{DType, Shape, SymbolValues};
    use crate::ir::{Graph, Op};
    use crate::reference::eval;

    fn run(op: Op, shape: [u64; 2], values: &[f32]) -> Data {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new(shape), DType::F32);
        let y = g.add(op, &[x]).unwrap();
        let x = Tensor::new(shape.to_vec(), Data::F32(values.to_vec())).unwrap();
        let bindings = BTreeMap::from([("x".to_string(), x)]);
        eval(&g, &SymbolValues::new(), &bindings).unwrap().value(y).data.clone()
    }

    #[test]
    fn reduces_any_axis() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let reduce = |op, axes: &[usize]| Op::Reduce { op, axes: axes.to_vec(), keep: false };
        assert_eq!(run(reduce(ReduceOp::Sum, &[0]), [2, 3], &x), Data::F32(vec![5.0, 7.0, 9.0]));
        assert_eq!(run(reduce(ReduceOp::Max, &[1]), [2, 3], &x), Data::F32(vec![3.0, 6.0]));
        assert_eq!(run(reduce(ReduceOp::Mean, &[0, 1]), [2, 3], &x), Data::F32(vec![3.5]));
        assert_eq!(run(reduce(ReduceOp::Sum, &[0]), [0, 2], &[]), Data::F32(vec![0.0; 2]));
        assert_eq!(run(reduce(ReduceOp::Prod, &[0]), [0, 1], &[]), Data::F32(vec![1.0]));
        let least = Data::F32(vec![f32::NEG_INFINITY]);
        assert_eq!(run(reduce(ReduceOp::Max, &[0]), [0, 1], &[]), least);
    }

    #[test]
    fn argmax_takes_the_lowest_of_equals() {
        let inf = f32::NEG_INFINITY;
        let x = [1.0, 3.0, 3.0, inf, inf, inf];
        assert_eq!(run(Op::ArgMax, [2, 3], &x), Data::U32(vec![1, 0]));
    }

    #[test]
    fn the_largest_come_first_and_equals_by_index() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = [2.0, nan, inf, 2.0, -0.0, 0.0, -inf, nan];
        let want = Data::U32(vec![1, 2, 0, 3, 0, 1]);
        assert_eq!(run(Op::TopK { k: 3 }, [2, 4], &x), want);
    }

    #[test]
    fn a_nan_is_the_largest_and_no_token() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = [2.0, nan, inf, 1.0, inf, inf, -inf, -inf, -inf, -inf, -3.0, -0.0];
        assert_eq!(run(Op::ArgMax, [4, 3], &x), Data::U32(vec![1, 1, 0, 2]));
        let not = |index| NoToken::NotFinite(index).word();
        let words = vec![not(1), not(1), NoToken::Forbidden.word(), 2];
        assert_eq!(run(Op::Greedy, [4, 3], &x), Data::U32(words));
    }

    #[test]
    fn softmax_of_nothing_visible_is_zero() {
        let inf = f32::NEG_INFINITY;
        let y = run(Op::Softmax, [3, 2], &[1000.0, 1000.0, inf, 0.0, inf, inf]);
        assert_eq!(y, Data::F32(vec![0.5, 0.5, 0.0, 1.0, 0.0, 0.0]));
    }
}
