// Inner loop of matvec_mma_q4_0x8. Part of main, after mma_begin_q4_0x8.
// Work split: as in Q4_K. Codes of odd blocks stay in place, 16 times too large; the offset 8 is
// subtracted through the sums of codes of x.
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = turn * SUBGROUPS + own_subgroup;
    let block = min(wanted, BLOCKS - 1u);
#repeat r 2
    let header$r = select(vec4<u32>(), next_header$r, vec4(wanted < BLOCKS));
#repeat h 2
    let q$r_$h = next$r_$h;
#end
#end
    // After the last turn, reloads the last: compilers sink a conditional load to its use.
    let further = min(min(turn + 1u, TURNS - 1u) * SUBGROUPS + own_subgroup, BLOCKS - 1u);
#repeat r 2
    let at$r = ((start$r + further) * 9u) & NEAR;
    next_header$r = w[at$r];
#repeat h 2
    next$r_$h = w[at$r + 1u + 4u * $hu + own_unit];
#end
#end
    let prequant_at = (codes + block * 128u) & NEAR;
    let by_at = (factors + block * 16u) & NEAR;
#repeat h 2
    {
        // Scales and scaled sums of four blocks, of both rows of x.
        let by0 = bitcast<vec4<f32>>(x[by_at + 8u * $hu]);
        let by1 = bitcast<vec4<f32>>(x[by_at + 8u * $hu + 4u]);
        let all0 = bitcast<vec4<f32>>(x[by_at + sums_at + 8u * $hu]);
        let all1 = bitcast<vec4<f32>>(x[by_at + sums_at + 8u * $hu + 4u]);
#repeat r 2
        let kept$r = select(q$r_$h.xy, q$r_$h.zw, odd);
        let got$r = subgroupShuffleXor(select(q$r_$h.zw, q$r_$h.xy, odd), 1u);
        let words$r_0 = select(kept$r, got$r, odd);
        let words$r_1 = select(got$r, kept$r, odd);
#end
#repeat l 2
        {
            let c = x[prequant_at + 64u * $hu + 32u * $lu];
            let words = vec4(words0_$l.x, words1_$l.x, words0_$l.y, words1_$l.y);
#repeat s 2
            {
                let own = vec2(c[2u * $su], c[2u * $su + 1u]);
                let made = whole(mma_int8(words & vec4(0x0f0f0f0fu << (4u * $su)), own, begin));
                let d0 = f16_low(header0[2u * $hu + $lu] >> (16u * $su));
                let d1 = f16_low(header1[2u * $hu + $lu] >> (16u * $su));
                let by = vec4(by0[2u * $lu + $su], by1[2u * $lu + $su], by0[2u * $lu + $su], by1[2u * $lu + $su]);
                let all = vec4(all0[2u * $lu + $su], all1[2u * $lu + $su], all0[2u * $lu + $su], all1[2u * $lu + $su]);
                sums += vec4(d0, d0, d1, d1) * (made * (by * select(1.0, 0.0625, $su == 1u)) - 8.0 * all);
            }
#end
        }
#end
    }
#end
}
