// softmax
// softmax: y[r, c] = exp(x[r, c] - max) / sum over c of exp(x[r, c] - max), max of row r. x
// [rows, cols] with a row stride, y [rows, cols]. A row of only -inf gives zeros.
// Work split: one workgroup per row, threads over columns with eight loads in flight; three passes.
// Why: the maximum starts at the lowest finite number, so -inf - max is -inf and never NaN.
// Workgroup reductions: s = sum over threads of v, m = max over threads of v. Needs WG, a power of
// two of 4 to 256. All threads must call, and all get the result.
// Work split: with subgroups, one value per subgroup passes through workgroup memory; else a tree.
// Why: two barriers for any subgroup size from 4; the baseline needs no feature.
const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Place {
    @builtin(local_invocation_index) lid: u32,
}

var<workgroup> block_scratch: array<f32, WG>;

fn block_sum(value: f32, place: Place) -> f32 {
    block_scratch[place.lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (place.lid < half) {
            block_scratch[place.lid] += block_scratch[place.lid + half];
        }
        workgroupBarrier();
    }
    let total = block_scratch[0];
    workgroupBarrier();
    return total;
}

fn block_max(value: f32, place: Place) -> f32 {
    block_scratch[place.lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (place.lid < half) {
            block_scratch[place.lid] = max(block_scratch[place.lid], block_scratch[place.lid + half]);
        }
        workgroupBarrier();
    }
    let largest = block_scratch[0];
    workgroupBarrier();
    return largest;
}

const WG: u32 = 128;

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
        let c0 = c + 0u * WG;
        let x0 = x[x_row + min(c0, params.cols - 1u)];
        let c1 = c + 1u * WG;
        let x1 = x[x_row + min(c1, params.cols - 1u)];
        let c2 = c + 2u * WG;
        let x2 = x[x_row + min(c2, params.cols - 1u)];
        let c3 = c + 3u * WG;
        let x3 = x[x_row + min(c3, params.cols - 1u)];
        let c4 = c + 4u * WG;
        let x4 = x[x_row + min(c4, params.cols - 1u)];
        let c5 = c + 5u * WG;
        let x5 = x[x_row + min(c5, params.cols - 1u)];
        let c6 = c + 6u * WG;
        let x6 = x[x_row + min(c6, params.cols - 1u)];
        let c7 = c + 7u * WG;
        let x7 = x[x_row + min(c7, params.cols - 1u)];
        mine = max(mine, x0);
        mine = max(mine, x1);
        mine = max(mine, x2);
        mine = max(mine, x3);
        mine = max(mine, x4);
        mine = max(mine, x5);
        mine = max(mine, x6);
        mine = max(mine, x7);
    }
    let largest = block_max(mine, place);
    var sum = 0.0;
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
        let c0 = c + 0u * WG;
        let x0 = x[x_row + min(c0, params.cols - 1u)];
        let c1 = c + 1u * WG;
        let x1 = x[x_row + min(c1, params.cols - 1u)];
        let c2 = c + 2u * WG;
        let x2 = x[x_row + min(c2, params.cols - 1u)];
        let c3 = c + 3u * WG;
        let x3 = x[x_row + min(c3, params.cols - 1u)];
        let c4 = c + 4u * WG;
        let x4 = x[x_row + min(c4, params.cols - 1u)];
        let c5 = c + 5u * WG;
        let x5 = x[x_row + min(c5, params.cols - 1u)];
        let c6 = c + 6u * WG;
        let x6 = x[x_row + min(c6, params.cols - 1u)];
        let c7 = c + 7u * WG;
        let x7 = x[x_row + min(c7, params.cols - 1u)];
        sum += select(0.0, exp(x0 - largest), c0 < params.cols);
        sum += select(0.0, exp(x1 - largest), c1 < params.cols);
        sum += select(0.0, exp(x2 - largest), c2 < params.cols);
        sum += select(0.0, exp(x3 - largest), c3 < params.cols);
        sum += select(0.0, exp(x4 - largest), c4 < params.cols);
        sum += select(0.0, exp(x5 - largest), c5 < params.cols);
        sum += select(0.0, exp(x6 - largest), c6 < params.cols);
        sum += select(0.0, exp(x7 - largest), c7 < params.cols);
    }
    let total = block_sum(sum, place);
    // The sum is at least 1, or 0 if every element is -inf.
    let factor = select(1.0 / total, 0.0, total == 0.0);
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
        let c0 = c + 0u * WG;
        let x0 = x[x_row + min(c0, params.cols - 1u)];
        let c1 = c + 1u * WG;
        let x1 = x[x_row + min(c1, params.cols - 1u)];
        let c2 = c + 2u * WG;
        let x2 = x[x_row + min(c2, params.cols - 1u)];
        let c3 = c + 3u * WG;
        let x3 = x[x_row + min(c3, params.cols - 1u)];
        let c4 = c + 4u * WG;
        let x4 = x[x_row + min(c4, params.cols - 1u)];
        let c5 = c + 5u * WG;
        let x5 = x[x_row + min(c5, params.cols - 1u)];
        let c6 = c + 6u * WG;
        let x6 = x[x_row + min(c6, params.cols - 1u)];
        let c7 = c + 7u * WG;
        let x7 = x[x_row + min(c7, params.cols - 1u)];
        if (c0 < params.cols) {
            y[y_row + c0] = exp(x0 - largest) * factor;
        }
        if (c1 < params.cols) {
            y[y_row + c1] = exp(x1 - largest) * factor;
        }
        if (c2 < params.cols) {
            y[y_row + c2] = exp(x2 - largest) * factor;
        }
        if (c3 < params.cols) {
            y[y_row + c3] = exp(x3 - largest) * factor;
        }
        if (c4 < params.cols) {
            y[y_row + c4] = exp(x4 - largest) * factor;
        }
        if (c5 < params.cols) {
            y[y_row + c5] = exp(x5 - largest) * factor;
        }
        if (c6 < params.cols) {
            y[y_row + c6] = exp(x6 - largest) * factor;
        }
        if (c7 < params.cols) {
            y[y_row + c7] = exp(x7 - largest) * factor;
        }
    }
}
