// Scale of quantised products: with a fused norm, from sums of squares of each 32 columns, which
// follow x's scales and scaled sums; else 1. Needs OUTPUTS, M and TEAM.
#ifdef scaled
// Sum of the squares in CodeWords `at` of a row; 0 past the end.
fn squares_at(start: u32, at: u32) -> f32 {
    let blocks = params.k / 32u;
    let words = x[start + min(at, (blocks - 1u) / CODE_LEN)];
    var sum = 0.0;
    for (var c = 0u; c < CODE_LEN; c++) {
        sum += select(0.0, bitcast<f32>(words[c]), at * CODE_LEN + c < blocks);
    }
    return sum;
}

// A thread's part of a row's sum of squares: every TEAM-th CodeWords. A single one is read without
// a branch, so that its load is not delayed.
fn squares(factors: u32, first: u32) -> f32 {
    let start = factors + (params.k + 127u) / 128u * (8u / CODE_LEN);
    if (params.k <= TEAM * CODE_LEN * 32u) {
        return squares_at(start, first);
    }
    var sum = 0.0;
    for (var at = first; at * CODE_LEN * 32u < params.k; at += TEAM) {
        sum += squares_at(start, at);
    }
    return sum;
}
#endif
#import scale_sums
