//! Cost of int8 products on a CPU.

use crate::provider::DeviceProfile;

/// Rows of x from which several rows of weights are multiplied at once.
const MANY_ROWS: f64 = 8.0;

/// Operations of an int8 multiply-add on a CPU with `m` rows of x, if a float one takes 2. With few
/// rows, sums are converted often. With many, measured on AVX-512 with VNNI: 840 Gop/s on two cores
/// where floats reach 125. For AVX2 it is an instruction count, not measured. AVX-512 without VNNI,
/// which a profile does not distinguish, is as AVX2.
pub(in crate::engine) fn int8_operations(profile: &DeviceProfile, m: f64) -> f64 {
    match profile.driver.as_str() {
        "avx512" if m >= MANY_ROWS => 0.5,
        "avx2" if m >= MANY_ROWS => 1.5,
        _ => 2.3,
    }
}
