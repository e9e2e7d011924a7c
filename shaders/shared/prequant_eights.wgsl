// Inner loop of matvec_prequant_q6_kx8 for 32-lane subgroups: one row of x in planes (prequant_layout),
// four rows of w per team. Part of main, after prequant_begin.
// Work split: a step is 2,048 columns; a subgroup takes every SUBGROUPS-th step. A lane multiplies
// units lane and 32 + lane of each row. The next step's weights are prefetched.
// Why: nothing is decoded twice, and loads are coalesced. Accumulators start at the bits of
// 1.5 * 2^23, which avoids conversions.
let low_at = (codes0 + own_subgroup * 128u + lane) & NEAR;
let along_at = (codes0 + STEPS * 128u + own_subgroup * 64u + lane) & NEAR;
// Relative to the subgroup's first step.
let begin = select(min(own_subgroup, STEPS - 1u) - own_subgroup, 0u, WHOLE);
#repeat h 2
var next_low$h = x[low_at + begin * 128u + 64u * $hu];
var next_high$h = x[low_at + begin * 128u + 64u * $hu + 32u];
var next_along$h = x[along_at + begin * 64u + 32u * $hu];
#end
for (var base = 0u; base < TURNS; base += UNROLL) {
#repeat t UNROLL
{
    let turn = base + $tu;
    let wanted = turn * SUBGROUPS + own_subgroup;
#repeat h 2
    let low$h = next_low$h;
    let high$h = next_high$h;
    let along$h = next_along$h;
#end
#repeat r 4
    let q$r_0 = next_first$r;
    let q$r_1 = next_second$r;
    let pairs$r = next_pairs$r;
    let scales$r = next_scales$r;
    let d$r = next_d$r;
#end
    // After the last step, reloads the last: compilers sink a conditional load to its use.
    let next = min(turn + 1u, TURNS - 1u) * SUBGROUPS;
    let more = select(min(next + own_subgroup, STEPS - 1u) - own_subgroup, next, WHOLE);
    let to = select(min(next + own_subgroup, STEPS - 1u) - first_step, next, WHOLE);
#repeat r 4
    next_first$r = w[at$r + to * 105u + lane];
    next_second$r = w[at$r + to * 105u + lane + 32u];
    next_pairs$r = w[at$r + to * 105u + lane + 64u];
    next_scales$r = w[at$r + to * 105u + 96u + lane / 4u][lane % 4u];
    next_d$r = w[at$r + to * 105u + 104u][lane / 8u];
#end
#repeat h 2
    next_low$h = x[low_at + more * 128u + 64u * $hu];
    next_high$h = x[low_at + more * 128u + 64u * $hu + 32u];
    next_along$h = x[along_at + more * 64u + 32u * $hu];
#end
    let exists = WHOLE || wanted < STEPS;
#repeat h 2
    // The second factor is stored divided by 16, for formats whose second codes are 16 times too
    // large.
    let by_low$h = select(0.0, bitcast<f32>(along$h.x), exists);
    let by_high$h = select(0.0, bitcast<f32>(along$h.y) * 16.0, exists);
#end
#repeat r 4
#repeat h 2
    {
        var a = 0x4b400000;
        var b = 0x4b400000;
#repeat p 4
        a += dot4I8Packed(lower_codes(q$r_$h[$p], pairs$r[2u * $hu], $pu), low$h[$p]);
        b += dot4I8Packed(upper_codes(q$r_$h[$p], pairs$r[2u * $hu + 1u], $pu), high$h[$p]);
#end
        let first = (bitcast<f32>(a) - 12582912.0) * (signed_byte(scales$r, 16u * $hu) * by_low$h);
        let second = (bitcast<f32>(b) - 12582912.0) * (signed_byte(scales$r, 16u * $hu + 8u) * by_high$h);
        sum$r_0 += quarter_d(d$r, $hu) * (first + second);
    }
#end
#end
}
#end
}
#import prequant_exchange
