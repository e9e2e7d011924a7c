// The sums of a matvec_codes_* of eight blocks of 32 part by part (q4_0x8, q8_0x8) where subgroups have 32 lanes: one
// row of x in planes (codes_place), four rows of w a team. Part of its main, behind codes_begin.
// Work split: a step is four groups of four rows; a subgroup of a team takes every SUBGROUPS-th. A lane multiplies 16
// codes of an even block and 16 of the odd one behind it, of each row, and reads what both stand for as one word. What
// the next step reads of w is asked for before this one is multiplied. In the end lanes exchange sums.
// Why: each read is of neighbours, 16 bytes of them. Whole numbers begin at the bits of 1.5 * 2^23, so that none is
// converted; codes are signed bytes, so that nothing is subtracted for all of a block.
let low_at = (codes0 + own_subgroup * 64u + lane) & NEAR;
let along_at = (codes0 + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
for (var base = 0u; base < TURNS; base += UNROLL) {
#repeat t UNROLL
{
    let turn = base + $tu;
    let wanted = turn * SUBGROUPS + own_subgroup;
    // Of the subgroup's first step.
    let further = select(min(wanted, STEPS - 1u) - own_subgroup, turn * SUBGROUPS, WHOLE);
    let low = x[low_at + further * 64u];
    let high = x[low_at + further * 64u + 32u];
    let along = x[along_at + further * 32u];
#repeat r 4
    let even$r = next_even$r;
    let odd$r = next_odd$r;
    let d$r = next_d$r;
#end
    // Behind the last one the last one again: compilers move what is asked for under a condition to where it is used.
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
    // Of the others over 16, as codes meet them elsewhere.
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
        let first = (bitcast<f32>(a) - 12582912.0) * (half_low(d$r) * by_low);
        sum$r_0 += first + (bitcast<f32>(b) - 12582912.0) * (half_low(d$r >> 16u) * by_high);
    }
#end
}
#end
}
#import codes_exchange
