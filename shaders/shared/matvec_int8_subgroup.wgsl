// matvec_int8_* with subgroups: a thread rounds its unit's columns of x for ROWS rows of w; the
// 8 / RUN neighbours that share a block of 32 columns find its maximum together.
// Assumes that neighbours in a workgroup are neighbours in a subgroup: WGSL does not promise it,
// but every tested driver does for one-dimensional workgroups, and `doctor` detects one that does
// not.
// Why: no barrier before the products, and x stays in registers. PASSES is 1.
const_assert PASSES == 1u;

// The maximum of 32 columns, which 8 / RUN neighbouring threads hold.
fn most_of_block(most: u32) -> u32 {
    var all = max(most, subgroupShuffleXor(most, 1u));
    if (RUN == 2u) {
        all = max(all, subgroupShuffleXor(all, 2u));
    }
    return all;
}

fn code4(v: vec4<f32>, by: f32) -> u32 {
    // The low bits of 1.5 * 2^23 + n are those of n.
    return pack4xI8(bitcast<vec4<i32>>(v * by + vec4(12582912.0)));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let task = task_of(wid.y * grid.x + wid.x);
    let first_i = wid.z * M;
    if (!exists(task) || first_i >= params.m) {
        return;
    }
#repeat r ROWS
    let start$r = row_start(row_of(task, $ru), params.k);
#repeat i M
    var sum$r_$i = 0.0;
#end
#end
#repeat i M
    let i$i = min(first_i + $iu, params.m - 1u);
    let x_start$i = params.x_offset + i$i * params.x_stride;
    var squares$i = 0.0;
#end
    let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
    // Weights are constant, so the loads of the first AHEAD turns overlap with the previous launch.
#repeat s AHEAD
    let first_u$s = min($su * WG + place.lid, max(units, 1u) - 1u);
#repeat r ROWS
    var unit$s_$r = load_unit(start$r, first_u$s, params.k);
#end
#ifdef norm
#repeat g GROUPS
#repeat p RUN
    var gain$s_$g_$p = norm_weight(part_column(first_u$s, $gu * RUN + $pu));
#end
#end
#endif
#end
    // Epilogue operands of a one-row product are loaded early.
    let count = evaluations(task) * M;
    var fetched = Fetched();
    if (M == 1u && place.lid < count) {
        fetched = fetch(task, place.lid, first_i);
    }
    for (var base = 0u; base < units; base += AHEAD * WG) {
#repeat s AHEAD
        let inside$s = base + $su * WG + place.lid < units;
        let u$s = min(base + $su * WG + place.lid, units - 1u);
        if (base > 0u) {
#repeat r ROWS
            unit$s_$r = load_unit(start$r, u$s, params.k);
#end
#ifdef norm
#repeat g GROUPS
#repeat p RUN
            gain$s_$g_$p = norm_weight(part_column(u$s, $gu * RUN + $pu));
#end
#end
#endif
        }
#end
#repeat i M
#repeat s AHEAD
#repeat g GROUPS
        var most$i_$s_$g = 0u;
#repeat p RUN
        let c$i_$s_$g_$p = part_column(u$s, $gu * RUN + $pu);
        var x$i_$s_$g_$p = prologue4(i$i, c$i_$s_$g_$p, load_x(x_start$i, c$i_$s_$g_$p));
#end
#end
#end
#repeat s AHEAD
#repeat g GROUPS
#repeat p RUN
#ifdef norm
        squares$i += select(0.0, dot(x$i_$s_$g_$p, x$i_$s_$g_$p), inside$s);
        x$i_$s_$g_$p *= gain$s_$g_$p;
#endif
        most$i_$s_$g = max(most$i_$s_$g, most_of(x$i_$s_$g_$p));
#end
#end
#end
#repeat s AHEAD
#repeat g GROUPS
        {
            let r = rounding(most_of_block(most$i_$s_$g));
            let d = select(0.0, r.y, inside$s);
            var all = 0;
#repeat p RUN
            let c$p = code4(x$i_$s_$g_$p, r.x);
            if (BIASED) {
                all += dot4I8Packed(0x01010101u, c$p);
            }
#end
#repeat r ROWS
            {
                var part = 0;
#repeat p RUN
                part += dot4I8Packed(part_codes(unit$s_$r, $gu * RUN + $pu), c$p);
#end
                var product = group_scale(unit$s_$r, $gu) * f32(part);
                if (BIASED) {
                    product += group_bias(unit$s_$r, $gu) * f32(all);
                }
                sum$r_$i += d * product;
            }
#end
        }
#end
#end
#end
    }

#repeat r ROWS
#repeat i M
    put($ru * M + $iu, sum$r_$i, place);
#end
#end
#ifdef norm
#repeat i M
    put(OUTPUTS + $iu, squares$i, place);
#end
#endif
    workgroupBarrier();
    reduce_sums(place);
    for (var o = place.lid; o < count; o += WG) {
        if (M > 1u || o >= WG) {
            fetched = fetch(task, o / M, first_i + o % M);
        }
        let factor = scale(o % M, place);
        var second = 0.0;
        if (ANCHORS == 2u) {
            second = total(min(o + count, OUTPUTS - 1u), place) * factor;
        }
        finish(task, o / M, first_i + o % M, total(o, place) * factor, second, fetched);
    }
}
