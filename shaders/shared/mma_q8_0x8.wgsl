// Inner loop of matvec_mma_q8_0x8. Part of main, after mma_begin_q8_0x8.
// Work split: as in Q4_K, except that even and odd blocks have separate, signed bytes.
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = turn * SUBGROUPS + own_subgroup;
    let block = min(wanted, GROUPS_OF_ROW - 1u);
#repeat r 2
    let header$r = select(vec4<u32>(), next_header$r, vec4(wanted < GROUPS_OF_ROW));
#repeat h 2
    let q$r_$h_0 = next_even$r_$h;
    let q$r_$h_1 = next_odd$r_$h;
#end
#end
    // After the last turn, reloads the last: compilers sink a conditional load to its use.
    let further = min(min(turn + 1u, TURNS - 1u) * SUBGROUPS + own_subgroup, GROUPS_OF_ROW - 1u);
#repeat r 2
    let at$r = ((start$r + further) * GROUP_WORDS) & NEAR;
    next_header$r = w[at$r];
#repeat h 2
    next_even$r_$h = w[at$r + 1u + 4u * $hu + own_unit];
    next_odd$r_$h = w[at$r + ODD_WORD + 4u * $hu + own_unit];
#end
#end
    let prequant_at = (codes + block * 128u) & NEAR;
    let by_at = (factors + block * 16u) & NEAR;
#repeat h 2
    {
        // Scales of four blocks, of both rows of x.
        let by0 = bitcast<vec4<f32>>(x[by_at + 8u * $hu]);
        let by1 = bitcast<vec4<f32>>(x[by_at + 8u * $hu + 4u]);
        let c0 = x[prequant_at + 64u * $hu];
        let c1 = x[prequant_at + 64u * $hu + 32u];
#repeat s 2
        {
#repeat r 2
            let kept$r = select(q$r_$h_$s.xy, q$r_$h_$s.zw, late);
            let got$r = subgroupShuffleXor(select(q$r_$h_$s.zw, q$r_$h_$s.xy, late), 1u);
            let words$r_0 = select(kept$r, got$r, late);
            let words$r_1 = select(got$r, kept$r, late);
#end
#repeat l 2
            {
                let first_half = vec2(words0_$l.x, words1_$l.x);
                let second_half = vec2(words0_$l.y, words1_$l.y);
                let made = multiply_half(first_half, c$l[2u * $su], begin);
                let sum = whole(multiply_half(second_half, c$l[2u * $su + 1u], made));
                let d0 = f16_low(header0[2u * $hu + $lu] >> (16u * $su));
                let d1 = f16_low(header1[2u * $hu + $lu] >> (16u * $su));
                let by = vec4(by0[2u * $lu + $su], by1[2u * $lu + $su], by0[2u * $lu + $su], by1[2u * $lu + $su]);
                sums += vec4(d0, d0, d1, d1) * (sum * by);
            }
#end
        }
#end
    }
#end
}
