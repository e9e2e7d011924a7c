// softmax
// softmax: y[r, c] = exp(x[r, c] - max) / sum over c of exp(x[r, c] - max), max of row r. x
// [rows, cols] with a row stride, y [rows, cols]. A row of only -inf gives zeros.
// Work split: that of row_passes: the maximum, the sum, the store.
// Why: the maximum starts at the lowest finite number, so -inf - max is -inf and never NaN.
const WG: u32 = 128;

const PASSES: u32 = 2u;
const FIRST: f32 = -3.4028234e38;

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

fn first(value: f32, v: f32) -> f32 {
    return max(value, v);
}

fn first_total(value: f32, place: Place) -> f32 {
    return block_max(value, place);
}

fn second(v: f32, largest: f32) -> f32 {
    return exp(v - largest);
}

fn second_total(value: f32, place: Place) -> f32 {
    let total = block_sum(value, place);
    // The sum is at least 1, or 0 if every element is -inf.
    return select(1.0 / total, 0.0, total == 0.0);
}

fn operands(c: u32) -> f32 {
    return 0.0;
}

fn output(v: f32, operands: f32, largest: f32, factor: f32) -> f32 {
    return exp(v - largest) * factor;
}

// Skeleton of the row reductions (softmax, norm_rms, norm_layer): up to two reductions of row r, then a
// store of each element. The importer declares WG, Params (rows, cols, x_offset, x_stride, y_offset), x, y
// and
//   PASSES: 1 or 2 reductions; FIRST: the value that the first one starts with;
//   first(value, v): v folded into it; first_total(value, place): the row's result a;
//   second(v, a): the summand of the second; second_total(value, place): the row's result b;
//   operands(c): what output needs of column c; output(v, operands, a, b): the element of y.
// Work split: one workgroup per row, threads over columns with eight loads in flight.
// Why: later passes hit the cache, and rows of any length need no workgroup memory.
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
    var value = FIRST;
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
        value = select(value, first(value, x0), c0 < params.cols);
        value = select(value, first(value, x1), c1 < params.cols);
        value = select(value, first(value, x2), c2 < params.cols);
        value = select(value, first(value, x3), c3 < params.cols);
        value = select(value, first(value, x4), c4 < params.cols);
        value = select(value, first(value, x5), c5 < params.cols);
        value = select(value, first(value, x6), c6 < params.cols);
        value = select(value, first(value, x7), c7 < params.cols);
    }
    let a = first_total(value, place);
    var b = 0.0;
    if (PASSES == 2u) {
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
            sum += select(0.0, second(x0, a), c0 < params.cols);
            sum += select(0.0, second(x1, a), c1 < params.cols);
            sum += select(0.0, second(x2, a), c2 < params.cols);
            sum += select(0.0, second(x3, a), c3 < params.cols);
            sum += select(0.0, second(x4, a), c4 < params.cols);
            sum += select(0.0, second(x5, a), c5 < params.cols);
            sum += select(0.0, second(x6, a), c6 < params.cols);
            sum += select(0.0, second(x7, a), c7 < params.cols);
        }
        b = second_total(sum, place);
    }
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
        let c0 = c + 0u * WG;
        let x0 = x[x_row + min(c0, params.cols - 1u)];
        let operands0 = operands(min(c0, params.cols - 1u));
        let c1 = c + 1u * WG;
        let x1 = x[x_row + min(c1, params.cols - 1u)];
        let operands1 = operands(min(c1, params.cols - 1u));
        let c2 = c + 2u * WG;
        let x2 = x[x_row + min(c2, params.cols - 1u)];
        let operands2 = operands(min(c2, params.cols - 1u));
        let c3 = c + 3u * WG;
        let x3 = x[x_row + min(c3, params.cols - 1u)];
        let operands3 = operands(min(c3, params.cols - 1u));
        let c4 = c + 4u * WG;
        let x4 = x[x_row + min(c4, params.cols - 1u)];
        let operands4 = operands(min(c4, params.cols - 1u));
        let c5 = c + 5u * WG;
        let x5 = x[x_row + min(c5, params.cols - 1u)];
        let operands5 = operands(min(c5, params.cols - 1u));
        let c6 = c + 6u * WG;
        let x6 = x[x_row + min(c6, params.cols - 1u)];
        let operands6 = operands(min(c6, params.cols - 1u));
        let c7 = c + 7u * WG;
        let x7 = x[x_row + min(c7, params.cols - 1u)];
        let operands7 = operands(min(c7, params.cols - 1u));
        if (c0 < params.cols) {
            y[y_row + c0] = output(x0, operands0, a, b);
        }
        if (c1 < params.cols) {
            y[y_row + c1] = output(x1, operands1, a, b);
        }
        if (c2 < params.cols) {
            y[y_row + c2] = output(x2, operands2, a, b);
        }
        if (c3 < params.cols) {
            y[y_row + c3] = output(x3, operands3, a, b);
        }
        if (c4 < params.cols) {
            y[y_row + c4] = output(x4, operands4, a, b);
        }
        if (c5 < params.cols) {
            y[y_row + c5] = output(x5, operands5, a, b);
        }
        if (c6 < params.cols) {
            y[y_row + c6] = output(x6, operands6, a, b);
        }
        if (c7 < params.cols) {
            y[y_row + c7] = output(x7, operands7, a, b);
        }
    }
}
