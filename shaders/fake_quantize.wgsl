// fake_quantize: quantise and dequantise: y[r, c] = x[r, c] rounded to 8 bits in blocks of 32 columns,
// as base::ComputeMode::Int8 defines, as f32. x [rows, cols] with a row stride, y [rows, cols],
// cols a multiple of 32.
// Work split: one thread per block; workgroups folded over grid x and y.
// Why: serves products that do not quantise their activations themselves.
#import rounding

override WG: u32 = 64;

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
    @builtin(local_invocation_index) lid: u32,
) {
    let block = (wid.y * grid.x + wid.x) * WG + lid;
    let blocks = params.cols / 32u;
    if (block >= params.rows * blocks) {
        return;
    }
    let row = block / blocks;
    let start = params.x_offset + row * params.x_stride + (block - row * blocks) * 32u;
    let to = params.y_offset + block * 32u;
    var most = 0u;
#repeat j 8
    let i$j = start + $ju * 4u;
    let v$j = vec4(x[i$j], x[i$j + 1u], x[i$j + 2u], x[i$j + 3u]);
    most = max(most, most_of(v$j));
#end
    let r = rounding(most);
#repeat j 8
    let q$j = round(v$j * r.x) * r.y;
    y[to + $ju * 4u] = q$j.x;
    y[to + $ju * 4u + 1u] = q$j.y;
    y[to + $ju * 4u + 2u] = q$j.z;
    y[to + $ju * 4u + 3u] = q$j.w;
#end
}
