//! `delta_rule`: the gated delta rule, a recurrence over tokens.

use crate::call::{Call, volume};
use warploom_core::error::{Error, Result};

/// Computes `S = exp(decay) S`, `S += k (beta (v - k S))` and `y = q S` token by token for each
/// sequence and head, and stores y of each token, then the last S.
pub(super) fn delta_rule(call: &Call<'_>) -> Result<()> {
    let [sequences, tokens, key_heads, heads, dk, dv] = call.words()?;
    let at = |part: usize| call.params.get(6 + part).map_or(0, |at| *at as usize);
    let [q_at, k_at, v_at, decay_at, beta_at, state_at, y_at] = [0, 1, 2, 3, 4, 5, 6].map(at);
    if key_heads == 0 || dk == 0 {
        return Err(Error::invalid(format!("{key_heads} key heads of {dk} elements")));
    }
    let y = call.output(y_at, volume(&[sequences, heads, tokens + dk, dv]))?;
    let keys = volume(&[sequences, tokens, key_heads, dk]);
    let q = call.input::<f32>(0, q_at, keys, &y)?;
    let k = call.input::<f32>(1, k_at, keys, &y)?;
    let v = call.input::<f32>(2, v_at, volume(&[sequences, tokens, heads, dv]), &y)?;
    let each = volume(&[sequences, tokens, heads]);
    let decay = call.input::<f32>(3, decay_at, each, &y)?;
    let beta = call.input::<f32>(4, beta_at, each, &y)?;
    let start = call.input::<f32>(5, state_at, volume(&[sequences, heads, dk, dv]), &y)?;
    if y.len() == 0 {
        return Ok(());
    }
    let least = (64 << 10) / ((tokens + 1) * dk * dv) + 1;
    call.context.pool.split(sequences * heads, least, 1, |pairs| {
        let mut change = vec![0.0f32; dv];
        for pair in pairs {
            let (sequence, head) = (pair / heads, pair % heads);
            // SAFETY: the rows of this sequence and head belong to this chunk alone.
            let out = unsafe { y.slice(pair * (tokens + dk) * dv, (tokens + dk) * dv) };
            let (out, state) = out.split_at_mut(tokens * dv);
            state.copy_from_slice(&start[pair * dk * dv..][..dk * dv]);
            for (t, out) in out.chunks_exact_mut(dv).enumerate() {
                let token = sequence * tokens + t;
                let of_key = (token * key_heads + head % key_heads) * dk;
                let (q, k) = (&q[of_key..][..dk], &k[of_key..][..dk]);
                let at = token * heads + head;
                let factor = decay[at].exp();
                change.fill(0.0);
                for (row, k) in state.chunks_exact_mut(dv).zip(k) {
                    // Not a product: what a state holds may be no number.
                    match factor == 0.0 {
                        true => row.fill(0.0),
                        false => row.iter_mut().for_each(|s| *s *= factor),
                    }
                    row.iter().zip(&mut change).for_each(|(s, found)| *found += k * s);
                }
                let v = &v[at * dv..][..dv];
                change.iter_mut().zip(v).for_each(|(found, v)| *found = (v - *found) * beta[at]);
                out.fill(0.0);
                for (row, (q, k)) in state.chunks_exact_mut(dv).zip(q.iter().zip(k)) {
                    for ((s, change), out) in row.iter_mut().zip(&change).zip(&mut *out) {
                        *s += k * change;
                        *out += q * *s;
                    }
                }
            }
        }
    });
    Ok(())
}
