// What products of codes are scaled by: with a norm in front of them the root of the mean of squares, of which
// those of each 32 columns lie behind what codes stand for and their sums; else nothing. Needs OUTPUTS, M and TEAM.
#ifdef scaled
const SUMS: u32 = OUTPUTS + M;

// Part of the sum of squares of a row, of every TEAM-th CodeWords.
fn squares(factors: u32, first: u32) -> f32 {
    let start = factors + (params.k + 127u) / 128u * (8u / CODE_LEN);
    let blocks = params.k / 32u;
    var sum = 0.0;
    for (var b = first * CODE_LEN; b < blocks; b += TEAM * CODE_LEN) {
        let words = x[start + b / CODE_LEN];
        for (var c = 0u; c < CODE_LEN; c++) {
            sum += select(0.0, bitcast<f32>(words[c]), b + c < blocks);
        }
    }
    return sum;
}

fn scale(o: u32, i: u32, place: Place) -> f32 {
    return 1.0 / sqrt(total(o / SUMS * SUMS + OUTPUTS + i, place) / f32(params.k) + params.eps);
}
#else
const SUMS: u32 = OUTPUTS;

fn scale(o: u32, i: u32, place: Place) -> f32 {
    return 1.0;
}
#endif
