// matvec_int8_* without subgroups: a workgroup rounds M rows of x into its memory, then computes
// PASSES times ROWS rows of w.
// Why: more passes share the rounding.
// The codes of x, and the scale of each 32.
var<workgroup> codes: array<u32, M * K / 4u>;
var<workgroup> factors: array<f32, M * K / 32u>;
// The largest magnitude of each 32, as bits.
var<workgroup> largest: array<atomic<u32>, M * K / 32u>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let first_i = wid.z * M;
    if (first_i >= params.m) {
        return;
    }
    for (var b = place.lid; b < M * (K / 32u); b += WG) {
        atomicStore(&largest[b], 0u);
    }
    workgroupBarrier();
    // Neighbouring threads take neighbouring columns, twice: for the maximum of each block, and to
    // round.
    let quads = params.k / 4u;
#repeat i M
    let i$i = min(first_i + $iu, params.m - 1u);
    let x_start$i = params.x_offset + i$i * params.x_stride;
    var squares$i = 0.0;
    for (var q = place.lid; q < quads; q += WG) {
        var v = prologue4(i$i, q * 4u, load_x(x_start$i, q * 4u));
#ifdef norm
        squares$i += dot(v, v);
        v *= norm_weight(q * 4u);
#endif
        atomicMax(&largest[$iu * (K / 32u) + q / 8u], most_of(v));
    }
#end
    workgroupBarrier();
#repeat i M
    for (var q = place.lid; q < quads; q += WG) {
        var v = prologue4(i$i, q * 4u, load_x(x_start$i, q * 4u));
#ifdef norm
        v *= norm_weight(q * 4u);
#endif
        let r = rounding(atomicLoad(&largest[$iu * (K / 32u) + q / 8u]));
        codes[$iu * (K / 4u) + q] = rounded4(v, r.x);
        if (q % 8u == 0u) {
            factors[$iu * (K / 32u) + q / 8u] = r.y;
        }
    }
#end
    workgroupBarrier();

    let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
    for (var turn = 0u; turn < PASSES; turn++) {
        let task = task_of((wid.y * grid.x + wid.x) * PASSES + turn);
        if (!exists(task)) {
            return;
        }
        // Unrolled: a dynamically indexed array may be placed in slow memory. Rows past the end
        // repeat the last one and are not stored.
#repeat r ROWS
        let start$r = row_start(row_of(task, $ru), params.k);
#repeat i M
        var sum$r_$i = 0.0;
#end
#end
        // Epilogue operands of a thread's first products are loaded early.
        let count = evaluations(task) * M;
        var fetched = Fetched();
        if (place.lid < count) {
            fetched = fetch(task, place.lid / M, first_i + place.lid % M);
        }
        for (var u = place.lid; u < units; u += WG) {
#repeat r ROWS
            let unit$r = load_unit(start$r, u, params.k);
#end
#repeat g GROUPS
            {
                let block = part_column(u, $gu * RUN) / 32u;
#repeat i M
                let d$i = factors[$iu * (K / 32u) + block];
                var all$i = 0;
#repeat r ROWS
                var part$r_$i = 0;
#end
#end
#repeat p RUN
                {
                    let c = part_column(u, $gu * RUN + $pu) / 4u;
#repeat i M
                    let x$i = codes[$iu * (K / 4u) + c];
                    if (BIASED) {
                        all$i += dot4I8Packed(0x01010101u, x$i);
                    }
#end
#repeat r ROWS
                    let w$r = part_codes(unit$r, $gu * RUN + $pu);
#repeat i M
                    part$r_$i += dot4I8Packed(w$r, x$i);
#end
#end
                }
#end
#repeat r ROWS
                let scale$r = group_scale(unit$r, $gu);
                let bias$r = group_bias(unit$r, $gu);
#repeat i M
                var product$r_$i = scale$r * f32(part$r_$i);
                if (BIASED) {
                    product$r_$i += bias$r * f32(all$i);
                }
                sum$r_$i += d$i * product$r_$i;
#end
#end
            }
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
            if (o >= WG) {
                fetched = fetch(task, o / M, first_i + o % M);
            }
            let factor = scale(o % M, place);
            var second = 0.0;
            if (ANCHORS == 2u) {
                second = total(min(o + count, OUTPUTS - 1u), place) * factor;
            }
            finish(task, o / M, first_i + o % M, total(o, place) * factor, second, fetched);
        }
        // The next pass reuses the memory of these sums.
        workgroupBarrier();
    }
}
