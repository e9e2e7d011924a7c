// softmax: y[r, c] = exp(x[r, c] - max) / sum over c of exp(x[r, c] - max), max of row r. x
// [rows, cols] with a row stride, y [rows, cols]. A row of only -inf gives zeros.
// Work split: one workgroup per row, threads over columns with eight loads in flight; three passes.
// Why: the maximum starts at the lowest finite number, so -inf - max is -inf and never NaN.
#import block

override WG: u32 = 128;

const LOWEST: f32 = -3.4028234e38;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
    var mine = LOWEST;
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        mine = max(mine, x$j);
#end
    }
    let largest = block_max(mine, place);
    var sum = 0.0;
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        sum += select(0.0, exp(x$j - largest), c$j < params.cols);
#end
    }
    let total = block_sum(sum, place);
    // The sum is at least 1, or 0 if every element is -inf.
    let factor = select(1.0 / total, 0.0, total == 0.0);
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        if (c$j < params.cols) {
            y[y_row + c$j] = exp(x$j - largest) * factor;
        }
#end
    }
}
