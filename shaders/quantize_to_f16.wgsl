// quantize_to_f16: activation quantisation for tensor cores: x[r, c] rounded to 8 bits in blocks of 32
// columns, as base::ComputeMode::Int8 defines, then stored as f16: y[r, c] = rounded / factors[r].
// factors[r] is a power of two that puts a row's largest value below 2^15. x [rows, cols] with a
// row stride, y [cols / 32, rows, 32] as in dequantize_to_f16_*, cols a multiple of 32 and at most K.
// halves: only the rounding to f16. plain: y is [rows, cols].
// norm: fused RMS norm: rounds x times the norm's weight, and divides the row's factor by the root
// mean square of x, which does not change the rounding.
// vec4: x_offset, x_stride and the offset of the norm's weight are multiples of 4.
// Work split: one workgroup per row, folded over the grid; four neighbouring columns per thread,
// eight threads per block. Values stay in registers.
// Why: matmul_coop_* reads y often, as f16 without a conversion. The factor keeps rows of any
// magnitude in the range of f16 and is exact.
#import f16_row_scale
#import rounding

override WG: u32 = 256;
override K: u32 = 1024;

const OWN_READS: u32 = 2u;
const PARTIAL: bool = false;
// Turns of the workgroup over a row.
const TURNS: u32 = (K / 4u + WG - 1u) / WG;
// Subgroups have at least 8 threads.
const MAX_SUBGROUPS: u32 = (WG + 7u) / 8u;

struct Params {
    rows: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
#import fusion_params
}

override ATTACHED: u32 = 0;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> factors: array<f32>;

#ifdef vec4
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;

fn load_x(start: u32, c: u32) -> vec4<f32> {
    return x[(start + c) >> 2u];
}
#else
@group(0) @binding(1) var<storage, read> x: array<f32>;

fn load_x(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    return vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}
#endif

// Word index of the four columns from 4 q of a row.
fn place_of(row: u32, q: u32) -> u32 {
#ifdef plain
    return row * (params.k / 2u) + q * 2u;
#else
    return (q / 8u * params.rows + row) * 16u + q % 8u * 2u;
#endif
}

// Four columns rounded, times `by`; `most` is this thread's largest magnitude, as bits.
fn rounded_times(v: vec4<f32>, most: u32, by: f32) -> vec4<f32> {
#ifdef halves
    return v * by;
#else
    // The maximum of 32 columns, which eight neighbouring threads hold.
    let pair = max(most, subgroupShuffleXor(most, 1u));
    let four = max(pair, subgroupShuffleXor(pair, 2u));
    let r = rounding(max(four, subgroupShuffleXor(four, 4u)));
    return round(v * r.x) * (r.y * by);
#endif
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
    let start = params.x_offset + row * params.x_stride;
    let quads = min(params.k, K) / 4u;
    var own_squares = 0.0;
    var most = 0u;
#repeat t TURNS
    let q$t = $tu * WG + place.lid;
    var v$t = load_x(start, min(q$t, quads - 1u) * 4u);
#end
#repeat t TURNS
    if (q$t >= quads) {
        v$t = vec4<f32>();
    }
#ifdef norm
    own_squares += dot(v$t, v$t);
    v$t *= norm_weight(min(q$t, quads - 1u) * 4u);
#endif
    let most$t = most_of(v$t);
    most = max(most, most$t);
#end
    let whole = f16_row_scale(place, most, own_squares);
    var scale = 1.0;
#ifdef norm
    scale = 1.0 / sqrt(whole.squares / f32(params.k) + params.norm_eps);
#endif
    if (place.lid == 0u) {
        factors[row] = whole.factor * scale;
    }
#repeat t TURNS
    let made$t = rounded_times(v$t, most$t, whole.by);
    if (q$t < quads) {
        let to = place_of(row, q$t);
        y[to] = pack2x16float(made$t.xy);
        y[to + 1u] = pack2x16float(made$t.zw);
    }
#end
}
