// Inner loop of matvec_mma_q4_k. Part of main, after mma_begin_q4_k.
// Work split: a subgroup takes a block of 256 columns of 16 rows per turn, in four pairs of
// sub-blocks. A lane reads complete 16-byte units and exchanges halves with its neighbour, so that
// it has eight columns of either sub-block of each pair.
// Why: L1 throughput is per cache line, and 4-byte loads would read each line four times. Codes of
// odd sub-blocks stay in place, 16 times too large; a block's scales are applied at its end.
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = turn * SUBGROUPS + own_subgroup;
    let block = min(wanted, BLOCKS - 1u);
#repeat r 2
    let header$r = next_header$r;
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
#repeat r 2
    let d$r = select(0.0, f16_low(header$r.x), wanted < BLOCKS);
    let dmin$r = select(0.0, f16_low(header$r.x >> 16u), wanted < BLOCKS);
    // Of sub-blocks 0 to 3, and of 4 to 7.
    let upper_scales$r = (header$r.w & 0x0f0f0f0fu) | ((header$r.y >> 2u) & 0x30303030u);
    let upper_minima$r = ((header$r.w >> 4u) & 0x0f0f0f0fu) | ((header$r.z >> 2u) & 0x30303030u);
    let scales$r_0 = vec4<f32>(unpack4xU8(header$r.y & 0x3f3f3f3fu));
    let scales$r_1 = vec4<f32>(unpack4xU8(upper_scales$r));
    let minima$r_0 = vec4<f32>(unpack4xU8(header$r.z & 0x3f3f3f3fu));
    let minima$r_1 = vec4<f32>(unpack4xU8(upper_minima$r));
#end
    // Of even sub-blocks, of odd ones, and of the minima.
    var scaled0 = vec4<f32>();
    var scaled1 = vec4<f32>();
    var least = vec4<f32>();
    let prequant_at = (codes + block * 128u) & NEAR;
    let by_at = (factors + block * 16u) & NEAR;
#repeat h 2
    {
        // Scales and scaled sums of four sub-blocks, of both rows of x.
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
                let scales = vec2(scales0_$h[2u * $lu + $su], scales1_$h[2u * $lu + $su]);
                let minima = vec2(minima0_$h[2u * $lu + $su], minima1_$h[2u * $lu + $su]);
                let by = vec4(by0[2u * $lu + $su], by1[2u * $lu + $su], by0[2u * $lu + $su], by1[2u * $lu + $su]);
                let all = vec4(all0[2u * $lu + $su], all1[2u * $lu + $su], all0[2u * $lu + $su], all1[2u * $lu + $su]);
                scaled$s += made * (scales.xxyy * by);
                least += minima.xxyy * all;
            }
#end
        }
#end
    }
#end
    let d = vec2(d0, d1).xxyy;
    sums += d * scaled0 + (d / 16.0) * scaled1 - vec2(dmin0, dmin1).xxyy * least;
}
