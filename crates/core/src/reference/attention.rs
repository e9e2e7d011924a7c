//! Rotary position embedding and grouped-query attention, on tensors `[tokens, heads, head_dim]`.
//! This is the oracle for every attention kernel, including flash attention and flash decoding.

use super::Call;
use super::product::{dot, for_rows};
use super::reduce::softmax_row;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::{Op, RopePairs};

/// Rotates pair `j` of every head of x `[tokens, heads, head_dim]` by the angle
/// `position * frequency[j]`, with positions `[tokens]` and frequencies `[rot_dim / 2]`; elements
/// from `rot_dim` on are unchanged.
pub(super) fn rope(call: &Call<'_>, pairs: RopePairs, rot_dim: usize) -> Result<Tensor> {
    let mut x = call.operands[0].floats();
    let (positions, frequencies) = (call.operands[1].floats(), call.operands[2].floats());
    let dims = call.dims(0);
    let (heads, head_dim) = (dims[1], dims[2]);
    for (i, head) in x.chunks_exact_mut(head_dim.max(1)).enumerate() {
        let position = positions[i / heads];
        for (j, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match pairs {
                RopePairs::Interleaved => (2 * j, 2 * j + 1),
                RopePairs::Half => (j, j + rot_dim / 2),
            };
            let (sin, cos) = (position * frequency).sin_cos();
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
    call.floats(x)
}

/// Computes attention of q `[tokens, heads, head_dim]` to k and v `[kv_len, kv_heads, head_dim]`:
/// `y[t, h] = sum over visible s of softmax(scale * q[t, h] . k[s, g])[s] * v[s, g]`, where query
/// head `h` uses key head `g = h / (heads / kv_heads)`.
///
/// Token `t` is at key `p = past + t` and sees the keys `s > p - window`, and if causal `s <= p`;
/// the result of a token that sees no key is zeros. With spans, a token is at the last key of its
/// span and sees only that span. With a soft cap `c`, each scaled score `s` is `c * tanh(s / c)`.
pub(super) fn attention(call: &Call<'_>, op: &Op) -> Result<Tensor> {
    let Op::Attention { scale, causal, window, past, soft_cap, .. } = op else {
        return Err(Error::invalid(format!("{} is not attention", op.name())));
    };
    let [q, k, v] = [0, 1, 2].map(|i| call.operands[i].floats());
    let [spans, sinks] = op.attention_operands(call.operands.len());
    let [spans, sinks] = [spans, sinks].map(|i| i.map(|i| call.operands[i].floats()));
    let (q_dims, k_dims) = (call.dims(0), call.dims(1));
    let (heads, head_dim) = (q_dims[1], q_dims[2]);
    let (kv_len, kv_heads) = (k_dims[0], k_dims[1]);
    let past = past.eval_size(call.symbols)? as usize;
    let mut y = vec![0.0; q.len()];
    for_rows(&mut y, head_dim, 2 * kv_len * head_dim, |row, out| {
        let (token, head) = (row / heads, row % heads);
        let (first, last) = match &spans {
            Some(spans) => (spans[2 * token].max(0.0) as usize, spans[2 * token + 1] as usize),
            None => (0, past + token + 1),
        };
        let end = if *causal || spans.is_some() { kv_len.min(last) } else { kv_len };
        let first = first.max(window.map_or(0, |w| last.saturating_sub(w as usize))).min(end);
        let at = |key: usize| (key * kv_heads + head / (heads / kv_heads)) * head_dim;
        let query = &q[row * head_dim..][..head_dim];
        let mut weights: Vec<f64> = (first..end)
            .map(|key| f64::from(*scale) * dot(query, &k[at(key)..][..head_dim]))
            .collect();
        if let Some(cap) = soft_cap.map(f64::from) {
            weights.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        // A key without a value.
        weights.extend(sinks.as_ref().map(|sinks| sinks[head]));
        softmax_row(&mut weights);
        for (key, weight) in (first..end).zip(&weights) {
            let value = &v[at(key)..][..head_dim];
            out.iter_mut().zip(value).for_each(|(y, v)| *y += weight * v);
        }
    });
    call.floats(y)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{Dim, Shape, SymbolValues};
    use crate::ir::{Graph, NodeId, Op};
    use crate::reference::eval;

    fn input(g: &mut Graph, shape: [u64; 3], values: &[f32]) -> NodeId {
        g.constant_f32(Shape::new(shape), values)
    }

    fn value(g: &Graph, id: NodeId) -> Vec<f64> {
        let none = BTreeMap::new();
        eval(g, &SymbolValues::new(), &none).unwrap().value(id).floats()
    }

    fn close(have: &[f64], want: &[f64]) {
        assert_eq!(have.len(), want.len());
        for (a, b) in have.iter().zip(want) {
            assert!((a - b).abs() < 1e-6, "{have:?} {want:?}");
        }
    }

    #[test]
    fn pairs_turn() {
        let quarter = std::f32::consts::FRAC_PI_2;
        for (pairs, want) in [
            (RopePairs::Interleaved, [-2.0, 1.0, -3.0, -4.0, 5.0]),
            (RopePairs::Half, [-3.0, -2.0, 1.0, -4.0, 5.0]),
        ] {
            let mut g = Graph::new("g");
            let x = input(&mut g, [1, 1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
            let position = g.constant_i32(Shape::new([1]), &[1]);
            let frequencies = g.constant_f32(Shape::new([2]), &[quarter, 2.0 * quarter]);
            let op = Op::Rope { pairs, rot_dim: 4 };
            let y = g.add(op, &[x, position, frequencies]).unwrap();
            close(&value(&g, y), &want);
        }
    }

    #[test]
    fn causality_windows_and_shared_heads() {
        // Scores are zero, so the result is the mean of the visible values.
        let mut g = Graph::new("g");
        let q = input(&mut g, [2, 2, 1], &[0.0; 4]);
        let k = input(&mut g, [4, 1, 1], &[1.0; 4]);
        let v = input(&mut g, [4, 1, 1], &[1.0, 2.0, 4.0, 8.0]);
        let mut attend = |causal, window, past| {
            let op = Op::attention(1.0, causal, window, Dim::new(past));
            let y = g.add(op, &[q, k, v]).unwrap();
            let y = value(&g, y);
            assert_eq!((y[0], y[2]), (y[1], y[3]), "two heads share the keys");
            [y[0], y[2]]
        };
        close(&attend(true, None, 0), &[1.0, 1.5]);
        close(&attend(true, None, 2), &[7.0 / 3.0, 15.0 / 4.0]);
        close(&attend(false, None, 0), &[15.0 / 4.0, 15.0 / 4.0]);
        close(&attend(true, Some(2), 2), &[3.0, 6.0]);
        close(&attend(true, Some(1), 5), &[0.0, 0.0]);
    }

    #[test]
    fn scores_weigh_the_values() {
        let mut g = Graph::new("g");
        let q = input(&mut g, [1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
        let k = input(&mut g, [2, 2, 2], &[2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
        let v = input(&mut g, [2, 2, 2], &[1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
        let op = Op::attention(0.5, false, None, Dim::new(0));
        let y = g.add(op, &[q, k, v]).unwrap();
        let e = 1f64.exp();
        let (high, low) = (e / (e + 1.0), 1.0 / (e + 1.0));
        let want = [
            high + 3.0 * low,
            2.0 * high + 4.0 * low,
            5.0 * low + 7.0 * high,
            6.0 * low + 8.0 * high,
        ];
        close(&value(&g, y), &want);
    }
}
