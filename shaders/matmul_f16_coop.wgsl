// matmul_f16_coop: f16 tensor-core GEMM, optionally split-K: y[i, r] = sum over c of
// w[r, c] * x[i, c]. w [n, k] f16 in dequantize_to_f16_*'s layout (plain: row-major), x [m, k] f16 in
// quantize_to_f16's, y f32 with row stride y_stride. y must have room for complete tiles: elements past
// m and n are written. Sums are f32. Each of SPLITS ranges of k (grid z) writes its own y, one
// after the other.
// Work split: a workgroup of WI x WJ subgroups computes BM x BN of y, BK columns at a time; a
// subgroup computes TI x TJ tiles of 16 x 16. Threads stage vec4s of both operands in workgroup
// memory.
// Why: 64 x 64 per subgroup keeps the tensor cores busy; a row stride of 40 f16 has the fewest bank
// conflicts. STEPS steps are unrolled, since accumulators are copied in each loop iteration.
// Two workgroups per core hide latency. Epilogues run in a separate launch (split_k_reduce).
enable f16;
enable wgpu_cooperative_matrix;

override TI: u32 = 4;
override TJ: u32 = 4;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup; all subgroups have this size.
override SUB: u32 = 32;
// Steps per loop turn: k is a multiple of 32 * STEPS * SPLITS.
override STEPS: u32 = 1;
override SPLITS: u32 = 1;

const THREADS: u32 = WI * WJ * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TJ * 16u;
const BK: u32 = 32u;
// Row stride of a tile in vec4s: 32 f16 and 8 of padding.
const STRIDE: u32 = 10u;
// Tile rows written by all threads at once, and the maximum vec4s that a thread loads per step.
const PASS_ROWS: u32 = THREADS / 8u;
const X_LOADS: u32 = (BM * 8u + THREADS - 1u) / THREADS;
const W_LOADS: u32 = (BN * 8u + THREADS - 1u) / THREADS;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    y_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> x_tile: array<vec4<f16>, BM * STRIDE>;
var<workgroup> w_tile: array<vec4<f16>, BN * STRIDE>;
// 16 bytes, so that the variables after it stay 16-byte aligned, as cooperative matrices require.
// Loads from elsewhere give wrong values, without an error.
var<workgroup> working: vec4<u32>;

#import tile_row

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Consecutive workgroups take the same rows of w, so that memory is read once.
    let group = wid.y * grid.x + wid.x;
    let first_i = group % grid.y * BM;
    let first_j = group / grid.y * BN;
    // Read through workgroup memory so that uniformity is provable, as cooperative matrices
    // require.
    if (lid == 0u) {
        working = vec4(select(0u, 1u, first_i < params.m && first_j < params.n));
    }
    if (workgroupUniformLoad(&working).x == 0u) {
        return;
    }
    let subgroup = lid / SUB;
    let own_i = subgroup / WJ * (TI * 16u);
    let own_j = subgroup % WJ * (TJ * 16u);
    // Row and step strides of w, in vec4s.
#ifdef plain
    let w_row = params.k / 4u;
    let w_step = 8u;
#else
    let w_row = 8u;
    let w_step = params.n * 8u;
#endif
    // Where this thread reads both operands, and where it writes both tiles.
    let own_row = tile_row(lid);
    let to_tile = own_row * STRIDE + lid % 8u;
#repeat t X_LOADS
    let x_at$t = min(first_i + min(own_row + $tu * PASS_ROWS, BM - 1u), params.m - 1u) * 8u + lid % 8u;
#end
#repeat t W_LOADS
    let w_at$t = min(first_j + min(own_row + $tu * PASS_ROWS, BN - 1u), params.n - 1u) * w_row + lid % 8u;
#end
#repeat i TI
#repeat j TJ
    var sum$i_$j: coop_mat16x16<f32, C>;
#end
#end
    // The steps of this split.
    let each = params.k / BK / SPLITS;
    let begin = wid.z * each;
    for (var turn = begin; turn < begin + each; turn += STEPS) {
#repeat u STEPS
        {
            let step = turn + $uu;
#repeat t X_LOADS
            let xs$t = x[x_at$t + step * params.m * 8u];
#end
#repeat t W_LOADS
            let ws$t = w[w_at$t + step * w_step];
#end
            workgroupBarrier();
#repeat t X_LOADS
            if ((BM * 8u) % THREADS == 0u || own_row + $tu * PASS_ROWS < BM) {
                x_tile[to_tile + $tu * PASS_ROWS * STRIDE] = xs$t;
            }
#end
#repeat t W_LOADS
            if ((BN * 8u) % THREADS == 0u || own_row + $tu * PASS_ROWS < BN) {
                w_tile[to_tile + $tu * PASS_ROWS * STRIDE] = ws$t;
            }
#end
            workgroupBarrier();
#repeat s 2
            {
#repeat i TI
                let a$i = coopLoadT<coop_mat16x16<f16, A>>(
                    &x_tile[(own_i + $iu * 16u) * STRIDE + $su * 4u], STRIDE);
#end
#repeat j TJ
                {
                    let b = coopLoad<coop_mat16x16<f16, B>>(
                        &w_tile[(own_j + $ju * 16u) * STRIDE + $su * 4u], STRIDE);
#repeat i TI
                    sum$i_$j = coopMultiplyAdd(a$i, b, sum$i_$j);
#end
                }
#end
            }
#end
        }
#end
    }
    let stride = params.y_stride;
    let to = (wid.z * grid.y * BM + first_i + own_i) * stride + first_j + own_j;
#repeat i TI
#repeat j TJ
    let at$i_$j = to + $iu * 16u * stride + $ju * 16u;
    coopStoreT(sum$i_$j, &y[at$i_$j], stride);
#end
#end
}
