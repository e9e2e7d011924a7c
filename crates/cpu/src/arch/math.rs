//! Elementary functions without branches, so that loops over them vectorise.

/// Computes `e^x` to within 2 units in the last place; 0 below -104, infinity above 88.73, NaN for
/// NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let low = if x < -104.0 { -104.0 } else { x };
    let clamped = if low > 89.0 { 89.0 } else { low };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let tail = 0.041_666_465 + r * (0.008_363_176 + r * 0.001_393_364_4);
    let p = 1.0 + (r + r * r * (0.5 + r * (0.166_665_77 + r * tail)));
    // 2^n as two factors, since n ranges from -150 to 128.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    p * power(half) * power(n - half)
}

/// Computes `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The largest magnitude of an angle for which [`sin`] and [`cos`] are accurate, in radians.
pub(crate) const LARGEST_ANGLE: f32 = 67_108_864.0;

/// Computes `sin x` to within 1e-7, up to [`LARGEST_ANGLE`].
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    turn(x, 0)
}

/// Computes `cos x` to within 1e-7, up to [`LARGEST_ANGLE`].
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    turn(x, 1)
}

/// Computes `sin (x + quarters * pi / 2)`.
#[inline(always)]
fn turn(x: f32, quarters: u64) -> f32 {
    // x = n pi / 2 + r, |r| <= pi / 4, in f64: thousands of turns lose no precision. Adding 1.5 *
    // 2^52 rounds to an integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LOW: f64 = 6.123_233_995_736_766e-17;
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * std::f64::consts::FRAC_PI_2) - n * LOW;
    // Taylor: the next terms are below 2e-9.
    let t = r * r;
    let odd = r + r * t * (-1.0 / 6.0 + t * (1.0 / 120.0 + t * (-1.0 / 5040.0 + t / 362_880.0)));
    let tail = -1.0 / 720.0 + t * (1.0 / 40_320.0 - t / 3_628_800.0);
    let even = 1.0 + t * (-0.5 + t * (1.0 / 24.0 + t * tail));
    let quarter = shifted.to_bits().wrapping_add(quarters);
    let v = if quarter & 1 == 0 { odd } else { even };
    (if quarter & 2 == 0 { v } else { -v }) as f32
}

/// Computes the Gauss error function to within 1.5e-7.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    // Least-squares fits at Chebyshev nodes, each within 3e-9 before rounding: erf(x) / x in x^2
    // up to 1, and e^(x^2) erfc(x) in 1 / (x + 2) from 1 to 4.2, where erf is 1 in f32.
    const NEAR: [f32; 8] = [
        std::f32::consts::FRAC_2_SQRT_PI,
        -0.376_126_38,
        0.112_837_82,
        -0.026_865_438,
        0.005_221_053_4,
        -0.000_848_439_65,
        0.000_112_682_54,
        -9.673_59e-6,
    ];
    const FAR: [f32; 8] = [
        -0.000_153_064_8,
        0.569_796_44,
        1.039_063_2,
        2.780_520_2,
        -1.650_762_1,
        18.008_74,
        -30.136_435,
        15.265_158,
    ];
    let a = x.abs();
    let t = x * x;
    let near = x * NEAR.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let b = if a > 4.2 { 4.2 } else { a };
    let u = 1.0 / (b + 2.0);
    let far = 1.0 - exp(-b * b) * FAR.iter().rev().fold(0.0, |sum, c| sum * u + c);
    if a <= 1.0 { near } else { far.copysign(x) }
}

/// Computes `x * (1 + erf(x / sqrt 2)) / 2`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Computes `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`, by `(1 + tanh u) / 2 =
/// sigmoid(2u)`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    x * sigmoid(1.595_769_2 * x * (1.0 + 0.044_715 * x * x))
}

/// Converts an `f16`, given as bits, to `f32`.
#[inline(always)]
pub(crate) fn f32_of_f16(bits: u32) -> f32 {
    let rest = bits & 0x7fff;
    // Below 2^-14 it is a multiple of 2^-24.
    let small = (rest as f32 * 5.960_464_5e-8).to_bits();
    let normal = (rest << 13) + 0x3800_0000;
    let endless = (rest << 13) | 0x7f80_0000;
    let finite = if rest < 0x400 { small } else { normal };
    let size = if rest >= 0x7c00 { endless } else { finite };
    f32::from_bits(((bits & 0x8000) << 16) | size)
}

/// Rounds an `f32`, given as bits, to the nearest `f16`, with ties to even; returns its bits.
#[inline(always)]
pub(crate) fn f16_of(word: u32) -> u32 {
    let size = word & 0x7fff_ffff;
    let normal = size.wrapping_sub(0x3800_0000).wrapping_add(0xfff + ((size >> 13) & 1)) >> 13;
    // Near 0.5 the spacing of f32 is 2^-24, as that of subnormal f16 is.
    let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if size < 0x3880_0000 { small } else { normal };
    let endless = if size > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    ((word >> 16) & 0x8000) | if size >= 0x477f_f000 { endless } else { finite }
}

/// Rounds an `f32`, given as bits, to the nearest `bf16`, with ties to even; returns its bits.
#[inline(always)]
pub(crate) fn bf16_of(word: u32) -> u32 {
    let rounded = word.wrapping_add(0x7fff + ((word >> 16) & 1)) >> 16;
    if word & 0x7fff_ffff > 0x7f80_0000 { (word >> 16) | 0x40 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_everywhere() {
        let mut worst = 0f64;
        for i in -870_000..=887_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) / want - 1.0).abs());
        }
        assert!(worst <= 2.4e-7, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((exp(f32::NEG_INFINITY), exp(f32::INFINITY)), (0.0, f32::INFINITY));
        assert_eq!((exp(-1e30), exp(89.0)), (0.0, f32::INFINITY));
        assert!(exp(-100.0) > 0.0 && exp(f32::NAN).is_nan());
    }

    #[test]
    fn sin_and_cos_are_accurate_for_large_angles() {
        let mut worst = 0f64;
        for i in -400_000..=400_000 {
            for scale in [1e-5, 1e-2, 167.0] {
                let x = i as f32 * scale;
                let (s, c) = f64::from(x).sin_cos();
                worst = worst.max((f64::from(sin(x)) - s).abs());
                worst = worst.max((f64::from(cos(x)) - c).abs());
            }
        }
        assert!(worst <= 1e-7, "{worst}");
        assert_eq!((sin(0.0), cos(0.0), sin(1e-9)), (0.0, 1.0, 1e-9));
        assert!(sin(f32::NAN).is_nan() && cos(f32::NAN).is_nan());
    }

    #[test]
    fn erf_is_within_its_bound() {
        // erf by its Taylor series in f64, which converges below 6.
        let erf64 = |x: f64| {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        };
        let mut worst = 0f64;
        for i in -3_500..=3_500 {
            let x = i as f32 * 1e-3;
            worst = worst.max((f64::from(erf(x)) - erf64(f64::from(x))).abs());
        }
        assert!(worst <= 1.5e-7, "{worst}");
        assert_eq!((erf(4.5), erf(-9.0), erf(f32::INFINITY).is_nan()), (1.0, -1.0, false));
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn f16_conversions_follow_the_standard() {
        use half::{bf16, f16};
        for bits in 0..=0xffff_u32 {
            let (got, want) = (f32_of_f16(bits), f16::from_bits(bits as u16).to_f32());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{bits:#x}: {got} {want}");
        }
        let signs = [0, 0x8000_0000];
        // Every exponent, with mantissas on both sides of each rounding boundary.
        let places = [0x0, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001];
        let places =
            places.into_iter().chain([0x1_8000, 0x40_0000, 0x7f_efff, 0x7f_f000, 0x7f_ffff]);
        for word in places.flat_map(|m| (0..256_u32).map(move |e| e << 23 | m)) {
            for word in signs.map(|sign| sign | word) {
                let x = f32::from_bits(word);
                let (half, brain) = (f16_of(word) as u16, bf16_of(word) as u16);
                if x.is_nan() {
                    assert!(f16::from_bits(half).is_nan() && bf16::from_bits(brain).is_nan());
                    continue;
                }
                assert_eq!(half, f16::from_f32_const(x).to_bits(), "{word:#x}");
                assert_eq!(brain, bf16::from_f32(x).to_bits(), "{word:#x}");
            }
        }
    }
}
