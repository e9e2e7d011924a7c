// How many sums a team of matvec_codes_* or matvec_tiles_* makes of OUTPUTS products, and what scales those of row i of
// x: with a norm in front of them the root of its mean square, whose sum is beside the products. Needs M.
#ifdef scaled
const SUMS: u32 = OUTPUTS + M;

// All teams have the same: where a thread asks for two, they are one.
fn scale(i: u32, place: Place) -> f32 {
    return inverseSqrt(total(OUTPUTS + i, place) / f32(params.k) + params.eps);
}
#else
const SUMS: u32 = OUTPUTS;

fn scale(i: u32, place: Place) -> f32 {
    return 1.0;
}
#endif
