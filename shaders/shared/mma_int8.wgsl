// int8 tensor-core product of a 32-lane subgroup: c + a b, a of 16 rows, b of 8 columns, signed, in
// the register layout of PTX's mma.m16n8k32 and mma.m16n8k16. Lane 4 g + t has, of a, four
// neighbours of rows g and g + 8 from column 4 t on (and again 16 columns further); of b, those of
// column g; of c, rows g and g + 8 of columns 2 t and 2 t + 1.
// Why: written with shuffles, so WGSL defines its meaning; CUDA replaces each call with one
// instruction (`translate::Options::multiplies_codes`).
// a from 0 to 255.
fn mma_int8(a: vec4<u32>, b: vec2<u32>, c: vec4<i32>) -> vec4<i32> {
    // dot4I8Packed takes signed bytes only: splits each into 7 bits and a multiple of 128.
    let low = a & vec4(0x7f7f7f7fu);
    let high = (a >> vec4(7u)) & vec4(0x01010101u);
    let more = multiply_half(high.zw, b.y, multiply_half(high.xy, b.x, vec4<i32>()));
    return multiply_half(low.zw, b.y, multiply_half(low.xy, b.x, c)) + 128 * more;
}

// Half as many columns, a signed.
fn multiply_half(a: vec2<u32>, b: u32, c: vec4<i32>) -> vec4<i32> {
    let lane = subgroup_lane;
    let row = lane & 28u;
    let column = (lane & 3u) * 8u;
    var sum = c;
    for (var s = 0u; s < 4u; s++) {
        let upper = subgroupShuffle(a.x, row + s);
        let lower = subgroupShuffle(a.y, row + s);
        let first = subgroupShuffle(b, column + s);
        let second = subgroupShuffle(b, column + 4u + s);
        sum.x += dot4I8Packed(upper, first);
        sum.y += dot4I8Packed(upper, second);
        sum.z += dot4I8Packed(lower, first);
        sum.w += dot4I8Packed(lower, second);
    }
    return sum;
}
