//! Packed scales of the K formats, unpacked by word arithmetic.

/// Unpacks the sixteen scales of a Q3_K block to signed bytes, in memory order.
///
/// # Safety
/// `p` holds 12 bytes.
#[inline(always)]
pub(super) unsafe fn q3_k_scales(p: *const u8) -> [u64; 2] {
    // SAFETY: the caller's contract.
    let word = |i: usize| unsafe { u32::from_le(p.cast::<u32>().add(i).read_unaligned()) };
    let (a, b, c) = (word(0), word(1), word(2));
    // Four scales: low nibbles of a word, and bit pairs of the last word.
    let four = |low: u32, high: u32| {
        let v = (low & 0x0f0f_0f0f) | (high & 0x0303_0303) << 4;
        // Subtracts 32 from each byte without a borrow from the next.
        ((v | 0x8080_8080) - 0x2020_2020) ^ 0x8080_8080
    };
    let join = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le();
    [join(four(a, c), four(b, c >> 2)), join(four(a >> 4, c >> 4), four(b >> 4, c >> 6))]
}

/// Unpacks the eight 6-bit scales and the eight 6-bit minima of a Q4_K block to bytes, each with
/// the first in the lowest byte.
///
/// # Safety
/// `p` holds 12 bytes.
#[inline(always)]
pub(super) unsafe fn q4_k_scales(p: *const u8) -> (u64, u64) {
    // SAFETY: the caller's contract.
    let word = |i: usize| unsafe { u32::from_le(p.cast::<u32>().add(i).read_unaligned()) };
    let (a, b, c) = (word(0), word(1), word(2));
    // The first four lie in the low 6 bits of a and b; of the last four, the low 4 bits lie in c
    // and the high 2 bits at the top of a and b.
    let scales = (a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030));
    let minima = (b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030));
    let join = |(low, high): (u32, u32)| u64::from(low) | u64::from(high) << 32;
    (join(scales), join(minima))
}
