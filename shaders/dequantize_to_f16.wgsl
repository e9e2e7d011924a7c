// dequantize_to_f16_*: dequantises a weight to f16 for GEMM: y[r, c] = w[r, c]. w [n, k], k a multiple
// of 32, y [k / 32, n, 32]: 32 columns of all rows, then the next 32. plain: y is [n, k].
// Work split: one thread per 8 neighbouring weights, workgroups of WG folded over grid x and y.
// Why: matmul_f16_coop reads each weight once per tile of rows of x; decoding it each time costs
// more. Its reads of 32 columns of neighbouring rows are contiguous in y, which saves 7% of the time of
// a prompt on an H200 through wgpu.
// units: for formats with units of 32 weights. A thread decodes 8 neighbours of each group and
// reads the header once: prompts of Llama-8B 19% faster on an H200 through CUDA, 3% through wgpu.
#import dequant_*

override WG: u32 = 256;
#ifdef units
// Threads per unit.
const SHARES: u32 = RUN / 2u;
const_assert UNIT_LEN == 32u && GROUPS * RUN == PARTS;
#endif

struct Params {
    n: u32,
    k: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

// Stores eight weights of a row.
fn put(row: u32, part: u32, low: vec4<f32>, high: vec4<f32>) {
#ifdef plain
    let to = row * (params.k / 8u) + part;
#else
    let to = ((part / 4u) * params.n + row) * 4u + part % 4u;
#endif
    y[to] = vec4(
        pack2x16float(low.xy),
        pack2x16float(low.zw),
        pack2x16float(high.xy),
        pack2x16float(high.zw),
    );
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let e = (wid.y * grid.x + wid.x) * WG + lid;
#ifdef units
    let each = params.k / UNIT_LEN * SHARES;
    let row = e / each;
    if (row >= params.n) {
        return;
    }
    let unit = (e % each) / SHARES;
    let first = 2u * (e % SHARES);
    let loaded = load_unit(row_start(row, params.k), unit, params.k);
#repeat g GROUPS
    {
        let part = $gu * RUN + first;
        put(row, part_column(unit, part) / 8u, part_weights(loaded, part), part_weights(loaded, part + 1u));
    }
#end
#else
    let each = params.k / 8u;
    let row = e / each;
    if (row >= params.n) {
        return;
    }
    // A multiple of 8 below 2^28, visible to the compiler, so that both calls share one decoded
    // scale.
    let part = e % each;
    let column = (part * 8u) & 0x0ffffff8u;
    let start = row_start(row, params.k);
    put(row, part, weights4(start, column, params.k), weights4(start, column + 4u, params.k));
#endif
}
