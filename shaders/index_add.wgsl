// index_add: y[n, c] = x[n, c] + the sum of source[i, c] over all i with ids[i] = n. x and y [rows,
// cols], source [count, cols], ids [count]. An id outside y is dropped. PyTorch's index_add, and the
// gradient of a lookup.
// Work split: one workgroup per 256 columns of a row of y, which looks for its id in all of ids: each
// thread compares 32 of 2048 ids and publishes a bit for each, then all threads add the rows found.
// Why: no atomics on floats, which WGSL lacks, and the order of a sum is always that of i. Reading
// ids once a row costs little as long as rows are long.
const WG: u32 = 64u;

struct Params {
    rows: u32,
    cols: u32,
    count: u32,
    x_offset: u32,
    source_offset: u32,
    ids_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> source: array<f32>;
@group(0) @binding(3) var<storage, read> ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// Bit b of word t: whether id 32 t + b of the block is the row.
var<workgroup> found: array<u32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = wid.z * grid.y + wid.y;
    if (row >= params.rows) {
        return;
    }
    let first = wid.x * 4u * WG + lid;
    let start = params.x_offset + row * params.cols;
    var sums = vec4<f32>();
    for (var j = 0u; j < 4u; j++) {
        let c = first + j * WG;
        if (c < params.cols) {
            sums[j] = x[start + c];
        }
    }
    for (var block = 0u; block < params.count; block += 32u * WG) {
        var bits = 0u;
        for (var b = 0u; b < 32u; b++) {
            let i = block + lid * 32u + b;
            if (i < params.count && ids[params.ids_offset + i] == row) {
                bits |= 1u << b;
            }
        }
        found[lid] = bits;
        workgroupBarrier();
        for (var t = 0u; t < WG; t++) {
            var left = found[t];
            while (left != 0u) {
                let i = block + t * 32u + firstTrailingBit(left);
                left &= left - 1u;
                let from_row = params.source_offset + i * params.cols;
                for (var j = 0u; j < 4u; j++) {
                    let c = first + j * WG;
                    if (c < params.cols) {
                        sums[j] += source[from_row + c];
                    }
                }
            }
        }
        workgroupBarrier();
    }
    let to = params.y_offset + row * params.cols;
    for (var j = 0u; j < 4u; j++) {
        let c = first + j * WG;
        if (c < params.cols) {
            y[to + c] = sums[j];
        }
    }
}
