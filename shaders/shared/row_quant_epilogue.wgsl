// split_k_reduce with a quant epilogue to f16: stores f16 and row factors as quantize_to_f16 does, with the
// norm of the next products if there is one.
// Work split: one workgroup per row, folded over the grid; neighbouring threads take neighbouring
// columns, K of them in TURNS turns, all in registers. A block of 32 neighbours is in one subgroup.
// Why: a launch of quantize_to_f16 would read the results again.
#import f16_row_scale
#import rounding
#import fusion_quant_target

// Subgroups have at least 32 threads.
const MAX_SUBGROUPS: u32 = (WG + 31u) / 32u;

// Word index of two columns from an even one.
fn pair_place(row: u32, column: u32) -> u32 {
    if (QUANT_PLAIN) {
        return row * (params.quant_columns / 2u) + column / 2u;
    }
    return (column / 32u * params.m + row) * 16u + column % 32u / 2u;
}

// The maximum of a block as bits; if it is a subgroup, devices may have an instruction for it.
fn most_of_block(v: f32) -> u32 {
    var most = bitcast<u32>(v) & 0x7fffffffu;
    if (SUB == 32u) {
        return subgroupMax(most);
    }
#repeat s 5
    most = max(most, subgroupShuffleXor(most, 1u << $su));
#end
    return most;
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
    // Columns past the last are zero.
    var most = 0u;
    var own_squares = 0.0;
#repeat t TURNS
    let made$t = store(task, e$t, row, low$t * factor, high$t * factor);
    own_squares += made$t * made$t;
    let v$t = made$t * quant_gain(min(e$t, params.quant_columns - 1u));
    most = max(most, bitcast<u32>(v$t) & 0x7fffffffu);
#end
    let whole = f16_row_scale(place, most, own_squares);
    var scale = 1.0;
    if (QUANT_NORM) {
        scale = 1.0 / sqrt(whole.squares / f32(params.quant_columns) + params.quant_eps);
    }
    if (place.lid == 0u) {
        quant_put(params.quant_factors + row, bitcast<u32>(whole.factor * scale));
    }
    // Each lane computes a block's rounding factors for one turn: there are no more turns than
    // lanes.
    let first_lane = place.lane / 32u * 32u;
    var block = 0u;
    if (QUANT_ROUNDED) {
#repeat t TURNS
        block = select(block, most_of_block(v$t), place.lane == first_lane + $tu);
#end
    }
    let of_turn = rounding(block);
#repeat t TURNS
    var own$t = v$t * whole.by;
    if (QUANT_ROUNDED) {
        let by = subgroupShuffle(of_turn.x, first_lane + $tu);
        own$t = round(v$t * by) * (subgroupShuffle(of_turn.y, first_lane + $tu) * whole.by);
    }
    let other$t = subgroupShuffleXor(own$t, 1u);
    if (e$t % 2u == 0u && e$t < params.quant_columns) {
        quant_put(pair_place(row, e$t), pack2x16float(vec2(own$t, other$t)));
    }
#end
}
