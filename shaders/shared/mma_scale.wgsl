// Scale of tile products: with a fused norm, from sums of squares of each 32 columns, which follow
// x's scales and scaled sums in the same layout; else 1. Needs OUTPUTS, M and TEAM.
#ifdef scaled
// vec4s of the squares of eight rows, each of four blocks of one row.
const SQUARES: u32 = (K + 127u) / 128u * 8u;

// Each team sums all of them: vec4 q belongs to row q % 4 * 2 + q / 4 % 2.
fn put_squares(start: u32, place: Place) {
    var sum = 0.0;
    for (var q = place.lid % TEAM; q < SQUARES; q += TEAM) {
        let blocks = vec4(q / 8u * 4u) + vec4(0u, 1u, 2u, 3u);
        let squares = bitcast<vec4<f32>>(x[start + q]);
        sum += dot(select(vec4(0.0), squares, blocks < vec4(K / 32u)), vec4(1.0));
    }
    sum += subgroupShuffleXor(sum, 8u);
    sum += subgroupShuffleXor(sum, 16u);
    if (place.lane < M) {
        partial[place.subgroup * SUMS + OUTPUTS + place.lane % 4u * 2u + place.lane / 4u] = sum;
    }
}
#endif
#import scale_sums
