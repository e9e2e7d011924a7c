// Number of sums per workgroup of matvec_* or matvec_int8_* for OUTPUTS products, and the scale of
// row i of x: with a fused norm its inverse root mean square, from sums that follow the products;
// else 1.
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
