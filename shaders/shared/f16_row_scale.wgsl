// Row factor for the conversion to f16, and the row's sum of squares, from each thread's largest
// magnitude (as bits) and sum of squares. Needs MAX_SUBGROUPS, the maximum subgroups per workgroup.
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

// One per subgroup.
var<workgroup> largest: array<u32, MAX_SUBGROUPS>;
var<workgroup> squares: array<f32, MAX_SUBGROUPS>;

// All threads must call it once.
fn f16_row_scale(place: Place, own_most: u32, own_squares: f32) -> HalfRow {
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
    // Scales the largest to exponent 14. Rows below 2^-97 share the factor 2^-111.
    let exponent = max(most >> 23u, 30u);
    return HalfRow(bitcast<f32>((268u - exponent) << 23u), bitcast<f32>((exponent - 14u) << 23u), sum);
}
