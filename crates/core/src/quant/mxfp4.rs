//! MXFP4: 32 weights in 17 bytes (4.25 bits per weight), ggml's `block_mxfp4`. It is a microscaling
//! format of the Open Compute Project: the scale of a block is a power of two.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | `e`: the shared exponent |
//! | 1..17 | `qs`, 16 bytes: weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = 2^(e - 128) * VALUES[q[i]]`. A quant is a float with a sign bit, two exponent
//! bits and one mantissa bit. `VALUES` holds twice the value of each quant, which is an integer;
//! the power of two compensates.

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 17;

/// Twice the values of the 16 quants.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Returns `2^(e - 128)`, which is subnormal for an `e` of 0 or 1.
#[inline]
pub fn scale(e: u8) -> f32 {
    let bits = if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 };
    f32::from_bits(bits)
}

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = scale(block[0]);
    for j in 0..16 {
        let q = block[1 + j];
        out[j] = d * f32::from(VALUES[usize::from(q & 15)]);
        out[j + 16] = d * f32::from(VALUES[usize::from(q >> 4)]);
    }
}

/// Encodes 32 finite values like ggml's reference: the largest magnitude determines the power of
/// two. Always succeeds.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let largest = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    // The exponent of the largest magnitude, minus the largest exponent of a quant (2).
    let e = ((largest.to_bits() >> 23) as u8).saturating_sub(2);
    let d = scale(e);
    let nearest = |v: f32| {
        let far = |i: usize| (d * f32::from(VALUES[i]) - v).abs();
        (1..16).fold(0, |best, i| if far(i) < far(best) { i } else { best }) as u8
    };
    let mut block = [0; BYTES];
    block[0] = e;
    for j in 0..16 {
        block[1 + j] = nearest(values[j]) | nearest(values[j + 16]) << 4;
    }
    Some(block)
}
