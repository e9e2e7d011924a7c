// take_along: y[r, j] = x[r, ids[r, j]] for elements of 4 bytes. x [rows, cols], ids and y
// [rows, count]. An id outside the row gives zero.
// Work split: one thread an element. Why: it is bound by memory.
const WG: u32 = 256u;

struct Params {
    rows: u32,
    cols: u32,
    count: u32,
    x_offset: u32,
    ids_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = (wid.y * grid.x + wid.x) * WG + lid;
    if (i >= params.rows * params.count) {
        return;
    }
    let id = ids[params.ids_offset + i];
    var value = 0u;
    if (id < params.cols) {
        value = x[params.x_offset + i / params.count * params.cols + id];
    }
    y[params.y_offset + i] = value;
}
