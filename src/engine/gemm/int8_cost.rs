//! Cost of int8 products on a CPU.

use crate::provider::DeviceProfile;

/// Minimum rows of x for which several rows of weights are multiplied at once.
const MANY_ROWS: f64 = 8.0;

/// Estimates the cost of an int8 multiply-add on a CPU with `m` rows of x, in float operations (a
/// float multiply-add takes 2). With few rows, sums are often converted. For many rows, AVX-512
/// with VNNI was measured: 840 Gop/s on two cores, where floats reach 125. The value for AVX2 is an
/// instruction count, not a measurement. AVX-512 without VNNI is only as fast as AVX2, but a
/// profile does not distinguish it.
pub(in crate::engine) fn int8_operations(profile: &DeviceProfile, m: f64) -> f64 {
    match profile.driver.as_str() {
        "avx512" if m >= MANY_ROWS => 0.5,
        "avx2" if m >= MANY_ROWS => 1.5,
        _ => 2.3,
    }
}
