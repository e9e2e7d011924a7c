// top_k: y[r, j] = the column of the j-th largest x[r, c], the lowest column first among equals, as
// u32. NaN ranks above every number. x [rows, cols] with a row stride, y [rows, k], k <= cols.
// Work split: one workgroup per row and k rounds; each finds the best element after the one of the
// round before, threads over columns, then a tree.
// Why: nothing of x is kept or written, so that rows and k are of any length. Routers have a few
// hundred columns and a k of 8 or so.
override WG: u32 = 128;

const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
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
) {
    let row = wid.y * grid.x + wid.x;
    if (row >= params.rows) {
        return;
    }
    let x_row = params.x_offset + row * params.x_stride;
    // The largest key of all; the index before the first wraps to it.
    var last = Best(0xffffffffu, 0xffffffffu);
    for (var j = 0u; j < params.k; j++) {
        var best = Best(0u, 0xffffffffu);
        for (var c = lid; c < params.cols; c += WG) {
            let next = Best(ordered(x[x_row + c]), c);
            // What was not taken in an earlier round.
            if (next.key < last.key || (next.key == last.key && next.index + 1u > last.index + 1u)) {
                best = better(best, next);
            }
        }
        bests[lid] = best;
        workgroupBarrier();
        for (var half = WG / 2u; half > 0u; half /= 2u) {
            if (lid < half) {
                bests[lid] = better(bests[lid], bests[lid + half]);
            }
            workgroupBarrier();
        }
        last = bests[0];
        if (lid == 0u) {
            y[params.y_offset + row * params.k + j] = word_of(last);
        }
        workgroupBarrier();
    }
}
