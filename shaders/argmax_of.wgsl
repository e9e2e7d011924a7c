// argmax_of: second pass of argmax: y[r] = the lowest c of the largest x[r, c] among columns
// s * len + candidates[r, s], as u32. NaN ranks above every number. x [rows, cols] with a row
// stride, candidates [rows, slices] from argmax over slices of len columns, y [rows]. token: as in
// argmax.
// Work split: one workgroup per row, one thread per WG-th candidate, then a tree.
// Why: one workgroup is slow on a row of a large vocabulary; argmax over slices fills the device.
override WG: u32 = 64;

const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    rows: u32,
    slices: u32,
    len: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> candidates: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

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
    var best = Best(0u, 0xffffffffu);
    for (var s = lid; s < params.slices; s += WG) {
        let c = s * params.len + min(candidates[row * params.slices + s], params.len - 1u);
        best = better(best, Best(ordered(x[params.x_offset + row * params.x_stride + c]), c));
    }
    bests[lid] = best;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (lid < half) {
            bests[lid] = better(bests[lid], bests[lid + half]);
        }
        workgroupBarrier();
    }
    if (lid == 0u) {
        y[params.y_offset + row] = word_of(bests[0]);
    }
}
