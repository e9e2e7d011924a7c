// quantize_activations without subgroups, or with small ones: one thread per block.
// Why: needs no exchange between threads.
// Rounds a block of a row; returns its sum of squares before the norm's weight.
fn round_block(row: u32, block: u32) -> f32 {
    let start = params.x_offset + row * params.x_stride;
    let words = row * row_words();
    var most = 0u;
    var squares = 0.0;
#repeat j 8
    var v$j = prologue4(row, block * 32u + $ju * 4u, load_x(start, block * 32u + $ju * 4u));
#ifdef norm
    squares += dot(v$j, v$j);
    v$j *= norm_weight(block * 32u + $ju * 4u);
#endif
    most = max(most, most_of(v$j));
#end
    let r = rounding(most);
    var sum = 0;
    var half = 0;
#repeat j 8
    let code$j = rounded4(v$j, r.x);
    y[code_at(row, block, $ju)] = code$j;
    if ($ju == 4u) {
        put_half(words, block, 0u, r.y, sum);
        half = sum;
    }
    sum += dot4I8Packed(0x01010101u, code$j);
#end
    put_half(words, block, 1u, r.y, sum - half);
    y[factor_at(row, block)] = bitcast<u32>(r.y);
    y[sum_at(row, block)] = bitcast<u32>(r.y * f32(sum));
    put_sum(words, block, r.y * f32(sum));
    return squares;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let group = wid.y * grid.x + wid.x;
    let blocks = params.k / 32u;
#ifdef norm
    if (group >= params.rows) {
        return;
    }
    var squares = 0.0;
    for (var block = place.lid; block < blocks; block += WG) {
        squares += round_block(group, block);
    }
    put(0u, squares, place);
    workgroupBarrier();
    reduce_sums(place);
    let scale = 1.0 / sqrt(total(0u, place) / f32(params.k) + params.norm_eps);
    // Each thread scales what it wrote itself.
    for (var block = place.lid; block < blocks; block += WG) {
        let factor = factor_at(group, block);
        let sum = sum_at(group, block);
        scale_f16(group * row_words(), block, scale);
        y[factor] = bitcast<u32>(bitcast<f32>(y[factor]) * scale);
        y[sum] = bitcast<u32>(bitcast<f32>(y[sum]) * scale);
    }
#else
    let block = group * WG + place.lid;
    if (block < params.rows * blocks) {
        _ = round_block(block / blocks, block % blocks);
    }
#endif
}
