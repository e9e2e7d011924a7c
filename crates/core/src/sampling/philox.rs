//! Philox4x32-10: random numbers as a function of a counter and a key.
//!
//! See Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The
//! generator is stateless, so the number for a position does not depend on the order of queries. It
//! needs only 32-bit multiplication, addition and exclusive OR, which WGSL can express.

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Key increment after each round: fractional bits of the golden ratio and of the square root of 3.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Returns four random words for a counter and a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let a = u64::from(c[0]) * u64::from(MULTIPLIERS[0]);
        let b = u64::from(c[2]) * u64::from(MULTIPLIERS[1]);
        let high = |product: u64| (product >> 32) as u32;
        c = [high(b) ^ c[1] ^ k[0], b as u32, high(a) ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}
