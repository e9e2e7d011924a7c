// What products of codes are scaled by: with a norm in front of them the root of the mean of squares, of which
// those of each 32 columns lie behind what codes stand for and their sums; else nothing. Needs OUTPUTS, M and TEAM.
#ifdef scaled
// Sum of the squares that a CodeWords of those of a row holds; what is past the end is nothing.
fn squares_at(start: u32, at: u32) -> f32 {
    let blocks = params.k / 32u;
    let words = x[start + min(at, (blocks - 1u) / CODE_LEN)];
    var sum = 0.0;
    for (var c = 0u; c < CODE_LEN; c++) {
        sum += select(0.0, bitcast<f32>(words[c]), at * CODE_LEN + c < blocks);
    }
    return sum;
}

// Part of the sum of squares of a row, of every TEAM-th CodeWords. One that is the only one is read without a branch,
// so that nothing waits for it.
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
