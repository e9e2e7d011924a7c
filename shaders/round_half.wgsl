// round_half: x[r, c] rounded to 8 bits in blocks of 32 columns, as base::ComputeMode::Int8 says, then as f16 of
// y[r, c] = rounded / factors[r], a power of two that puts the largest of a row below 2^15; x [rows, cols] with a
// row stride, y [cols / 32, rows, 32] as half_weights_* orders it, cols a multiple of 32 and at most K.
// halves: rounded to an f16 alone. plain: y is [rows, cols].
// Work split: a workgroup a row, neighbouring threads read neighbouring columns, twice: for the largest of each
// block, and to round. Workgroups are folded over grid x and y.
// Why: matmul_coop_* reads y many times, as halves without a conversion; the factor keeps rows of any size within
// what an f16 holds, and is exact.
#import rounding

override WG: u32 = 256;
override K: u32 = 1024;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<storage, read_write> factors: array<f32>;

// The largest of each 32 as bits, and of the row.
#ifndef halves
var<workgroup> largest: array<atomic<u32>, K / 32u>;
#endif
var<workgroup> row_largest: atomic<u32>;

fn load_x(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    return vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}

// Where four columns from 4 q of a row go, in words.
fn place(row: u32, q: u32) -> u32 {
#ifdef plain
    return row * (params.cols / 2u) + q * 2u;
#else
    return (q / 8u * params.rows + row) * 16u + q % 8u * 2u;
#endif
}

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
    let start = params.x_offset + row * params.x_stride;
    let quads = min(params.cols, K) / 4u;
#ifndef halves
    for (var b = lid; b < K / 32u; b += WG) {
        atomicStore(&largest[b], 0u);
    }
#endif
    if (lid == 0u) {
        atomicStore(&row_largest, 0u);
    }
    workgroupBarrier();
    var most = 0u;
    for (var q = lid; q < quads; q += WG) {
        let bits = most_of(load_x(start, q * 4u));
#ifndef halves
        atomicMax(&largest[q / 8u], bits);
#endif
        most = max(most, bits);
    }
    atomicMax(&row_largest, most);
    workgroupBarrier();
    // 2^14 stands for the exponent of the largest. Rows below 2^-97 share the factor of 2^-111.
    let exponent = max(atomicLoad(&row_largest) >> 23u, 30u);
    let by = bitcast<f32>((268u - exponent) << 23u);
    if (lid == 0u) {
        factors[row] = bitcast<f32>((exponent - 14u) << 23u);
    }
    for (var q = lid; q < quads; q += WG) {
#ifdef halves
        let v = load_x(start, q * 4u) * by;
#else
        let r = rounding(atomicLoad(&largest[q / 8u]));
        let v = round(load_x(start, q * 4u) * r.x) * (r.y * by);
#endif
        let to = place(row, q);
        y[to] = pack2x16float(v.xy);
        y[to + 1u] = pack2x16float(v.zw);
    }
}
