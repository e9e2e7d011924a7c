//! Code shared by the K formats with minima: the search for the scale and minimum of a sub-block,
//! and the packing of 6-bit scales and minima in Q4_K and Q5_K.
//!
//! A sub-block is `w = scale * q - minimum`, with `q` in `0..=levels`. Like ggml's quantiser, the
//! search tries scales around the plain one (the range divided by the levels). Each of them
//! determines the quants, for which the scale and minimum of least squared error, weighted by
//! magnitude, have a closed form. The pair with the smallest error is kept.

use super::{f16_finite, inverse};

/// Ranges of the quants and scales of a format.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    /// The largest quant.
    pub(super) q: u8,
    /// The largest scale and minimum of a sub-block, in steps of `d` and `dmin`.
    pub(super) scale: u8,
    /// The first offset that the search adds to the number of levels; the next are 0.1 apart.
    pub(super) first: f32,
}

/// A block of 256 weights in `SUBS` sub-blocks, quantised but not yet packed.
pub(super) struct Affine<const SUBS: usize> {
    pub(super) d: half::f16,
    pub(super) dmin: half::f16,
    pub(super) scales: [u8; SUBS],
    pub(super) minima: [u8; SUBS],
    pub(super) q: [u8; 256],
}

/// Quantises 256 values in `SUBS` sub-blocks of `LEN`; `None` if a scale does not fit in an f16.
pub(super) fn search<const SUBS: usize, const LEN: usize>(
    values: &[f32; 256],
    levels: Levels,
) -> Option<Affine<SUBS>> {
    const { assert!(SUBS * LEN == 256) };
    let (subs, _) = values.as_chunks::<LEN>();
    let (mut steps, mut depths) = ([0.0f32; SUBS], [0.0f32; SUBS]);
    for (b, sub) in subs.iter().enumerate() {
        (steps[b], depths[b]) = best_step(sub, levels);
    }
    let most = f32::from(levels.scale);
    let largest = |all: &[f32; SUBS]| all.iter().copied().fold(0.0, f32::max);
    let (d, dmin) = (largest(&steps) / most, largest(&depths) / most);
    let (d_inv, dmin_inv) = (inverse(d), inverse(dmin));
    let (d_narrow, d) = f16_finite(d)?;
    let (dmin_narrow, dmin) = f16_finite(dmin)?;

    let (scales, minima, q) = ([0; SUBS], [0; SUBS], [0; 256]);
    let mut found = Affine { d: d_narrow, dmin: dmin_narrow, scales, minima, q };
    for (b, sub) in subs.iter().enumerate() {
        found.scales[b] = ((steps[b] * d_inv).round_ties_even() as u8).min(levels.scale);
        found.minima[b] = ((depths[b] * dmin_inv).round_ties_even() as u8).min(levels.scale);
        let step = d * f32::from(found.scales[b]);
        let low = dmin * f32::from(found.minima[b]);
        for (q, value) in found.q[LEN * b..].iter_mut().zip(sub) {
            // With a step of 0 the quant has no effect.
            *q = (((value + low) / step).round_ties_even() as u8).min(levels.q);
        }
    }
    Some(found)
}

/// Index of the last further scale to try, counted from 0; they are a tenth of a level apart.
const TRIES: u8 = 20;

/// Finds the scale and minimum of a sub-block with the least weighted error. The minimum is
/// returned as a non-negative distance below zero.
fn best_step<const LEN: usize>(sub: &[f32; LEN], levels: Levels) -> (f32, f32) {
    let min = sub.iter().copied().fold(0.0, f32::min);
    let max = sub.iter().copied().fold(min, f32::max);
    let top = f32::from(levels.q);
    let span = max - min;
    if inverse(span) == 0.0 {
        return (span / top, -min);
    }
    let rms = (sub.iter().map(|v| v * v).sum::<f32>() / LEN as f32).sqrt();
    let weights = sub.map(|v| rms + v.abs());

    let mut q = [0.0f32; LEN];
    let error = |scale: f32, min: f32, q: &[f32; LEN]| -> f32 {
        let terms = q.iter().zip(sub).zip(&weights);
        terms.map(|((q, v), w)| w * (scale * q + min - v).powi(2)).sum()
    };
    let quants = |per_unit: f32, min: f32, q: &mut [f32; LEN]| {
        for (q, v) in q.iter_mut().zip(sub) {
            *q = (per_unit * (v - min)).round_ties_even().clamp(0.0, top);
        }
    };
    quants(top / span, min, &mut q);
    let mut best = (span / top, min);
    let mut least = error(best.0, best.1, &q);
    for step in 0..=TRIES {
        // Starts from the best minimum so far, as ggml does.
        let span = max - best.1;
        quants((levels.first + 0.1 * f32::from(step) + top) / span, best.1, &mut q);
        let Some((scale, min)) = least_squares(sub, &weights, &q) else { continue };
        let error = error(scale, min, &q);
        if error < least {
            (least, best) = (error, (scale, min));
        }
    }
    (best.0, -best.1)
}

/// Computes the least-squares scale and minimum (at most 0) for these quants; `None` if there is no
/// finite solution with a non-negative scale.
fn least_squares<const LEN: usize>(
    sub: &[f32; LEN],
    weights: &[f32; LEN],
    q: &[f32; LEN],
) -> Option<(f32, f32)> {
    let [mut w_sum, mut x_sum, mut q_sum, mut qq_sum, mut xq_sum] = [0.0f32; 5];
    for ((x, w), q) in sub.iter().zip(weights).zip(q) {
        w_sum += w;
        x_sum += w * x;
        q_sum += w * q;
        qq_sum += w * q * q;
        xq_sum += w * x * q;
    }
    let determinant = w_sum * qq_sum - q_sum * q_sum;
    if determinant.is_nan() || determinant <= 0.0 {
        return None;
    }
    let scale = (w_sum * xq_sum - x_sum * q_sum) / determinant;
    let min = (qq_sum * x_sum - q_sum * xq_sum) / determinant;
    let (scale, min) = if min > 0.0 { (xq_sum / qq_sum, 0.0) } else { (scale, min) };
    // Sums of large values overflow long before the values do.
    (scale.is_finite() && min.is_finite() && scale >= 0.0).then_some((scale, min))
}

/// Unpacks 8 scales and 8 minima of 6 bits from 12 bytes; see `q4_k` for the layout.
#[inline]
pub(super) fn unpack_six_bits(s: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for b in 0..4 {
        scales[b] = s[b] & 63;
        minima[b] = s[4 + b] & 63;
        scales[b + 4] = (s[8 + b] & 15) | (s[b] >> 6) << 4;
        minima[b + 4] = (s[8 + b] >> 4) | (s[4 + b] >> 6) << 4;
    }
    (scales, minima)
}

/// The inverse of [`unpack_six_bits`].
pub(super) fn pack_six_bits(scales: &[u8; 8], minima: &[u8; 8]) -> [u8; 12] {
    let mut s = [0; 12];
    for b in 0..4 {
        s[b] = scales[b] | (scales[b + 4] >> 4) << 6;
        s[4 + b] = minima[b] | (minima[b + 4] >> 4) << 6;
        s[8 + b] = (scales[b + 4] & 15) | (minima[b + 4] & 15) << 4;
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bits_unpack_as_they_were_packed() {
        let scales = [0, 63, 1, 32, 15, 16, 48, 33];
        let minima = [63, 0, 17, 31, 62, 1, 47, 16];
        assert_eq!(unpack_six_bits(&pack_six_bits(&scales, &minima)), (scales, minima));
    }

    #[test]
    fn values_on_a_grid_are_found_exactly() {
        // Sixteen levels of 0.5 from -2 on: the search must not be worse than the plain step.
        let sub: [f32; 32] = std::array::from_fn(|i| (i % 16) as f32 * 0.5 - 2.0);
        let (step, depth) = best_step(&sub, Levels { q: 15, scale: 63, first: -1.0 });
        assert!((step - 0.5).abs() < 1e-6 && (depth - 2.0).abs() < 1e-6, "{step} {depth}");
    }

    #[test]
    fn the_search_beats_the_plain_step() {
        // One outlier, which dominates the plain step.
        let mut sub: [f32; 32] = std::array::from_fn(|i| ((i * 37 % 32) as f32 - 15.5) / 16.0);
        sub[7] = 1.9;
        let levels = Levels { q: 15, scale: 63, first: -1.0 };
        let error = |(step, depth): (f32, f32)| -> f32 {
            let q = |v: f32| ((v + depth) / step).round().clamp(0.0, 15.0);
            sub.iter().map(|v| (q(*v) * step - depth - v).powi(2)).sum()
        };
        let plain = ((1.9 + 15.5 / 16.0) / 15.0, 15.5 / 16.0);
        assert!(error(best_step(&sub, levels)) < error(plain));
    }
}
