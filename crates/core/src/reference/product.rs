//! Matrix products: `matmul` and `linear`. The rows of the result are split over all cores.
//! This is the oracle for GEMM, GEMV, split-K and activation quantisation (`ComputeMode::Int8`).

use super::Call;
use super::index::broadcast;
use super::movement::ids;
use super::tensor::Tensor;
use crate::base::ComputeMode;
use crate::error::Result;

/// Number of multiplications below which one thread is faster than several.
const WORTH_THREADS: usize = 1 << 18;

/// Splits `out` into rows of `row_len` values and calls `row(i, values)` for each, on all cores.
/// `cost` is the number of multiplications per row; small jobs stay on one thread.
pub(super) fn for_rows(
    out: &mut [f64],
    row_len: usize,
    cost: usize,
    row: impl Fn(usize, &mut [f64]) + Sync,
) {
    if out.is_empty() || row_len == 0 {
        return;
    }
    let rows = out.len() / row_len;
    // A browser reports no parallelism, so no thread is started.
    let threads = match std::thread::available_parallelism() {
        Ok(count) if rows.saturating_mul(cost) > WORTH_THREADS => count.get(),
        _ => 1,
    };
    let share = rows.div_ceil(threads);
    let work = |first: usize, part: &mut [f64]| {
        part.chunks_exact_mut(row_len).enumerate().for_each(|(i, out)| row(first + i, out));
    };
    if threads == 1 {
        return work(0, out);
    }
    std::thread::scope(|scope| {
        for (i, part) in out.chunks_mut(share * row_len).enumerate() {
            let work = &work;
            scope.spawn(move || work(i * share, part));
        }
    });
}

/// Computes `sum over i of a[i] * b[i]` in four accumulators, since one would be four times slower.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a4, b4) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a4.remainder().iter().zip(b4.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a4.zip(b4) {
        for i in 0..4 {
            sums[i] += x[i] * y[i];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Rounds a block to values that [`ComputeMode::Int8`] can represent.
fn fake_quantize(block: &mut [f64]) {
    if block.iter().any(|x| !x.is_finite()) {
        return block.fill(f64::NAN);
    }
    let largest = block.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    // A block of zeros is unchanged.
    if largest > 0.0 {
        let d = largest / 127.0;
        block.iter_mut().for_each(|x| *x = (*x / d).round_ties_even() * d);
    }
}

/// Multiplies x `[m, k]` by the transpose of a weight `[n, k]`:
/// `y[m, n] = sum over k of x[m, k] * weight[n, k]`.
pub(super) fn linear(call: &Call<'_>, mode: ComputeMode) -> Result<Tensor> {
    let (mut x, weight) = (call.operands[0].floats(), &call.operands[1].data);
    let dims = call.dims(1);
    let (n, k) = (dims[0], dims[1]);
    let m: usize = call.dims(0).split_last().map_or(1, |(_, lead)| lead.iter().product());
    if mode == ComputeMode::Int8 {
        x.chunks_mut(ComputeMode::BLOCK as usize).for_each(fake_quantize);
    }
    // Each weight row is converted once and multiplied with every row of x, so the result is
    // computed transposed, [n, m].
    let mut columns = vec![0.0; n * m];
    for_rows(&mut columns, m, m * k, |row, out| {
        let weight = weight.floats(row * k, k);
        for (i, y) in out.iter_mut().enumerate() {
            *y = dot(&x[i * k..(i + 1) * k], &weight);
        }
    });
    let y = (0..m * n).map(|i| columns[i % n * m + i / n]).collect();
    call.floats(y)
}

/// Multiplies each row of x `[t, 1 or a, k]` by the matrix of an expert, weight `[e, n, k]` and ids
/// `[t, a]`: `y[t, j, n] = sum over k of x[t, j, k] * weight[ids[t, j], n, k]`, zeros for an id out
/// of range.
pub(super) fn expert_linear(call: &Call<'_>, mode: ComputeMode) -> Result<Tensor> {
    let (mut x, weight) = (call.operands[0].floats(), &call.operands[1].data);
    let dims = call.dims(1);
    let (experts, n, k) = (dims[0], dims[1], dims[2]);
    if mode == ComputeMode::Int8 {
        x.chunks_mut(ComputeMode::BLOCK as usize).for_each(fake_quantize);
    }
    let ids = ids(call, 2)?;
    // Pairs of a token and an expert that read one row of x.
    let share = if call.dims(0)[1] == 1 { call.dims(2)[1].max(1) } else { 1 };
    let mut y = vec![0.0; ids.len() * n];
    for_rows(&mut y, n, n * k, |pair, out| {
        let Some(expert) = ids[pair].filter(|id| *id < experts) else { return };
        let x = &x[pair / share * k..][..k];
        for (row, y) in out.iter_mut().enumerate() {
            *y = dot(x, &weight.floats((expert * n + row) * k, k));
        }
    });
    call.floats(y)
}

/// Multiplies a `[.., m, k]` by b `[.., k, n]`:
/// `y[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]`.
pub(super) fn matmul(call: &Call<'_>) -> Result<Tensor> {
    let (a, b) = (call.operands[0].floats(), call.operands[1].floats());
    let (a_dims, b_dims, to) = (call.dims(0), call.dims(1), call.out_dims());
    let (m, n) = (to[to.len() - 2], to[to.len() - 1]);
    let k = a_dims[a_dims.len() - 1];
    // For each matrix of the result, its source matrices in a and b.
    let lead = &to[..to.len() - 2];
    let of_a = broadcast(&a_dims[..a_dims.len() - 2], lead);
    let of_b = broadcast(&b_dims[..b_dims.len() - 2], lead);
    let mut y = vec![0.0; to.iter().product()];
    for_rows(&mut y, n, n * k, |row, out| {
        let (matrix, i) = (row / m, row % m);
        let a_row = &a[(of_a[matrix] * m + i) * k..][..k];
        for (j, factor) in a_row.iter().enumerate() {
            let b_row = &b[(of_b[matrix] * k + j) * n..][..n];
            for (sum, value) in out.iter_mut().zip(b_row) {
                *sum += factor * value;
            }
        }
    });
    call.floats(y)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{DType, Format, Shape, SymbolValues};
    use crate::ir::{Graph, Op};
    use crate::reference::{Data, eval};

    fn tensor(shape: &[u64], values: Vec<f32>) -> Tensor {
        Tensor::new(shape.to_vec(), Data::F32(values)).unwrap()
    }

    #[test]
    fn linear_is_matmul_with_the_transpose() {
        // Large enough to use threads.
        let (m, k, n) = (5u64, 301u64, 207u64);
        let value = |i: u64| ((i * 37 % 101) as f32 - 50.0) / 8.0;
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([m, k]), DType::F32);
        let w = g.weight("w", Shape::new([n, k]), Format::F32);
        let y = g.add(Op::linear(), &[x, w]).unwrap();
        let t = g.add(Op::Transpose(vec![1, 0]), &[w]).unwrap();
        let z = g.add(Op::MatMul, &[x, t]).unwrap();
        let bindings = BTreeMap::from([
            ("x".to_string(), tensor(&[m, k], (0..m * k).map(value).collect())),
            ("w".to_string(), tensor(&[n, k], (0..n * k).map(|i| value(i + 7)).collect())),
        ]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        // Eighths are exact, so both summation orders give the same numbers.
        assert_eq!(run.value(y), run.value(z));
        let by_hand: f32 = (0..k).map(|i| value(2 * k + i) * value(3 * k + i + 7)).sum();
        let Data::F32(y) = &run.value(y).data else { panic!("f32") };
        assert_eq!(y[(2 * n + 3) as usize], by_hand);
    }

    #[test]
    fn experts_multiply_their_own_rows() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([2, 1, 2]), DType::F32);
        let w = g.weight("w", Shape::new([3, 1, 2]), Format::F32);
        let ids = g.constant_i32(Shape::new([2, 2]), &[2, 0, 1, 3]);
        let y = g.add(Op::ExpertLinear { mode: ComputeMode::F32 }, &[x, w, ids]).unwrap();
        let bindings = BTreeMap::from([
            ("x".to_string(), tensor(&[2, 1, 2], vec![1.0, 2.0, 3.0, 4.0])),
            ("w".to_string(), tensor(&[3, 1, 2], vec![1.0, 1.0, 10.0, 0.0, 0.0, 5.0])),
        ]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        assert_eq!(*run.value(y), tensor(&[2, 2, 1], vec![10.0, 3.0, 30.0, 0.0]));
        let other = g.constant_i32(Shape::new([3, 2]), &[0; 6]);
        let op = Op::ExpertLinear { mode: ComputeMode::F32 };
        assert!(g.add(op, &[x, w, other]).is_err());
    }

    #[test]
    fn leading_dimensions_broadcast() {
        let mut g = Graph::new("g");
        let a = g.input("a", Shape::new([2, 1, 1, 2]), DType::F32);
        let b = g.input("b", Shape::new([3, 2, 1]), DType::F32);
        let y = g.add(Op::MatMul, &[a, b]).unwrap();
        let bindings = BTreeMap::from([
            ("a".to_string(), tensor(&[2, 1, 1, 2], vec![1.0, 2.0, 3.0, 4.0])),
            ("b".to_string(), tensor(&[3, 2, 1], vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0])),
        ]);
        let run = eval(&g, &SymbolValues::new(), &bindings).unwrap();
        let want = tensor(&[2, 3, 1, 1], vec![21.0, 42.0, 63.0, 43.0, 86.0, 129.0]);
        assert_eq!(*run.value(y), want);
    }
}
