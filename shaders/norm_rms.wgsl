// norm_rms: RMS norm: y[r, c] = x[r, c] / sqrt(mean over c of x[r, c]^2 + eps) * weight[c]. x
// [rows, cols] with a row stride, weight [cols], y [rows, cols].
// Work split: one workgroup per row, threads over columns with eight loads in flight; two passes.
// Why: the second pass hits the cache, and rows of any length need no workgroup memory.
#import block

override WG: u32 = 128;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    w_offset: u32,
    y_offset: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let row = wid.y * grid.x + wid.x;
    if (row >= params.rows) {
        return;
    }
    let x_row = params.x_offset + row * params.x_stride;
    let y_row = params.y_offset + row * params.cols;
    var sum = 0.0;
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        sum += select(0.0, x$j * x$j, c$j < params.cols);
#end
    }
    let mean = block_sum(sum, place) / f32(params.cols);
    let factor = 1.0 / sqrt(mean + params.eps);
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
        let w$j = weight[params.w_offset + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        if (c$j < params.cols) {
            y[y_row + c$j] = x$j * factor * w$j;
        }
#end
    }
}
