// The rest of scaled_rows where what it stores is handed on to products of halves: as halves and factors of rows, as
// round_half makes them, with the norm in front of those products where there is one.
// Work split: a workgroup a row, neighbouring threads neighbouring columns, K of them in TURNS turns, all in registers;
// 32 neighbours, a block, are of one subgroup. Workgroups are folded over grid x and y.
// Why: a launch of round_half would read again what is at hand here.
#import rounding
#import attached_hand

// Subgroups have at least 32 threads.
const MAX_SUBGROUPS: u32 = (WG + 31u) / 32u;

struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Of each subgroup: the largest as bits, and the sum of squares.
var<workgroup> largest: array<u32, MAX_SUBGROUPS>;
var<workgroup> squares: array<f32, MAX_SUBGROUPS>;

// Where two columns from an even one on go, in words.
fn pair_place(row: u32, column: u32) -> u32 {
    if (HAND_PLAIN) {
        return row * (params.hand_columns / 2u) + column / 2u;
    }
    return (column / 32u * params.m + row) * 16u + column % 32u / 2u;
}

fn rounded_times(v: f32, by: f32) -> f32 {
    if (!HAND_ROUNDED) {
        return v * by;
    }
    var most = bitcast<u32>(v) & 0x7fffffffu;
#repeat s 5
    most = max(most, subgroupShuffleXor(most, 1u << $su));
#end
    let r = rounding(most);
    return round(v * r.x) * (r.y * by);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let row = wid.y * grid.x + wid.x;
    if (row >= params.m) {
        return;
    }
    let task = task_of(0u);
    let each = evaluations(task);
    let factor = factors[row];
    let at = row * params.sums_stride;
#repeat t TURNS
    let e$t = $tu * WG + place.lid;
    let first$t = at + row_of(task, e$t);
    let second$t = at + row_of(task, min(e$t + each, TASK_ROWS - 1u));
    var low$t = sums[first$t];
    var high$t = 0.0;
    if (ANCHORS > 1u) {
        high$t = sums[second$t];
    }
#end
    for (var s = 1u; s < SPLITS; s++) {
        let part = s * params.part_stride;
#repeat t TURNS
        low$t += sums[part + first$t];
        if (ANCHORS > 1u) {
            high$t += sums[part + second$t];
        }
#end
    }
    // Behind the last column there are zeros.
    var most = 0u;
    var own_squares = 0.0;
#repeat t TURNS
    let made$t = store(task, e$t, row, low$t * factor, high$t * factor);
    own_squares += made$t * made$t;
    let v$t = made$t * hand_gain(min(e$t, params.hand_columns - 1u));
    most = max(most, bitcast<u32>(v$t) & 0x7fffffffu);
#end
    most = subgroupMax(most);
    own_squares = subgroupAdd(own_squares);
    if (place.lane == 0u) {
        largest[place.subgroup] = most;
        squares[place.subgroup] = own_squares;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var s = 0u; s < min(place.subgroups, MAX_SUBGROUPS); s++) {
        most = max(most, largest[s]);
        sum += squares[s];
    }
    // 2^14 stands for the exponent of the largest. Rows below 2^-97 share the factor of 2^-111.
    let exponent = max(most >> 23u, 30u);
    let by = bitcast<f32>((268u - exponent) << 23u);
    var scale = 1.0;
    if (HAND_NORM) {
        scale = 1.0 / sqrt(sum / f32(params.hand_columns) + params.hand_eps);
    }
    if (place.lid == 0u) {
        hand_put(params.hand_factors + row, bitcast<u32>(bitcast<f32>((exponent - 14u) << 23u) * scale));
    }
#repeat t TURNS
    let own$t = rounded_times(v$t, by);
    let other$t = subgroupShuffleXor(own$t, 1u);
    if (e$t % 2u == 0u && e$t < params.hand_columns) {
        hand_put(pair_place(row, e$t), pack2x16float(vec2(own$t, other$t)));
    }
#end
}
