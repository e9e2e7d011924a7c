//! Quantisation of rows of x to int8.

use super::{BLOCK, Factors, TABLES};

/// Blocks of values up to this magnitude quantise to zeros: 127 divided by a tiny value overflows.
const TINY: f32 = 1e-30;

/// Quantises `n` values to int8 and factors; the tables of factors are `apart` floats apart.
///
/// # Safety
/// `x` and `codes` hold `n` values, a multiple of 32; each table of `factors` holds `n / 32`.
#[inline(always)]
pub(super) unsafe fn round(
    x: *const f32,
    n: usize,
    codes: *mut i8,
    factors: *mut Factors,
    apart: usize,
) {
    for block in 0..n / BLOCK {
        // SAFETY: the block lies below n.
        let (x, codes) = unsafe {
            let at = block * BLOCK;
            let x = &*x.add(at).cast::<[f32; BLOCK]>();
            (x, &mut *codes.add(at).cast::<[i8; BLOCK]>())
        };
        let put = |values: [f32; TABLES]| {
            for (table, value) in values.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { *factors.add(table * apart + block) = value };
            }
        };
        // Compared as bits, infinities and NaN are larger than any finite value.
        let most = x.iter().fold(0u32, |most, v| most.max(v.to_bits() & 0x7fff_ffff));
        if most >= f32::INFINITY.to_bits() {
            *codes = [0; BLOCK];
            put([f32::NAN; TABLES]);
            continue;
        }
        let most = f32::from_bits(most);
        let [by, d] = if most > TINY { [127.0 / most, most / 127.0] } else { [0.0; 2] };
        // Adding this constant drops the fraction with the right rounding and leaves the integer in
        // the low bits. A saturating conversion would not vectorise.
        const WHOLE: f32 = 12_582_912.0;
        let mut whole = [0i32; BLOCK];
        for (q, v) in whole.iter_mut().zip(x) {
            *q = (v * by + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits()) as i32;
        }
        for (code, q) in codes.iter_mut().zip(&whole) {
            *code = *q as i8;
        }
        let mut sums = [0i32; 2];
        for (sum, half) in sums.iter_mut().zip(whole.chunks_exact(16)) {
            half.iter().for_each(|q| *sum += q);
        }
        let [first, second] = sums.map(|sum| d * sum as f32);
        put([d, first, second, d * (sums[0] + sums[1]) as f32]);
    }
}
