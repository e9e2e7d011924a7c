// conv2d: direct convolution: y[b, o, i, j] = sum over c, u, v of w[o, c, u, v] * x[b,
// group * in_c / groups + c, i * stride_h - pad_top + u * dilation_h, j * stride_w - pad_left +
// v * dilation_w], zero outside x. x [batch, in_c, in_h, in_w], w
// [out_c, in_c / groups, kernel_h, kernel_w], y [batch, out_c, out_h, out_w].
// Work split: one thread per output, workgroups of 64 folded over grid x and y.
// Why: the portable baseline, without a workspace; neighbours share weights and cache lines of x.
const WG: u32 = 64u;
const OWN_READS: u32 = 2u;

struct Params {
    batch: u32,
    in_c: u32,
    in_h: u32,
    in_w: u32,
    out_c: u32,
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
    groups: u32,
    x_offset: u32,
    w_offset: u32,
    y_offset: u32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;

fn sizes() -> vec2<u32> {
    return vec2(params.out_h, params.out_w);
}

#import fusion_x
#import fusion_store

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let e = (wid.y * grid.x + wid.x) * WG + lid;
    if (e >= params.batch * params.out_c * params.out_h * params.out_w) {
        return;
    }
    let j = e % params.out_w;
    let i = (e / params.out_w) % params.out_h;
    let o = (e / params.out_w / params.out_h) % params.out_c;
    let b = e / params.out_w / params.out_h / params.out_c;
    let channels = params.in_c / params.groups;
    let group = o / (params.out_c / params.groups);
    // The first plane of x.
    let plane = b * params.in_c + group * channels;
    let x_start = params.x_offset + plane * params.in_h * params.in_w;
    let w_start = params.w_offset + o * channels * params.kernel_h * params.kernel_w;
    var sum = 0.0;
    for (var u = 0u; u < params.kernel_h; u++) {
        // A row above x wraps to a large number, so one comparison checks both sides.
        let row = i * params.stride_h + u * params.dilation_h - params.pad_top;
        if (row >= params.in_h) {
            continue;
        }
        for (var v = 0u; v < params.kernel_w; v++) {
            let col = j * params.stride_w + v * params.dilation_w - params.pad_left;
            if (col >= params.in_w) {
                continue;
            }
            for (var c = 0u; c < channels; c++) {
                let value = x[x_start + (c * params.in_h + row) * params.in_w + col];
                sum += w[w_start + (c * params.kernel_h + u) * params.kernel_w + v]
                    * prologue(plane + c, row * params.in_w + col, value);
            }
        }
    }
    store(b * params.out_c + o, i, j, sum);
}
