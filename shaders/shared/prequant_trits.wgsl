// Inner loop of matvec_prequant_tq2_0 for 32-lane subgroups: one row of x with codes apart
// (prequant_layout), eight rows of w per team. Part of main, after prequant_begin.
// Work split: each half-subgroup has four rows, two blocks of them per turn; a lane multiplies one
// unit per row. UNROLL turns of w are in flight: a used turn is replaced by the load of the one
// UNROLL turns ahead.
// Why: loads are coalesced; half-subgroups divide some row lengths evenly that subgroups do not;
// decoded x serves four rows. Bit pairs are multiplied in place, 4, 16 and 64 times too large,
// which x's scales correct once per group; the highest pairs are the signed byte 64 * (q - 2).
// Accumulators start at the bits of 1.5 * 2^23, which avoids conversions. The offset of q is
// corrected by a multiple of the group's sum of codes.
let prequant_at = (codes0 + first_block * 16u + own_unit) & NEAR;
// Factors of half a block: four groups.
let along_at = (factors0 + first_block * 2u + (own_unit >> 2u)) & NEAR;
for (var base = 0u; base < TURNS; base += UNROLL) {
#repeat s UNROLL
if (base + $su < TURNS) {
    let turn = base + $su;
    let exists = WHOLE || turn + 1u < TURNS || own_block + turn * STRIDE < BLOCKS;
    let further = select(0u, turn * STRIDE, exists);
    let low = x[prequant_at + further * 16u];
    let high = x[prequant_at + further * 16u + 8u];
    let stand = bitcast<vec4<f32>>(x[along_at + further * 2u]);
    let sums = bitcast<vec4<f32>>(x[along_at + further * 2u + BLOCKS * 2u]);
    let by = select(vec4(0.0), stand * vec4(1.0, 0.25, 0.0625, 0.015625), exists);
    // Four lanes share the correction.
    let less = select(0.0, (sums.x + sums.y + sums.z - sums.w) * 0.25, exists);
#repeat r 4
    let words$r = next$s_$r;
#end
    if (turn + UNROLL < TURNS) {
        let to = turn + UNROLL;
        let reach = select(0u, to * REACH, WHOLE || to + 1u < TURNS || own_block + to * STRIDE < BLOCKS);
#repeat r 4
        next$s_$r = vec4(w[at$r + reach], w[at$r + reach + 1u], w[at$r + reach + 2u], w[d_at$r + reach]);
#end
    }
#repeat r 4
    {
        let q0 = select(words$r.x, (words$r.x >> 16u) | (words$r.y << 16u), late$r);
        let q1 = select(words$r.y, (words$r.y >> 16u) | (words$r.z << 16u), late$r);
        var a = 0x4b400000;
        var b = 0x4b400000;
        var c = 0x4b400000;
        var d = 0x4b400000;
#repeat p 2
        a += dot4I8Packed(q$p & 0x03030303u, low[$p]);
        b += dot4I8Packed(q$p & 0x0c0c0c0cu, low[2 + $p]);
        c += dot4I8Packed(q$p & 0x30303030u, high[$p]);
        d += dot4I8Packed((q$p & 0xc0c0c0c0u) ^ 0x80808080u, high[2 + $p]);
#end
        var part = (bitcast<f32>(a) - 12582912.0) * by.x - less;
        part += (bitcast<f32>(b) - 12582912.0) * by.y;
        part += (bitcast<f32>(c) - 12582912.0) * by.z;
        part += (bitcast<f32>(d) - 12582912.0) * by.w;
        sum$r_0 += f16_low(select(words$r.w, words$r.w >> 16u, late$r)) * part;
    }
#end
}
#end
}
#import prequant_exchange
