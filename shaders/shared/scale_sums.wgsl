// Number of sums per team of matvec_prequant_* or matvec_mma_* for OUTPUTS products, and the scale
// of row i of x: with a fused norm its inverse root mean square, from sums that follow the
// products; else 1. Needs M.
#ifdef scaled
const SUMS: u32 = OUTPUTS + M;

// All teams hold the same sum, so two calls of a thread are one.
fn scale(i: u32, place: Place) -> f32 {
    return inverseSqrt(total(OUTPUTS + i, place) / f32(params.k) + params.eps);
}
#else
const SUMS: u32 = OUTPUTS;

fn scale(i: u32, place: Place) -> f32 {
    return 1.0;
}
#endif
