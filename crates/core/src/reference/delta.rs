//! The gated delta rule: the oracle for recurrent layers.

use super::Call;
use super::tensor::Tensor;
use crate::error::Result;

/// Computes, token by token, `S = exp(decay) S`, `S = S + key (beta (value - key S))` and
/// `y = query S` for each sequence and head; returns y of each token, then the last S.
pub(super) fn delta_rule(call: &Call<'_>) -> Result<Tensor> {
    let [q, k, v, decay, beta, start] = [0, 1, 2, 3, 4, 5].map(|i| call.operands[i].floats());
    let (keys, values) = (call.dims(0), call.dims(2));
    let (tokens, key_heads, dk) = (keys[1], keys[2], keys[3]);
    let (sequences, heads, dv) = (values[0], values[2], values[3]);
    let mut out = Vec::new();
    for pair in 0..sequences * heads {
        let (sequence, head) = (pair / heads, pair % heads);
        let mut state = start[pair * dk * dv..][..dk * dv].to_vec();
        for token in sequence * tokens..(sequence + 1) * tokens {
            let of_key = (token * key_heads + head % key_heads) * dk;
            let (q, k) = (&q[of_key..][..dk], &k[of_key..][..dk]);
            let at = token * heads + head;
            let factor = decay[at].exp();
            for s in &mut state {
                *s = if factor == 0.0 { 0.0 } else { *s * factor };
            }
            let times = |x: &[f64], state: &[f64], j: usize| -> f64 {
                x.iter().zip(state.iter().skip(j).step_by(dv)).map(|(x, s)| x * s).sum()
            };
            for j in 0..dv {
                let change = (v[at * dv + j] - times(k, &state, j)) * beta[at];
                for (i, k) in k.iter().enumerate() {
                    state[i * dv + j] += k * change;
                }
            }
            out.extend((0..dv).map(|j| times(q, &state, j)));
        }
        out.extend(state);
    }
    call.floats(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::base::{Shape, SymbolValues};
    use crate::ir::{Graph, Op};
    use crate::reference::eval;

    #[test]
    fn a_key_finds_its_last_value() {
        let mut g = Graph::new("g");
        let constant = |g: &mut Graph, dims: &[u64], values: &[f32]| {
            g.constant_f32(Shape::new(dims.iter().copied()), values)
        };
        // Two tokens, keys of 2 and values of 1: the first writes 3 at the first key, the second 7
        // at the second, with half of the rest forgotten before.
        let k = constant(&mut g, &[1, 2, 1, 2], &[1.0, 0.0, 0.0, 1.0]);
        let q = constant(&mut g, &[1, 2, 1, 2], &[1.0, 0.0, 1.0, 1.0]);
        let v = constant(&mut g, &[1, 2, 1, 1], &[3.0, 7.0]);
        let decay = constant(&mut g, &[1, 2, 1], &[-1e30, 0.5f32.ln()]);
        let beta = constant(&mut g, &[1, 2, 1], &[1.0, 1.0]);
        // The decay of the first token clears what is no number.
        let state = constant(&mut g, &[1, 1, 2, 1], &[f32::NAN, f32::INFINITY]);
        let y = g.add(Op::DeltaRule, &[q, k, v, decay, beta, state]).unwrap();
        g.output("y", y).unwrap();
        let none = BTreeMap::new();
        let run = eval(&g, &SymbolValues::new(), &none).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let y = run.value(y).floats();
        assert!([3.0, 8.5, 1.5, 7.0].iter().zip(&y).all(|(a, b)| close(*a, *b)), "{y:?}");
        assert!(g.add(Op::DeltaRule, &[q, k, v, decay, beta, v]).is_err());
    }
}
