// matvec_codes_*: the product of matvec_* with rows of x that round_codes rounded; w [n, k] packed, x as
// round_codes writes it, y [m, n], few rows i.
// Work split: a workgroup makes ROWS rows of w for M rows of x; its threads take units of the k columns
// in turn, so neighbours read neighbouring words, and their sums meet at the end.
// Why: a whole-number product of four takes one instruction where floats take a conversion and a product
// each; x is rounded once for all workgroups, and none waits for it.
#import dequant_*

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;

const OUTPUTS: u32 = ROWS * M;
const SUMS: u32 = OUTPUTS;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = ROWS;
// Reads of a unit's codes of x, and groups that one of them serves.
const READS: u32 = PARTS / CODE_LEN;
const GROUPS_OF_READ: u32 = CODE_LEN / RUN;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
#import attached_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read> x: array<CodeWords>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

#import attached_rows
#import matvec_sum

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
    // Everything below is spelled out: an array that a loop indexes may end up in slow memory. Rows past
    // the end repeat the last one and are not stored.
#repeat r ROWS
    let start$r = row_start(row_of(task, $ru), params.k);
#repeat i M
    var sum$r_$i = 0.0;
#end
#end
#repeat i M
    let codes$i = (params.x_offset + min(first_i + $iu, params.m - 1u) * params.x_stride) / CODE_LEN;
    let factors$i = codes$i + params.k / (4u * CODE_LEN);
#end

    let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
    for (var u = place.lid; u < units; u += WG) {
#repeat r ROWS
        let unit$r = load_unit(start$r, u, params.k);
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
    workgroupBarrier();
    settle(place);
    let count = evaluations(task) * M;
    for (var o = place.lid; o < count; o += WG) {
        var second = 0.0;
        if (ANCHORS == 2u) {
            second = total(min(o + count, OUTPUTS - 1u), place);
        }
        store(task, o / M, first_i + o % M, total(o, place), second);
    }
}
