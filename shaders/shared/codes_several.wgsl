// The sums of a matvec_codes_* of eight rows of x in planes (codes_place) where subgroups have 32 lanes: four rows of w
// a team, of any format whose units are two groups of 16 neighbours. Part of its main, behind codes_begin.
// Work split: a step is 32 units of four rows; a subgroup of a team takes every SUBGROUPS-th. A lane decodes a unit of
// each row of w, and multiplies it with the codes of one row of x after another, which it reads 16 bytes at a time with
// what goes along. In the end lanes exchange sums, and each is left with one of them.
// Why: what is decoded serves eight rows, and what is read of x four; lanes that add each sum for themselves spend on
// that as long as on a step of products. Whole numbers begin at the bits of 1.5 * 2^23, so that none is converted.
// Registers count, of which sums and codes take 64: with weights of the next step on their way 67 MB of Q4_K took 74 us
// through Vulkan on an H100, without 62; codes_units took 76, timestamps around the launch included in each.
#repeat i M
let low_at$i = (codes$i + own_subgroup * 64u + lane) & NEAR;
let along_at$i = (codes$i + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
#end
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = (turn * SUBGROUPS + own_subgroup) * 32u + lane;
    let exists = WHOLE || wanted < UNITS;
    // Of the subgroup's first step.
    let further = select(min(turn * SUBGROUPS + own_subgroup, STEPS - 1u) - own_subgroup, turn * SUBGROUPS, WHOLE);
#repeat r 4
    let unit$r = load_unit(start$r, select(min(wanted, UNITS - 1u), wanted, WHOLE), K);
#end
#repeat r 4
#repeat p 4
    let low$r_$p = part_codes(unit$r, $pu);
    let high$r_$p = part_codes(unit$r, $pu + 4u);
#end
    let by_low$r = group_scale(unit$r, 0u);
    // What goes along has the factors of the others over 16.
    let by_high$r = 16.0 * group_scale(unit$r, 1u);
    let bias$r = group_bias(unit$r, lane & 1u);
#end
#repeat i M
    {
        let low = x[low_at$i + further * 64u];
        let high = x[low_at$i + further * 64u + 32u];
        // Behind the last unit lies whatever was there.
        let along = select(vec4<f32>(), bitcast<vec4<f32>>(x[along_at$i + further * 32u]), vec4(exists));
#repeat r 4
        {
            var a = 0x4b400000;
            var b = 0x4b400000;
#repeat p 4
            a += dot4I8Packed(low$r_$p, low[$p]);
            b += dot4I8Packed(high$r_$p, high[$p]);
#end
            sum$r_$i += (bitcast<f32>(a) - 12582912.0) * (by_low$r * along.x);
            sum$r_$i += (bitcast<f32>(b) - 12582912.0) * (by_high$r * along.y);
            if (BIASED) {
                sum$r_$i += bias$r * along.w;
            }
        }
#end
    }
#end
}
let of_upper = vec4((lane & 16u) != 0u);
let of_second = vec2((lane & 8u) != 0u);
let of_odd = (lane & 4u) != 0u;
#repeat r 4
let lower$r = vec4(sum$r_0, sum$r_1, sum$r_2, sum$r_3);
let upper$r = vec4(sum$r_4, sum$r_5, sum$r_6, sum$r_7);
let four$r = select(lower$r, upper$r, of_upper) + subgroupShuffleXor(select(upper$r, lower$r, of_upper), 16u);
let two$r = select(four$r.xy, four$r.zw, of_second) + subgroupShuffleXor(select(four$r.zw, four$r.xy, of_second), 8u);
let one$r = select(two$r.x, two$r.y, of_odd) + subgroupShuffleXor(select(two$r.y, two$r.x, of_odd), 4u);
#end
let far = (lane & 2u) != 0u;
let near = (lane & 1u) != 0u;
let even = select(one0, one2, far) + subgroupShuffleXor(select(one2, one0, far), 2u);
let odd = select(one1, one3, far) + subgroupShuffleXor(select(one3, one1, far), 2u);
let own = select(even, odd, near) + subgroupShuffleXor(select(odd, even, near), 1u);
partial[place.subgroup * SUMS + (lane & 3u) * M + (lane >> 2u)] = own;
