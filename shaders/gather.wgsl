// gather: y[o, j, i] = x[o, ids[j], i] for 4-byte elements. x [outer, axis_len, inner], ids
// [count], y [outer, count, inner]. An id outside the axis gives zeros.
// Work split: one thread per element of y, workgroups of 256 folded over grid x and y.
// Why: writes are coalesced, as are reads if inner is large. Bits are copied, never computed.
const WG: u32 = 256u;

struct Params {
    outer: u32,
    axis_len: u32,
    inner: u32,
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
    let e = (wid.y * grid.x + wid.x) * WG + lid;
    if (e >= params.outer * params.count * params.inner) {
        return;
    }
    let i = e % params.inner;
    let j = (e / params.inner) % params.count;
    let o = e / params.inner / params.count;
    let id = ids[params.ids_offset + j];
    var value = 0u;
    if (id < params.axis_len) {
        value = x[params.x_offset + (o * params.axis_len + id) * params.inner + i];
    }
    y[params.y_offset + e] = value;
}
