// quantize_activations with subgroups of at least 8: eight neighbouring threads round a block together.
// Neighbours in a workgroup must be neighbours in a subgroup, as for matvec_int8_*.
// Why: accesses are coalesced, and rounded values stay in registers.
// Four columns of a row: their index among all quads, and whether they exist.
struct Quad {
    row: u32,
    at: u32,
    exists: bool,
    v: vec4<f32>,
}

fn quad_of(row: u32, at: u32, exists: bool) -> Quad {
    let last = params.k / 4u - 1u;
    let column = min(at, last) * 4u;
    let x4 = load_x(params.x_offset + row * params.x_stride, column);
    return Quad(row, at, exists, prologue4(row, column, x4));
}

// The maximum of 32 columns, which eight neighbouring threads hold.
fn most_of_block(most: u32) -> u32 {
    let pair = max(most, subgroupShuffleXor(most, 1u));
    let four = max(pair, subgroupShuffleXor(pair, 2u));
    return max(four, subgroupShuffleXor(four, 4u));
}

fn round_quad(quad: Quad, v: vec4<f32>, scale: f32) {
    let r = rounding(most_of_block(most_of(v)));
    let code = rounded4(v, r.x);
    var sum = dot4I8Packed(0x01010101u, code);
    let words = quad.row * row_words();
#repeat s 3
    if ($su == 2u && quad.exists && quad.at % 4u == 0u) {
        put_half(words, quad.at / 8u, quad.at / 4u % 2u, r.y * scale, sum);
    }
    sum += subgroupShuffleXor(sum, 1u << $su);
#end
    if (quad.exists) {
        y[code_at(quad.row, quad.at / 8u, quad.at % 8u)] = code;
        if (quad.at % 8u == 0u) {
            y[factor_at(quad.row, quad.at / 8u)] = bitcast<u32>(r.y * scale);
            y[sum_at(quad.row, quad.at / 8u)] = bitcast<u32>(r.y * scale * f32(sum));
            put_sum(words, quad.at / 8u, r.y * scale * f32(sum));
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let group = wid.y * grid.x + wid.x;
    let quads = params.k / 4u;
#ifdef norm
    if (group >= params.rows) {
        return;
    }
    // Four at a time, so that their loads overlap.
    var squares = 0.0;
    for (var base = place.lid; base < quads; base += 4u * WG) {
#repeat t 4
        let quad$t = quad_of(group, base + $tu * WG, base + $tu * WG < quads);
#end
#repeat t 4
        squares += select(0.0, dot(quad$t.v, quad$t.v), quad$t.exists);
#end
    }
    put(0u, squares, place);
    workgroupBarrier();
    reduce_sums(place);
    let scale = 1.0 / sqrt(total(0u, place) / f32(params.k) + params.norm_eps);
    for (var base = 0u; base < quads; base += 4u * WG) {
#repeat t 4
        let at$t = base + $tu * WG + place.lid;
        let quad$t = quad_of(group, at$t, at$t < quads);
        let v$t = quad$t.v * norm_weight(min(at$t, quads - 1u) * 4u);
#end
#repeat t 4
        round_quad(quad$t, v$t, scale);
#end
    }
#else
    let at = group * WG + place.lid;
    let row = at / quads;
    let quad = quad_of(min(row, params.rows - 1u), at % quads, row < params.rows);
    round_quad(quad, quad.v, 1.0);
#endif
}
