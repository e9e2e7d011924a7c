// pool2d_*: y[b, c, i, j] = maximum or mean of x[b, c, ..] under the window at (i, j). x
// [batch, channels, in_h, in_w], y [batch, channels, out_h, out_w]. Positions outside x are
// skipped.
// Work split: one thread per output, workgroups of 64 folded over grid x and y.
// Why: windows are small; the operation (identity, combine, finish) is imported.
#import pool2d_*

const WG: u32 = 64u;

struct Params {
    batch: u32,
    channels: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    count_pad: u32,
    x_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let e = (wid.y * grid.x + wid.x) * WG + lid;
    if (e >= params.batch * params.channels * params.out_h * params.out_w) {
        return;
    }
    let j = e % params.out_w;
    let i = (e / params.out_w) % params.out_h;
    let plane = e / params.out_w / params.out_h;
    let x_start = params.x_offset + plane * params.in_h * params.in_w;
    var value = identity();
    var count = 0u;
    for (var u = 0u; u < params.kernel_h; u++) {
        // A row above x wraps to a large number, so one comparison checks both sides.
        let row = i * params.stride_h + u * params.dilation_h - params.pad_top;
        if (row >= params.in_h) {
            continue;
        }
        for (var v = 0u; v < params.kernel_w; v++) {
            let col = j * params.stride_w + v * params.dilation_w - params.pad_left;
            if (col < params.in_w) {
                value = combine(value, x[x_start + row * params.in_w + col]);
                count += 1u;
            }
        }
    }
    y[params.y_offset + e] = finish(value, count);
}
