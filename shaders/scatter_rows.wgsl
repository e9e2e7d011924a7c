// scatter_rows: y[rows[i], c] = x[i, c]. x [count, cols] with a row stride, rows [count] i32, y
// [size, cols], 4-byte words. A row outside y is dropped.
// Work split: one workgroup per 256 columns of a row, a thread copies every 64th of them.
// Why: accesses are coalesced, and few rows still fill many workgroups.
const WG: u32 = 64u;

struct Params {
    count: u32,
    size: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    rows_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = wid.z * grid.y + wid.y;
    if (i >= params.count) {
        return;
    }
    // A negative row becomes large, and is also outside.
    let row = rows[params.rows_offset + i];
    if (row >= params.size) {
        return;
    }
    let start = params.x_offset + i * params.x_stride;
    let to = params.y_offset + row * params.cols;
    for (var j = 0u; j < 4u; j++) {
        let c = wid.x * 4u * WG + j * WG + lid;
        if (c < params.cols) {
            y[to + c] = x[start + c];
        }
    }
}
