// Inner loop of matvec_mma_q6_kx8. Part of main, after mma_begin_q6_kx8.
// Work split: a subgroup takes a chunk of 128 columns of 16 rows per turn; a lane reads word t of
// each of four units, and the low bits and scales of all. Scales are per 16 columns, so tiles are
// 16 deep.
for (var turn = 0u; turn < TURNS; turn++) {
    let wanted = turn * SUBGROUPS + own_subgroup;
    let chunk = min(wanted, CHUNKS - 1u);
#repeat r 2
    let d$r = select(0u, next_d$r, wanted < CHUNKS);
#repeat s 2
    let pairs$r_$s = next_pairs$r_$s;
    let scales$r_$s = next_scales$r_$s;
#repeat h 2
    let q$r_$h_$s = next$r_$h_$s;
#end
#end
#end
    // After the last turn, reloads the last: compilers sink a conditional load to its use.
    let further = min(min(turn + 1u, TURNS - 1u) * SUBGROUPS + own_subgroup, CHUNKS - 1u);
    let n = further % 16u * 2u;
#repeat r 2
    let at$r = (start$r + further / 16u * 105u) & NEAR;
    next_d$r = w[at$r + 104u][n / 8u];
#repeat s 2
    next_pairs$r_$s = w[at$r + 64u + n + $su];
    next_scales$r_$s = w[at$r + 96u + n / 4u][(n + $su) % 4u];
#repeat h 2
    next$r_$h_$s = w[at$r + 32u * $hu + n + $su][t];
#end
#end
#end
    // Of two neighbouring blocks of 32, and of two more 1,024 columns further.
    let pair = chunk / 16u * 32u + chunk % 16u;
    let prequant_at = (codes + pair * 32u) & NEAR;
    let by_at = (factors + pair / 2u * 8u) & NEAR;
    let later = pair % 2u == 1u;
#repeat h 2
    {
        // Of two pairs of blocks, of which this is one.
        let four0 = bitcast<vec4<f32>>(x[by_at + 64u * $hu]);
        let four1 = bitcast<vec4<f32>>(x[by_at + 64u * $hu + 4u]);
        let by0 = select(four0.xy, four0.zw, later);
        let by1 = select(four1.xy, four1.zw, later);
        let c = x[prequant_at + 512u * $hu];
#repeat r 2
        let quarter$r = quarter_d(d$r, $hu);
#end
#repeat b 2
        {
            var made = vec4<f32>();
#repeat s 2
            {
#repeat r 2
                let a$r = select(
                    lower_codes(q$r_$h_$s, pairs$r_$s[2u * $hu + $bu], t),
                    upper_codes(q$r_$h_$s, pairs$r_$s[2u * $hu + $bu], t),
                    $bu == 1u,
                );
                let scale$r = quarter$r * signed_byte(scales$r_$s, 16u * $hu + 8u * $bu);
#end
                let sum = whole(multiply_half(vec2(a0, a1), c[2u * $bu + $su], begin));
                made += sum * vec4(scale0, scale0, scale1, scale1);
            }
#end
            sums += made * vec4(by0[$bu], by1[$bu], by0[$bu], by1[$bu]);
        }
#end
    }
#end
}
