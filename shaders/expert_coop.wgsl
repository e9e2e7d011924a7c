// expert_coop_*: tensor-core GEMM with the matrices of chosen experts:
// y[p, r] = factors[p / share] * sum over c of w[ids[p], r, c] * x[p / share, c]. w [count, n, k]
// packed: experts first .. first + count of total; x [m, k] f16 and factors [m] in quantize_to_f16's
// layout; order and tiles from expert_groups with ROWS = BM; y [pairs, n]. A tile of other experts
// writes nothing; that of expert `total` gives zeros, written with first = 0.
// Work split: a workgroup per tile of pairs of one expert and BN rows of its matrix.
// Why: tiles of neighbouring pairs of an expert share its weights in the cache, and each weight is
// decoded once for BM pairs.
enable f16;
enable wgpu_cooperative_matrix;
#import dequant_*

struct Params {
    m: u32,
    n: u32,
    k: u32,
    share: u32,
    first: u32,
    count: u32,
    total: u32,
    y_offset: u32,
}

#import coop_tiling

@group(0) @binding(4) var<storage, read> order: array<u32>;
@group(0) @binding(5) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

var<workgroup> row_pairs: array<u32, BM>;

// Elements of two tiles per thread.
const LEAVES: u32 = 256u / SUB;

// Stores two tiles of a subgroup, half the workgroup's columns apart.
fn store_tile(rows: u32, subgroup: u32, lane: u32, first_r: u32, own_i: u32, own_j: u32) {
    workgroupBarrier();
    for (var side = 0u; side < 2u; side++) {
        let r = first_r + own_j + lane % 16u + side * (BN / 2u);
        for (var u = 0u; u < LEAVES; u++) {
            let row = lane / 16u + u * (SUB / 16u);
            let i = own_i + row;
            if (i < rows && r < params.n) {
                let sum = sums[(subgroup * 16u + row) * OUT_STRIDE + lane % 16u + side * 16u];
                y[params.y_offset + row_pairs[i] * params.n + r] = sum * row_factors[i];
            }
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = wid.y * grid.x + wid.x;
    let first_r = group / grid.y * BN;
    // Read through workgroup memory: cooperative matrices require provable uniformity. A workgroup
    // past the last row of w has no pairs.
    if (lid == 0u) {
        working = select(vec4<u32>(), tiles[group % grid.y], first_r < params.n);
    }
    let tile = workgroupUniformLoad(&working);
    let rows = tile.z - tile.y;
    if (rows == 0u) {
        return;
    }
    if (tile.x >= params.total && params.first == 0u) {
        for (var at = lid; at < rows * BN; at += THREADS) {
            let r = first_r + at % BN;
            if (r < params.n) {
                y[params.y_offset + order[tile.y + at / BN] * params.n + r] = 0.0;
            }
        }
    }
    // Also if it is below the first, since the difference wraps; `||` would lose uniformity.
    if (tile.x - params.first >= params.count) {
        return;
    }
    for (var i = lid; i < BM; i += THREADS) {
        let pair = order[min(tile.y + i, tile.z - 1u)];
        row_pairs[i] = pair;
        row_factors[i] = factors[pair / params.share];
    }
#import coop_sums
    // Where this thread reads x; rows past the end repeat the last one and are not stored.
#repeat t X_LOADS
    let x_at$t = order[min(tile.y + own_row + $tu * PASS_ROWS, tile.z - 1u)] / params.share * 8u + lid % 8u;
#end
    let row = (tile.x - params.first) * params.n;
    var starts: array<u32, W_LOADS>;
    for (var t = 0u; t < W_LOADS; t++) {
        let own_r = first_r + min((t * THREADS + lid) / 2u, BN - 1u);
        starts[t] = row_start(row + min(own_r, params.n - 1u), params.k);
    }
#import coop_decode
    let to = subgroup * 16u * OUT_STRIDE;
#repeat i TI
#repeat j TH
    coopStoreT(low$i_$j, &sums[to], OUT_STRIDE);
    coopStoreT(high$i_$j, &sums[to + 16u], OUT_STRIDE);
    store_tile(rows, subgroup, lid % SUB, first_r, own_i + $iu * 16u, own_j + $ju * 16u);
#end
#end
}
