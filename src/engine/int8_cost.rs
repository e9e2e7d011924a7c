//! What products of 8-bit numbers cost on a CPU.

use crate::provider::DeviceProfile;

/// Rows of x from which rows of weights are multiplied side by side.
const MANY_ROWS: f64 = 8.0;

/// Operations that a product of two 8-bit numbers takes on a CPU, with `m` rows of x, where one of floats
/// takes 2. With few rows it converts sums often. With many, measured on AVX-512 with VNNI: 840
/// Gflop/s on two cores where floats reach 125; for AVX2 it is a count of instructions, not measured.
/// AVX-512 without VNNI, which a profile does not tell apart, multiplies as AVX2 does.
pub(super) fn int8_operations(profile: &DeviceProfile, m: f64) -> f64 {
    match profile.driver.as_str() {
        "avx512" if m >= MANY_ROWS => 0.5,
        "avx2" if m >= MANY_ROWS => 1.5,
        _ => 2.3,
    }
}
