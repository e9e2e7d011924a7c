// argsort: y[r, ..] = the columns of each run of `run` columns of x[r, ..] in the order of their
// elements, the lowest column first among equals, as u32. x [rows, cols] with a row stride, y
// [rows, cols]; run <= SIZE. `order` is 1 for descending, plus 2 for i32 or 4 for u32 in place of
// f32, whose NaN ranks above every number.
// Work split: one workgroup per run, which is sorted in workgroup memory by a bitonic network;
// `argsort_merge` joins the runs of longer rows.
// Why: a run is read and written once, and equal elements stay in order because the column is the
// lower part of the key.
override WG: u32 = 256;
override SIZE: u32 = 1024;

const_assert WG >= 32u && WG <= 256u && (WG & (WG - 1u)) == 0u;
const_assert SIZE >= 64u && SIZE <= 1024u && (SIZE & (SIZE - 1u)) == 0u;

struct Params {
    rows: u32,
    cols: u32,
    run: u32,
    order: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

#import sort_key

var<workgroup> keys: array<u32, SIZE>;
var<workgroup> columns: array<u32, SIZE>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let runs = (params.cols + params.run - 1u) / params.run;
    let task = wid.y * grid.x + wid.x;
    if (task >= params.rows * runs) {
        return;
    }
    let row = task / runs;
    let first = task % runs * params.run;
    let count = min(params.run, params.cols - first);
    let x_row = params.x_offset + row * params.x_stride + first;
    for (var i = lid; i < SIZE; i += WG) {
        var key = 0xffffffffu;
        // Behind every column, so that padding stays behind the largest key.
        var column = 0xffffffffu;
        if (i < count) {
            key = sort_key(x[x_row + i], params.order);
            column = first + i;
        }
        keys[i] = key;
        columns[i] = column;
    }
    workgroupBarrier();
    for (var block = 2u; block <= SIZE; block *= 2u) {
        for (var half = block / 2u; half > 0u; half /= 2u) {
            for (var pair = lid; pair < SIZE / 2u; pair += WG) {
                let low = 2u * pair - (pair & (half - 1u));
                let high = low + half;
                let a = keys[low];
                let b = keys[high];
                let c = columns[low];
                let d = columns[high];
                let after = a > b || (a == b && c > d);
                if (after == ((low & block) == 0u)) {
                    keys[low] = b;
                    keys[high] = a;
                    columns[low] = d;
                    columns[high] = c;
                }
            }
            workgroupBarrier();
        }
    }
    for (var i = lid; i < count; i += WG) {
        y[params.y_offset + row * params.cols + first + i] = columns[i];
    }
}
