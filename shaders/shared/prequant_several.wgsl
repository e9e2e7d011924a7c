// Inner loop of matvec_prequant_* for eight rows of x in planes (prequant_layout) and 32-lane subgroups:
// four rows of w per team, any format whose units are two groups of 16 neighbours. Part of main,
// after prequant_begin.
// Work split: a step is 32 units of four rows; a subgroup takes every SUBGROUPS-th step. A lane
// decodes one unit per row of w and multiplies it with the codes of each row of x in turn, read 16
// bytes at a time with their factors. At the end lanes exchange sums, and each keeps one.
// Why: a decoded unit serves eight rows, a load of x four. Reducing each sum separately costs as
// much as a step of products. Accumulators start at the bits of 1.5 * 2^23, which avoids
// conversions. Register pressure limits: sums and codes take 64. 67 MB of Q4_K took 62 us on an
// H100 through Vulkan, 74 with weights prefetched and 76 with prequant_units, timestamps of the launch
// included.
#repeat i M
let low_at$i = (codes$i + own_subgroup * 64u + lane) & NEAR;
let along_at$i = (codes$i + STEPS * 64u + own_subgroup * 32u + lane) & NEAR;
#end
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = (turn * SUBGROUPS + own_subgroup) * 32u + lane;
    let exists = WHOLE || wanted < UNITS;
    // Relative to the subgroup's first step.
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
    // The stored factors of the second columns are divided by 16.
    let by_high$r = 16.0 * group_scale(unit$r, 1u);
    let bias$r = group_bias(unit$r, lane & 1u);
#end
#repeat i M
    {
        let low = x[low_at$i + further * 64u];
        let high = x[low_at$i + further * 64u + 32u];
        // Memory past the last unit may hold anything.
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
