// Generic inner loop of matvec_prequant_*: a thread takes units of its team's rows in turn, and
// multiplies each with every row of x. Part of main.
// Why: uses only what dequant_* defines of a format. One row of x is finished before the next is
// loaded, so that many rows need few registers. Accumulators start at the bits of 1.5 * 2^23, which
// avoids conversions. A block's scaled sum of codes follows the scales; the first of the threads
// that share the block uses it.
for (var u = place.lid % TEAM; u < units; u += TEAM) {
#repeat r ROWS
    if (units > TEAM) {
        unit$r = load_unit(start$r, u, params.k);
    }
#end
    let stripe = u / (8u / RUN) * GROUPS;
    let takes_sums = u % (8u / RUN) == 0u;
#repeat q READS
#repeat h GROUPS_OF_READ
#repeat r ROWS
#repeat p RUN
    let w$r_$q_$h_$p = part_codes(unit$r, ($qu * GROUPS_OF_READ + $hu) * RUN + $pu);
#end
    let scale$r_$q_$h = group_scale(unit$r, $qu * GROUPS_OF_READ + $hu);
    let bias$r_$q_$h = group_bias(unit$r, $qu * GROUPS_OF_READ + $hu);
#end
#end
#end
#repeat i M
#repeat q READS
    {
        let codes = x[codes$i + u * READS + $qu];
#repeat h GROUPS_OF_READ
        {
            let block = stripe + $qu * GROUPS_OF_READ + $hu;
            let d = bitcast<f32>(x[factors$i + block / CODE_LEN][block % CODE_LEN]);
            var offset = 0.0;
            if (BIASED && BIASED_EVENLY) {
                let sum = bitcast<f32>(x[sums$i + block / CODE_LEN][block % CODE_LEN]);
                offset = select(0.0, sum, takes_sums);
            }
            if (BIASED && !BIASED_EVENLY) {
                var all = 0x4b400000;
#repeat p RUN
                all += dot4I8Packed(0x01010101u, codes[$hu * RUN + $pu]);
#end
                offset = d * (bitcast<f32>(all) - 12582912.0);
            }
#repeat r ROWS
            {
                var part = 0x4b400000;
#repeat p RUN
                part += dot4I8Packed(w$r_$q_$h_$p, codes[$hu * RUN + $pu]);
#end
                sum$r_$i += (d * scale$r_$q_$h) * (bitcast<f32>(part) - 12582912.0);
                if (BIASED) {
                    sum$r_$i += bias$r_$q_$h * offset;
                }
            }
#end
        }
#end
    }
#end
#end
}
#repeat r ROWS
#repeat i M
put($ru * M + $iu, sum$r_$i, place);
#end
#end
