// The sums of a matvec_codes_*: a thread takes units of its team's rows in turn. Part of its main.
// Why: nothing is known of the format but what dequant_* says.
for (var u = place.lid % TEAM; u < units; u += TEAM) {
#repeat r ROWS
    if (units > TEAM) {
        unit$r = load_unit(start$r, u, params.k);
    }
#end
    let stripe = u / (8u / RUN) * GROUPS;
#repeat q READS
#repeat i M
    let codes$i_$q = x[codes$i + u * READS + $qu];
#end
#repeat h GROUPS_OF_READ
    {
        let group = $qu * GROUPS_OF_READ + $hu;
        let block = stripe + group;
#repeat i M
        let d$i = bitcast<f32>(x[factors$i + block / CODE_LEN][block % CODE_LEN]);
        var all$i = 0;
#repeat r ROWS
        var part$r_$i = 0;
#end
#end
#repeat p RUN
        {
#repeat i M
            let x$i = codes$i_$q[$hu * RUN + $pu];
            if (BIASED) {
                all$i += dot4I8Packed(0x01010101u, x$i);
            }
#end
#repeat r ROWS
            let w$r = part_codes(unit$r, group * RUN + $pu);
#repeat i M
            part$r_$i += dot4I8Packed(w$r, x$i);
#end
#end
        }
#end
#repeat i M
        let offset$i = d$i * f32(all$i);
#end
#repeat r ROWS
        let scale$r = group_scale(unit$r, group);
        let bias$r = group_bias(unit$r, group);
#repeat i M
        sum$r_$i += (d$i * scale$r) * f32(part$r_$i);
        if (BIASED) {
            sum$r_$i += bias$r * offset$i;
        }
#end
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
