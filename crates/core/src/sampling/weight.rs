//! Integer weights of tokens: `2^31 * 2^-(scale * (best - logit))`.
//!
//! Only the exponent is computed in floating point, and truncated to 24 fractional bits; the power
//! is a polynomial in integers. So a shader compiler cannot change the result by fusing or
//! reordering operations, as it can for sums of floats.

/// The weight of the best token.
pub const ONE: u32 = 1 << 31;

/// Doublings of the weight per unit of a logit, at temperature 1: `log2(e)`.
pub const NATURAL: f32 = std::f32::consts::LOG2_E;

/// Limit of the magnitude of logits and scales, which are clamped so that products do not overflow.
const LARGEST: f32 = (1u64 << 62) as f32;

/// `(1 - 2^-z) / z` for z in 0..1, as coefficients of powers of z with alternating signs, in units
/// of `2^-32`. The interpolation points level out `z` times the error, which is at most 4.4 units
/// of `2^-31`.
const POWERS: [u32; 6] =
    [0xb172_1664, 0x3d7f_5d31, 0x0e34_bb28, 0x0273_f4a7, 0x0053_b2c6, 0x0007_3280];

/// Returns the key of a logit, an integer that sorts like it. NaN and plus infinity have no key;
/// minus infinity has [`FORBIDDEN`], and 0 and subnormal numbers have [`ZERO`].
pub fn key(logit: f32) -> Option<u32> {
    let bits = logit.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 || bits == 0x7f80_0000 {
        return None;
    }
    Some(match (magnitude < 0x0080_0000, bits >> 31) {
        (true, _) => ZERO,
        (false, 0) => bits | 0x8000_0000,
        (false, _) => !bits,
    })
}

/// The key of minus infinity, the smallest key.
pub const FORBIDDEN: u32 = 0x007f_ffff;

/// The key of 0 and of subnormal numbers.
pub const ZERO: u32 = 0x8000_0000;

/// Returns the logit that has this key.
pub fn logit(key: u32) -> f32 {
    f32::from_bits(if key & 0x8000_0000 == 0 { !key } else { key & 0x7fff_ffff })
}

/// Clamps a scale as [`super::SampleParams::scale`] describes.
pub fn bounded_scale(scale: f32) -> f32 {
    match scale.to_bits() {
        0x0080_0000..=0x7f80_0000 => scale.min(LARGEST),
        _ => 0.0,
    }
}

/// Returns the weight of a token with this key, relative to the key `best`: [`ONE`] for the best
/// token, and 0 if the weight would be `2^-32` of that or less. `scale` must come from
/// [`bounded_scale`].
pub fn weight(best: u32, key: u32, scale: f32) -> u32 {
    if key <= FORBIDDEN {
        return 0;
    }
    let bounded = |key: u32| logit(key).clamp(-LARGEST, LARGEST);
    let below = bounded(best) - bounded(key);
    // A GPU may flush subnormal numbers to 0.
    let below = if below < f32::MIN_POSITIVE { 0.0 } else { below };
    let halvings = below * scale;
    if halvings >= 32.0 {
        return 0;
    }
    let fixed = (halvings * (1 << 24) as f32) as u32;
    let (whole, z) = (fixed >> 24, (fixed & 0x00ff_ffff) << 8);
    let part = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    let mut sum = POWERS[5];
    for power in POWERS[..5].iter().rev() {
        sum = power - part(z, sum);
    }
    let fraction = ONE - (part(z, sum) >> 1);
    // Round to nearest.
    (fraction >> whole) + if whole == 0 { 0 } else { fraction >> (whole - 1) & 1 }
}
