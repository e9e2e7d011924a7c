// Inner loop of matvec_prequant_* for eight interleaved blocks of 32 (q4_0x8, q8_0x8) and 32-lane
// subgroups: one row of x in planes (prequant_layout), four rows of w per team. Part of main, after
// prequant_begin.
// Work split: a step is four groups of four rows; a subgroup takes every SUBGROUPS-th step. A lane
// multiplies 16 codes of an even block and 16 of the next odd one per row, and reads both scales as
// one word. The next step's weights are prefetched; at the end lanes exchange sums.
// Why: loads are coalesced, 16 bytes each. Accumulators start at the bits of 1.5 * 2^23, which
// avoids conversions; codes are signed bytes, which avoids a bias per block.
let low_at = (codes0 + own_subgroup * 64u + lane) & NEAR;
let along_at = (codes0 + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
for (var base = 0u; base < TURNS; base += UNROLL) {
#repeat t UNROLL
{
    let turn = base + $tu;
    let wanted = turn * SUBGROUPS + own_subgroup;
    // Relative to the subgroup's first step.
    let further = select(min(wanted, STEPS - 1u) - own_subgroup, turn * SUBGROUPS, WHOLE);
    let low = x[low_at + further * 64u];
    let high = x[low_at + further * 64u + 32u];
    let along = x[along_at + further * 32u];
#repeat r 4
    let even$r = next_even$r;
    let odd$r = next_odd$r;
    let d$r = next_d$r;
#end
    // After the last step, reloads the last: compilers sink a conditional load to its use.
    let next_turn = min(turn + 1u, TURNS - 1u);
    let to = next_turn * SUBGROUPS + own_subgroup;
    let whole = next_turn * SUBGROUPS * 4u * GROUP_WORDS;
    let more = select((min(to * 4u + own_block, BLOCKS - 1u) - first_block) * GROUP_WORDS, whole, WHOLE);
#repeat r 4
    next_even$r = w[at$r + more + 1u + own_word];
    next_odd$r = w[at$r + more + ODD_WORD + own_word];
    next_d$r = w[at$r + more][own_word >> 1u];
#end
    let exists = WHOLE || wanted * 4u + own_block < BLOCKS;
    // The second factor is stored divided by 16, as other formats need it.
    let by_low = select(0.0, bitcast<f32>(along.x) * CODE_UNIT, exists);
    let by_high = select(0.0, bitcast<f32>(along.y) * (16.0 * CODE_UNIT), exists);
#repeat r 4
    {
        var a = 0x4b400000;
        var b = 0x4b400000;
#repeat p 4
        a += dot4I8Packed(even_codes(even$r[$p]), low[$p]);
        b += dot4I8Packed(odd_codes(odd$r[$p]), high[$p]);
#end
        let first = (bitcast<f32>(a) - 12582912.0) * (f16_low(d$r) * by_low);
        sum$r_0 += first + (bitcast<f32>(b) - 12582912.0) * (f16_low(d$r >> 16u) * by_high);
    }
#end
}
#end
}
#import prequant_exchange
