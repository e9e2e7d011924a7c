// The sums of a matvec_tiles_q4_k. Part of its main, behind tiles_begin_q4_k.
// Work split: a subgroup takes a block of 256 columns of 16 rows a turn, in four pairs of sub-blocks; a lane reads word
// t of each unit of 16 bytes, which has four columns of either sub-block.
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = turn * SUBGROUPS + place.subgroup;
    let block = min(wanted, BLOCKS - 1u);
#repeat r 2
    let header$r = next_header$r;
#repeat h 2
#repeat l 2
#repeat s 2
    let q$r_$h_$l_$s = next$r_$h_$l_$s;
#end
#end
#end
#end
    // Behind the last one the last one again: compilers move what is asked for under a condition to where it is used.
    let further = min(min(turn + 1u, TURNS - 1u) * SUBGROUPS + place.subgroup, BLOCKS - 1u);
#repeat r 2
    let at$r = ((start$r + further) * 9u) & NEAR;
    next_header$r = w[at$r];
#repeat h 2
#repeat l 2
#repeat s 2
    next$r_$h_$l_$s = w[at$r + 1u + 4u * $hu + 2u * $lu + $su][t];
#end
#end
#end
#end
#repeat r 2
    let d$r = select(0.0, half_low(header$r.x), wanted < BLOCKS);
    let dmin$r = select(0.0, half_low(header$r.x >> 16u), wanted < BLOCKS);
    // Of sub-blocks 0 to 3, and of 4 to 7.
    let upper_scales$r = (header$r.w & 0x0f0f0f0fu) | ((header$r.y >> 2u) & 0x30303030u);
    let upper_minima$r = ((header$r.w >> 4u) & 0x0f0f0f0fu) | ((header$r.z >> 2u) & 0x30303030u);
    let scales$r_0 = vec4<f32>(unpack4xU8(header$r.y & 0x3f3f3f3fu)) * d$r;
    let scales$r_1 = vec4<f32>(unpack4xU8(upper_scales$r)) * d$r;
    let minima$r_0 = vec4<f32>(unpack4xU8(header$r.z & 0x3f3f3f3fu)) * dmin$r;
    let minima$r_1 = vec4<f32>(unpack4xU8(upper_minima$r)) * dmin$r;
#end
    let codes_at = (codes + block * 32u) & NEAR;
    let by_at0 = (factors0 + block * 4u) & NEAR;
    let by_at1 = (factors1 + block * 4u) & NEAR;
    let all_at0 = (factors0 + padded + block * 4u) & NEAR;
    let all_at1 = (factors1 + padded + block * 4u) & NEAR;
#repeat h 2
#repeat l 2
    {
        // What codes of both sub-blocks stand for and add up to, of both rows of x.
        let by0 = bitcast<vec2<f32>>(x[by_at0 + 2u * $hu + $lu]);
        let by1 = bitcast<vec2<f32>>(x[by_at1 + 2u * $hu + $lu]);
        let all0 = bitcast<vec2<f32>>(x[all_at0 + 2u * $hu + $lu]);
        let all1 = bitcast<vec2<f32>>(x[all_at1 + 2u * $hu + $lu]);
        let words = vec4(q0_$h_$l_0, q1_$h_$l_0, q0_$h_$l_1, q1_$h_$l_1);
#repeat s 2
        {
            let c = x[codes_at + 16u * $hu + 8u * $lu + 4u * $su];
            let made = whole(multiply_codes((words >> vec4(4u * $su)) & vec4(0x0f0f0f0fu), c, begin));
            let scales = vec2(scales0_$h[2u * $lu + $su], scales1_$h[2u * $lu + $su]);
            let minima = vec2(minima0_$h[2u * $lu + $su], minima1_$h[2u * $lu + $su]);
            let by = vec4(by0[$su], by1[$su], by0[$su], by1[$su]);
            let all = vec4(all0[$su], all1[$su], all0[$su], all1[$su]);
            sums += made * (scales.xxyy * by);
            sums -= minima.xxyy * all;
        }
#end
    }
#end
#end
}
