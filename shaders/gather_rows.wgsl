// gather_rows_*: embedding lookup with dequantisation: y[i, c] = table[ids[i], c]. table
// [rows, cols] packed, ids [count], y [count, cols]. An id outside the table gives zeros.
// Work split: one workgroup per 256 columns of a row, four neighbouring columns per thread.
// Why: four neighbours share a scale in every format, and writes are contiguous.
#import dequant_*

const WG: u32 = 64u;

struct Params {
    count: u32,
    rows: u32,
    cols: u32,
    ids_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> table: array<WeightWord>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn weight_word(i: u32) -> WeightWord {
    return table[i];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = wid.z * grid.y + wid.y;
    let c = (wid.x * WG + lid) * 4u;
    if (i >= params.count || c >= params.cols) {
        return;
    }
    let id = ids[params.ids_offset + i];
    var values = vec4(0.0);
    if (id < params.rows) {
        values = weights4(row_start(id, params.cols), c, params.cols);
    }
    let to = params.y_offset + i * params.cols;
    for (var j = 0u; j < 4u; j++) {
        if (c + j < params.cols) {
            y[to + c + j] = values[j];
        }
    }
}
