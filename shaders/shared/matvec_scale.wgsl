// How many sums a workgroup of matvec_* or matvec_int8_* makes of OUTPUTS products, and what scales those of row i of
// x: with a norm the root of its mean square, whose sum is beside the products.
#ifdef norm
const SUMS: u32 = OUTPUTS + M;

fn scale(i: u32, place: Place) -> f32 {
    return inverseSqrt(total(OUTPUTS + i, place) / f32(params.k) + params.norm_eps);
}
#else
const SUMS: u32 = OUTPUTS;

fn scale(i: u32, place: Place) -> f32 {
    return 1.0;
}
#endif
