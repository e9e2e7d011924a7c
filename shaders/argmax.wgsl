// argmax: y[r] = the lowest c of the largest x[r, c], as u32. NaN ranks above every number. x
// [rows, cols] with a row stride, y [rows]. token: a non-finite maximum is encoded in y[r]
// (shared/best).
// Work split: one workgroup per row, threads over columns with eight loads in flight; then a tree,
// or subgroup reductions and a short scan.
// Why: floats are compared as integers in a total order, so infinities, NaN and ties do not depend
// on the driver.
override WG: u32 = 256;

const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

#import best

var<workgroup> bests: array<Best, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
#ifdef subgroup
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
#endif
) {
    let row = wid.y * grid.x + wid.x;
    if (row >= params.rows) {
        return;
    }
    let x_row = params.x_offset + row * params.x_stride;
    var best = Best(0u, 0xffffffffu);
    for (var c = lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = min(c + $ju * WG, params.cols - 1u);
        let x$j = x[x_row + c$j];
#end
        // Clamping may read the last column several times, which does not change the result.
#repeat j 8
        best = better(best, Best(ordered(x$j), c$j));
#end
    }
#ifdef subgroup
    let key = subgroupMax(best.key);
    let index = subgroupMin(select(0xffffffffu, best.index, best.key == key));
    if (lane == 0u) {
        bests[subgroup] = Best(key, index);
    }
    workgroupBarrier();
    if (lid == 0u) {
        best = bests[0];
        for (var i = 1u; i < min(subgroups, WG); i++) {
            best = better(best, bests[i]);
        }
    }
#else
    bests[lid] = best;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (lid < half) {
            bests[lid] = better(bests[lid], bests[lid + half]);
        }
        workgroupBarrier();
    }
    best = bests[0];
#endif
    if (lid == 0u) {
        y[params.y_offset + row] = word_of(best);
    }
}
