//! Sampling: chooses a token from each row of logits.

use super::Call;
use super::tensor::{Data, Tensor};
use crate::error::{Error, Result};
use crate::sampling::weight::{NATURAL, bounded_scale, key, weight};
use crate::sampling::{NoToken, SampleParams};

/// Samples a token from each row as [`SampleParams`] defines: logits `[rows, n]`, parameters
/// `[rows, 7]` -> `[rows]`.
pub(super) fn sample(call: &Call<'_>) -> Result<Tensor> {
    let Data::U32(words) = &call.operands[1].data else {
        return Err(Error::invalid("sample: the draws are not u32"));
    };
    let logits = call.operands[0].floats();
    let n = call.dims(0).last().copied().unwrap_or(1);
    let (draws, _) = words.as_chunks::<{ SampleParams::WORDS }>();
    let rows = logits.chunks_exact(n.max(1)).zip(draws);
    let tokens = rows.map(|(row, words)| token(row, &SampleParams::from_words(*words)));
    call.result(Data::U32(tokens.collect()))
}

fn token(row: &[f64], draw: &SampleParams) -> u32 {
    if let Some(index) = row.iter().position(|logit| key(*logit as f32).is_none()) {
        return NoToken::NotFinite(index as u32).word();
    }
    let keys: Vec<u32> = row.iter().filter_map(|logit| key(*logit as f32)).collect();
    // Minus infinity remains in the list with weight 0.
    let mut ids: Vec<usize> = (0..row.len()).collect();
    ids.sort_by_key(|id| (!keys[*id], *id));
    if draw.top_k > 0 {
        ids.truncate(draw.top_k as usize);
    }
    let Some(best) = ids.first().map(|id| keys[*id]) else {
        return NoToken::Forbidden.word();
    };
    let plain: Vec<u32> = ids.iter().map(|id| weight(best, keys[*id], NATURAL)).collect();
    let goal = draw.top_p_goal(plain.iter().map(|w| u64::from(*w)).sum());
    let mut before = 0;
    let mut left = Vec::new();
    for (id, plain) in ids.into_iter().zip(plain) {
        if before < goal && plain >= draw.floor() {
            left.push((id, weight(best, keys[id], bounded_scale(draw.scale))));
        }
        before += u64::from(plain);
    }
    let goal = draw.goal(left.iter().map(|(_, w)| u64::from(*w)).sum());
    let mut sum = 0;
    for (id, weight) in left {
        sum += u64::from(weight);
        if sum >= goal {
            return id as u32;
        }
    }
    // All weights are zero: every token is forbidden.
    NoToken::Forbidden.word()
}
