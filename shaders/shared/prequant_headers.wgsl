// Inner loop of matvec_prequant_q4_k and q5_k for 32-lane subgroups: one row of x in planes
// (prequant_layout), four rows of w per team. Part of main, after prequant_begin.
// Work split: a step is four blocks of four rows; a subgroup takes every SUBGROUPS-th step. A lane
// multiplies 16 bytes of each row, and decodes four scales and four minima of one of the step's 16
// headers, two lanes per header. Minima are multiplied with the sums of codes of their columns;
// scales are shuffled to the lanes that need them. The next step's weights are prefetched; at the
// end lanes exchange sums.
// Why: decoding the header of each unit costs more than the products, and waiting for each step
// idles the memory. Accumulators start at the bits of 1.5 * 2^23, which avoids conversions. The
// high nibble of a Q4_K byte is used as the signed byte 16 * w - 128, one operation per four.
let low_at = (codes0 + own_subgroup * 64u + lane) & NEAR;
let along_at = (codes0 + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
let part_at = (factors0 + (params.k + 127u) / 128u + first_header * 2u + upper) & NEAR;
var minima = 0.0;
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
    let block = select(min(wanted * 4u + header_block, BLOCKS - 1u) - first_header, further * 4u, WHOLE);
    let part = bitcast<vec4<f32>>(x[part_at + block * 2u]);

#repeat r 4
    let q$r = next$r;
    let fifths$r = next_fifths$r;
#end
    let header = next_header;
    let lower_scales = header.y & 0x3f3f3f3fu;
    let upper_scales = (header.w & 0x0f0f0f0fu) | ((header.y >> 2u) & 0x30303030u);
    let lower_minima = header.z & 0x3f3f3f3fu;
    let upper_minima = ((header.w >> 4u) & 0x0f0f0f0fu) | ((header.z >> 2u) & 0x30303030u);
    let scales = select(lower_scales, upper_scales, upper == 1u);
    let mins = vec4<f32>(unpack4xU8(select(lower_minima, upper_minima, upper == 1u)));
    let d = f16_low(header.x);
    let minimum = f16_low(header.x >> 16u) * dot(mins, part);
    minima += select(0.0, minimum, WHOLE || wanted * 4u + header_block < BLOCKS);
    // After the last step, reloads the last: compilers sink a conditional load to its use.
    let next_turn = min(turn + 1u, TURNS - 1u);
    let to = next_turn * SUBGROUPS + own_subgroup;
    let whole = next_turn * SUBGROUPS * 4u * BLOCK_WORDS;
    let blocks = select((min(to * 4u + own_block, BLOCKS - 1u) - first_block) * BLOCK_WORDS, whole, WHOLE);
    let headers = select((min(to * 4u + header_block, BLOCKS - 1u) - first_header) * BLOCK_WORDS, whole, WHOLE);
#repeat r 4
    next$r = w[at$r + blocks];
    if (FIFTHS) {
        next_fifths$r = w[fifths_at$r + blocks];
    }
#end
    next_header = w[header_at + headers];
    let exists = WHOLE || wanted * 4u + own_block < BLOCKS;
    let by_low = select(0.0, bitcast<f32>(along.x), exists);
    let by_high = select(0.0, UPPER_UNIT * bitcast<f32>(along.y), exists);
    let begin = select(0x4b400000, bitcast<i32>(along.z), exists && !FIFTHS);
#repeat r 4
    {
        let holder = (lane >> 2u) + 8u * $ru;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        var a = 0x4b400000;
        var b = begin;
#repeat p 4
        a += dot4I8Packed(lower_codes(q$r[$p], fifths$r[$p] >> bit), low[$p]);
        b += dot4I8Packed(upper_codes(q$r[$p], fifths$r[$p] >> bit), high[$p]);
#end
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum$r_0 += by * (first + second);
    }
#end
}
#end
}
#repeat r 4
sum$r_0 -= select(0.0, minima, header_row == $ru);
#end
#import prequant_exchange
