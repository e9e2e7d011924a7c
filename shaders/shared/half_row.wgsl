// Of a row that becomes halves, by what each thread of a workgroup has of it (the largest as bits, a sum of squares):
// its factor and the sum of all squares. Needs MAX_SUBGROUPS, the most subgroups of a workgroup.
struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

struct HalfRow {
    // The power of two that puts the largest below 2^15, and its inverse; the sum of squares.
    by: f32,
    factor: f32,
    squares: f32,
}

// Of each subgroup.
var<workgroup> largest: array<u32, MAX_SUBGROUPS>;
var<workgroup> squares: array<f32, MAX_SUBGROUPS>;

// All threads call it once, with what each has.
fn half_row(place: Place, own_most: u32, own_squares: f32) -> HalfRow {
    var most = subgroupMax(own_most);
    let sum_of_own = subgroupAdd(own_squares);
    if (place.lane == 0u) {
        largest[place.subgroup] = most;
        squares[place.subgroup] = sum_of_own;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var s = 0u; s < min(place.subgroups, MAX_SUBGROUPS); s++) {
        most = max(most, largest[s]);
        sum += squares[s];
    }
    // 2^14 stands for the exponent of the largest. Rows below 2^-97 share the factor of 2^-111.
    let exponent = max(most >> 23u, 30u);
    return HalfRow(bitcast<f32>((268u - exponent) << 23u), bitcast<f32>((exponent - 14u) << 23u), sum);
}
