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

/// Computes `ln x` to within 2 units in the last place: -inf for 0, NaN below 0 and for NaN.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    // Below the smallest normal number the exponent's bits say nothing: scaled by 2^23.
    let small = x < f32::MIN_POSITIVE;
    let (scaled, bias) = if small { (x * 8_388_608.0, -23.0) } else { (x, 0.0) };
    // x = 2^n (1 + f), 1 + f from sqrt(1/2) to sqrt 2.
    let bits = scaled.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let n = (bits as i32 >> 23) as f32 + bias;
    let m = (bits & 0x7f_ffff).wrapping_add(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let f = f32::from_bits(m) - 1.0;
    // A least-squares fit of (ln(1 + f) - f + f^2 / 2) / f^3 at Chebyshev nodes, within 8e-10 of ln.
    const FIT: [f32; 9] = [
        0.333_333_13,
        -0.250_000_03,
        0.200_021_45,
        -0.166_684_02,
        0.142_194_27,
        -0.123_991_08,
        0.118_826_26,
        -0.117_089_614,
        0.067_972_89,
    ];
    let fit = FIT.iter().rev().fold(0.0, |sum, c| sum * f + c);
    let square = f * f;
    // ln 2 in two parts, the first of which times n is exact.
    let rest = square * f * fit + n * -2.121_944_4e-4 - 0.5 * square;
    let finite = n * 0.693_359_4 + (f + rest);
    let known = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    let positive = if x < f32::INFINITY { finite } else { x };
    if x > 0.0 { positive } else { known }
}

/// Computes the hyperbolic tangent to within 2 units in the last place.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // Up to 5/8 a least-squares fit of (tanh(x) / x - 1) / x^2 in x^2 at Chebyshev nodes, whose
    // error of 5e-10 is relative to x; beyond it the exponential, which would cancel below.
    const FIT: [f32; 6] = [
        -0.333_333_34,
        0.133_333_04,
        -0.053_959_407,
        0.021_769_961,
        -0.008_346_98,
        0.002_295_841_5,
    ];
    let (a, t) = (x.abs(), x * x);
    let near = x * (1.0 + t * FIT.iter().rev().fold(0.0, |sum, c| sum * t + c));
    let far = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    if a < 0.625 { near } else { far.copysign(x) }
}

/// Computes `x^y` to within 1 unit in the last place, with the special cases of IEEE 754's `pow`.
#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    // In f64, since an error of the logarithm is multiplied by y. Every f32 but 0 is normal there.
    let (a, wide) = (f64::from(x.abs()), f64::from(y));
    let power = exp_wide(wide * log_wide(a));
    // Every f32 from 2^24 on is even.
    let is_integer = y.floor() == y;
    let half = y * 0.5;
    let is_odd = is_integer && half.floor() != half;
    let negative = if is_odd { -power } else { power };
    let below = if is_integer { negative } else { f32::NAN };
    // Zeros and infinities have every power; -0 counts as negative for odd integers.
    let endless = x == 0.0 || x.is_infinite();
    let signed = if endless && !is_odd { power } else { below };
    let value = if x.is_sign_negative() { signed } else { power };
    // 1^y, (-1)^(+-inf) and x^0 are 1, also where the other one is NaN.
    let one = x == 1.0 || y == 0.0 || (x == -1.0 && y.is_infinite());
    if one { 1.0 } else { value }
}

/// Computes `ln x` for a normal x, 0, infinity or NaN, to within 1e-13 of itself or 1e-16.
#[inline(always)]
fn log_wide(x: f64) -> f64 {
    let bits = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits());
    // The exponent as a float without a conversion of 64-bit integers, which AVX2 lacks.
    const SHIFT: u64 = 0x4338_0000_0000_0000;
    let n = (bits as i64 >> 52) as u64;
    let n = f64::from_bits(n.wrapping_add(SHIFT)) - f64::from_bits(SHIFT);
    let m = (bits & 0xf_ffff_ffff_ffff).wrapping_add(std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let m = f64::from_bits(m);
    // 2 artanh((m - 1) / (m + 1)): the next term is below 4e-14 of the first.
    let s = (m - 1.0) / (m + 1.0);
    let t = s * s;
    let tail = 1.0 / 9.0 + t * (1.0 / 11.0 + t * (1.0 / 13.0 + t * (1.0 / 15.0)));
    let series = 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (1.0 / 5.0 + t * (1.0 / 7.0 + t * tail))));
    let finite = n * std::f64::consts::LN_2 + series;
    let known = if x == 0.0 { f64::NEG_INFINITY } else { x };
    if x > 0.0 && x < f64::INFINITY { finite } else { known }
}

/// Computes `e^x` and rounds it to f32; NaN for NaN.
#[inline(always)]
fn exp_wide(x: f64) -> f32 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // Beyond these the result is 0 or infinity in f32.
    let low = if x < -110.0 { -110.0 } else { x };
    let clamped = if low > 100.0 { 100.0 } else { low };
    let shifted = clamped * std::f64::consts::LOG2_E + ROUND;
    let r = clamped - (shifted - ROUND) * std::f64::consts::LN_2;
    // Taylor: the next term is below 8e-12.
    let tail = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * (1.0 / 40_320.0 + r / 362_880.0));
    let tail = 1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * tail));
    let p = 1.0 + r * (1.0 + r * (0.5 + r * tail));
    let power =
        f64::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023) << 52);
    (p * power) as f32
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

    /// Returns how many units in the last place `got` is from `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        let nearest = (want as f32).abs().max(f32::MIN_POSITIVE);
        (f64::from(got) - want).abs() / f64::from(nearest.next_up() - nearest)
    }

    #[test]
    fn log_is_accurate_everywhere() {
        // Every 997th positive number, subnormal ones included.
        let worst = (1..f32::INFINITY.to_bits()).step_by(997).map(|bits| {
            let x = f32::from_bits(bits);
            ulps(log(x), f64::from(x).ln())
        });
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst}");
        assert_eq!((log(1.0), log(0.0), log(-0.0)), (0.0, f32::NEG_INFINITY, f32::NEG_INFINITY));
        assert_eq!(log(f32::INFINITY), f32::INFINITY);
        assert!(log(-1.0).is_nan() && log(f32::NAN).is_nan() && log(f32::NEG_INFINITY).is_nan());
    }

    #[test]
    fn tanh_is_accurate_everywhere() {
        let worst = (0..f32::INFINITY.to_bits()).step_by(997).map(|bits| {
            let x = f32::from_bits(bits);
            ulps(tanh(x), f64::from(x).tanh()).max(ulps(tanh(-x), f64::from(-x).tanh()))
        });
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst}");
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(tanh(f32::NAN).is_nan() && tanh(-0.0).is_sign_negative());
    }

    #[test]
    fn pow_is_accurate_and_has_the_special_cases() {
        let mut worst = 0f64;
        for (i, bits) in (1..f32::INFINITY.to_bits()).step_by(99_991).enumerate() {
            let x = f32::from_bits(bits);
            for y in [0.5, -1.0, 2.0, 3.0, 0.1, -2.7, 17.0, 1.0 + i as f32 * 1e-4] {
                let want = f64::from(x).powf(f64::from(y));
                if want < f64::from(f32::MAX) {
                    worst = worst.max(ulps(pow(x, y), want));
                }
                assert_eq!(pow(x, y) as f64 > 3e38, want as f32 as f64 > 3e38, "{x} {y}");
            }
        }
        assert!(worst <= 1.0, "{worst}");
        let few = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.0,
            -2.0,
            0.5,
            -0.5,
            3.0,
            -3.0,
            2.5,
            -2.5,
            1e30,
            -1e30,
            16_777_217.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-40,
            -1e-40,
            f32::MAX,
            f32::MIN,
        ];
        for x in few {
            for y in few {
                let (got, want) = (pow(x, y), x.powf(y));
                let near = got == want || (got / want - 1.0).abs() < 1.2e-7;
                let same = near && got.is_sign_negative() == want.is_sign_negative();
                assert!(same || (got.is_nan() && want.is_nan()), "{x}^{y}: {got}, not {want}");
            }
        }
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
