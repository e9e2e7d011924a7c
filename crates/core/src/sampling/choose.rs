//! Sampling on the CPU: two passes over the logits, then work on a few candidates.

use super::weight::{FORBIDDEN, NATURAL, ZERO, bounded_scale, key, logit, weight};
use super::{NoToken, SampleParams};

/// Number of interleaved lanes whose largest keys are found first; also the largest `top_k` that
/// benefits from them.
const LANES: usize = 256;
/// Number of logits that are compared with the bound at once.
const PIECE: usize = 64;

/// Scratch memory of [`choose`], reused between calls.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Candidates, as pairs of sort key and token id.
    kept: Vec<(u32, u32)>,
}

/// Returns the token that [`SampleParams`] selects, or the word of a [`NoToken`].
pub fn choose(logits: &[f32], draw: &SampleParams, choice: &mut Choice) -> u32 {
    let Some(lanes) = largest_by_lane(logits) else { return not_finite(logits).word() };
    let best = lanes.iter().copied().max().unwrap_or(0);
    if best <= FORBIDDEN {
        return NoToken::Forbidden.word();
    }
    let top_k = match draw.top_k as usize {
        0 => logits.len(),
        k => k.min(logits.len()),
    };
    let kept = &mut choice.kept;
    kept.clear();
    collect(logits, bound(lanes, top_k).max(FORBIDDEN + 1), kept);
    if top_k < kept.len() {
        kept.select_nth_unstable_by_key(top_k - 1, best_first);
        kept.truncate(top_k);
    }
    let plain = |key: u32| weight(best, key, NATURAL);
    if draw.top_p != u32::MAX {
        let total = kept.iter().map(|(key, _)| u64::from(plain(*key))).sum();
        let count = reaching(kept, draw.top_p_goal(total), plain);
        kept.truncate(count);
    }
    let floor = draw.floor();
    if floor > 0 {
        kept.retain(|(key, _)| plain(*key) >= floor);
    }
    let scale = bounded_scale(draw.scale);
    let drawn = |key: u32| weight(best, key, scale);
    let total = kept.iter().map(|(key, _)| u64::from(drawn(*key))).sum();
    let count = reaching(kept, draw.goal(total), drawn);
    // At least the best token remains.
    kept.get(count.saturating_sub(1)).map_or(NoToken::Forbidden.word(), |(_, id)| *id)
}

/// Returns why a row has no token: its first logit without a sort key (NaN or plus infinity).
fn not_finite(logits: &[f32]) -> NoToken {
    let first = logits.iter().position(|logit| key(*logit).is_none());
    first.map_or(NoToken::Forbidden, |index| NoToken::NotFinite(index as u32))
}

/// Returns a sort key that orders by descending key, then by ascending id.
fn best_first((key, id): &(u32, u32)) -> (u32, u32) {
    (!key, *id)
}

/// Returns the largest key of each of 256 interleaved lanes, or `None` if a logit has no key.
/// Compares the floats, which have the same order as their keys, so that the loop vectorises.
fn largest_by_lane(logits: &[f32]) -> Option<[u32; LANES]> {
    let (mut lanes, mut whole) = ([f32::NEG_INFINITY; LANES], true);
    for piece in logits.chunks(LANES) {
        let mut numbers = true;
        for (lane, logit) in lanes.iter_mut().zip(piece) {
            // Neither NaN nor plus infinity.
            numbers &= *logit < f32::INFINITY;
            *lane = if *logit > *lane { *logit } else { *lane };
        }
        whole &= numbers;
    }
    whole.then(|| lanes.map(|logit| key(logit).unwrap_or(0)))
}

/// Appends key and id of every logit whose key is at least `bound`.
fn collect(logits: &[f32], bound: u32, kept: &mut Vec<(u32, u32)>) {
    // The smallest float with this key: all subnormal numbers have the key of 0.
    let least = if bound == ZERO { -f32::MIN_POSITIVE } else { logit(bound) };
    for (piece, first) in logits.chunks(PIECE).zip((0u32..).step_by(PIECE)) {
        let any = piece.iter().fold(false, |any, logit| any | (*logit >= least));
        if any {
            let keys = piece.iter().map(|logit| key(*logit).unwrap_or(0)).zip(first..);
            kept.extend(keys.filter(|(key, _)| *key >= bound));
        }
    }
}

/// Returns a key that at least `top_k` logits reach, and few more: the `top_k`-th largest of the
/// lanes' largest keys. 0 if there are fewer lanes than `top_k`.
fn bound(mut lanes: [u32; LANES], top_k: usize) -> u32 {
    match top_k {
        1..=LANES => *lanes.select_nth_unstable_by(top_k - 1, |a, b| b.cmp(a)).1,
        _ => 0,
    }
}

/// Sorts the best candidates to the front, and returns how many of them have weights that sum to at
/// least `goal`, or the number of all candidates if even their sum is smaller. Sorts chunks of
/// growing size, since vocabularies are large and few candidates usually suffice.
fn reaching(all: &mut [(u32, u32)], goal: u64, weight: impl Fn(u32) -> u32) -> usize {
    let (mut done, mut piece, mut sum) = (0, LANES, 0u64);
    while done < all.len() {
        let rest = &mut all[done..];
        let count = piece.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by_key(count - 1, best_first);
        }
        rest[..count].sort_unstable_by_key(best_first);
        for (i, (key, _)) in rest[..count].iter().enumerate() {
            sum += u64::from(weight(*key));
            if sum >= goal {
                return done + i + 1;
            }
        }
        done += count;
        piece = piece.saturating_mul(8);
    }
    done
}
