// matmul_batched_coop: batched tensor-core GEMM of activations: y[b, i, j] = sum over c of
// a[b, i, c] * b[b, c, j]. a, b f16 with contiguous rows; y f32 (f16_y: f16); sums f32 (f16_accumulate:
// f16). Strides, offsets and n are multiples of 4, k of 32.
// Work split: a workgroup of WI x WJ subgroups computes BM x BN of y, 32 of k at a time; a subgroup
// computes TI x 2 TH tiles of 16 x 16. Grid x: tiles along, y: down, z: batches or fewer.
// Kin to CUTLASS's tensor-op GEMM: threadblock and warp tiles, register prefetch of the next k step.
// Why: 64 x 64 per subgroup keeps the tensor cores busy. Under 24 KiB of workgroup memory an H200
// holds two workgroups, so accumulators leave one tile at a time, as vec4s. STEPS steps are
// unrolled, since accumulators are copied in each loop turn. 4,096 squared on an H200, Tflop/s: 159
// with 28 KiB; 207, 259, 268 with one, two, four steps per turn. f16 sums halve the registers:
// 128 x 64 per subgroup, eight in a workgroup, reach 351 (64 x 64: 274; without prefetching the
// next step: 312).
enable f16;
enable wgpu_cooperative_matrix;

override TI: u32 = 4;
override TH: u32 = 2;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup; all subgroups have this size.
override SUB: u32 = 32;
// Steps per loop turn: k is a multiple of 32 * STEPS.
override STEPS: u32 = 1;

const SUBGROUPS: u32 = WI * WJ;
const THREADS: u32 = SUBGROUPS * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TH * 32u;
const BK: u32 = 32u;
// Row strides of the tiles in vec4s, with 8 f16 of padding.
const A_STRIDE: u32 = 10u;
const B_STRIDE: u32 = BN / 4u + 2u;
// vec4s that a thread loads per step.
const A_LOADS: u32 = BM * 8u / THREADS;
const B_LOADS: u32 = BN * 8u / THREADS;
const_assert BM * 8u % THREADS == 0u && BN * 8u % THREADS == 0u && THREADS % (BN / 4u) == 0u;
// Rows that all threads load at once, of a and of b.
const PASS_ROWS: u32 = THREADS / 8u;
const B_PASS_ROWS: u32 = THREADS / (BN / 4u);
// Row stride of the output stage in vec4s: a tile of 16 and padding.
const OUT_STRIDE: u32 = 5u;

struct Params {
    batch: u32,
    m: u32,
    n: u32,
    k: u32,
    a_offset: u32,
    a_batch_stride: u32,
    a_row_stride: u32,
    b_offset: u32,
    b_batch_stride: u32,
    b_row_stride: u32,
    y_offset: u32,
    y_batch_stride: u32,
    y_row_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f16>>;
#ifdef f16_y
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f16>>;
#else
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
#endif

var<workgroup> a_tile: array<vec4<f16>, BM * A_STRIDE>;
var<workgroup> b_tile: array<vec4<f16>, BK * B_STRIDE>;
#ifdef f16_accumulate
alias Accumulator = coop_mat16x16<f16, C>;
var<workgroup> out_stage: array<vec4<f16>, SUBGROUPS * 16u * OUT_STRIDE>;
#else
alias Accumulator = coop_mat16x16<f32, C>;
var<workgroup> out_stage: array<vec4<f32>, SUBGROUPS * 16u * OUT_STRIDE>;
#endif
// 16 bytes, so that the variables after it stay 16-byte aligned, as cooperative matrices require.
var<workgroup> has_tile: vec4<u32>;

#import tile_row

// Stores one accumulator tile of a subgroup to y.
fn store_tile(y_start: u32, subgroup: u32, lane: u32, first_i: u32, first_j: u32) {
    workgroupBarrier();
    for (var q = lane; q < 64u; q += SUB) {
        let values = out_stage[(subgroup * 16u + q / 4u) * OUT_STRIDE + q % 4u];
        let i = first_i + q / 4u;
        let j = first_j + q % 4u * 4u;
        if (i < params.m && j < params.n) {
#ifdef f16_y
            y[(y_start + i * params.y_row_stride + j) / 4u] = vec4<f16>(values);
#else
            y[(y_start + i * params.y_row_stride + j) / 4u] = vec4<f32>(values);
#endif
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
    // Consecutive workgroups take the same columns of b, so that memory is read once.
    let group = wid.y * grid.x + wid.x;
    let first_i = group % grid.y * BM;
    let first_j = group / grid.y * BN;
    let a_row = params.a_row_stride / 4u;
    let b_row = params.b_row_stride / 4u;
    let subgroup = lid / SUB;
    let subgroup_i = subgroup / WJ * (TI * 16u);
    let subgroup_j = subgroup % WJ * (TH * 32u);
    let load_row = tile_row(lid);
    let load_b_row = lid / (BN / 4u);
    let load_b_column = lid % (BN / 4u);
    // Read through workgroup memory: cooperative matrices require provable uniformity.
    if (lid == 0u) {
        has_tile = vec4(select(0u, 1u, first_i < params.m && first_j < params.n));
    }
    if (workgroupUniformLoad(&has_tile).x == 0u) {
        return;
    }
    var zero: Accumulator;
    // A batch count may exceed the limit of a grid dimension.
    for (var batch = wid.z; batch < params.batch; batch += grid.z) {
        let a_start = (params.a_offset + batch * params.a_batch_stride) / 4u;
        let b_start = (params.b_offset + batch * params.b_batch_stride) / 4u;
        let y_start = params.y_offset + batch * params.y_batch_stride;
        // Where this thread reads both operands; past the last row and column, the last again.
        var a_at = a_start + lid % 8u;
#repeat t A_LOADS
        let a_row$t = min(first_i + load_row + $tu * PASS_ROWS, params.m - 1u) * a_row;
#end
        var b_at = b_start + load_b_row * b_row + min(first_j / 4u + load_b_column, params.n / 4u - 1u);
#repeat i TI
#repeat h TH
        var acc_low$i_$h = zero;
        var acc_high$i_$h = zero;
#end
#end
        // Prefetches the next step while one is multiplied.
#repeat t A_LOADS
        var a_next$t = a[a_at + a_row$t];
#end
#repeat t B_LOADS
        var b_next$t = b[b_at + $tu * B_PASS_ROWS * b_row];
#end
        for (var c = 0u; c < params.k; c += BK * STEPS) {
#repeat u STEPS
            {
                workgroupBarrier();
#repeat t A_LOADS
                a_tile[(load_row + $tu * PASS_ROWS) * A_STRIDE + lid % 8u] = a_next$t;
#end
#repeat t B_LOADS
                b_tile[(load_b_row + $tu * B_PASS_ROWS) * B_STRIDE + load_b_column] = b_next$t;
#end
                workgroupBarrier();
#repeat s 2
                if ($su == 1u) {
                    // After the last step, repeats the load of the last.
                    let advance = select(0u, 1u, c + ($uu + 1u) * BK < params.k);
                    a_at += advance * (BK / 4u);
                    b_at += advance * (BK * b_row);
#repeat t A_LOADS
                    a_next$t = a[a_at + a_row$t];
#end
#repeat t B_LOADS
                    b_next$t = b[b_at + $tu * B_PASS_ROWS * b_row];
#end
                }
                {
#repeat i TI
                    let a$i = coopLoadT<coop_mat16x16<f16, A>>(
                        &a_tile[(subgroup_i + $iu * 16u) * A_STRIDE + $su * 4u], A_STRIDE);
#end
#repeat h TH
                    {
                        let b_low = coopLoadT<coop_mat16x16<f16, B>>(
                            &b_tile[$su * 16u * B_STRIDE + subgroup_j / 4u + $hu * 8u], B_STRIDE);
#repeat i TI
                        acc_low$i_$h = coopMultiplyAdd(a$i, b_low, acc_low$i_$h);
#end
                        let b_high = coopLoadT<coop_mat16x16<f16, B>>(
                            &b_tile[$su * 16u * B_STRIDE + subgroup_j / 4u + $hu * 8u + 4u], B_STRIDE);
#repeat i TI
                        acc_high$i_$h = coopMultiplyAdd(a$i, b_high, acc_high$i_$h);
#end
                    }
#end
                }
#end
            }
#end
        }
        let to = subgroup * 16u * OUT_STRIDE;
#repeat i TI
#repeat h TH
        coopStoreT(acc_low$i_$h, &out_stage[to], OUT_STRIDE);
        store_tile(y_start, subgroup, lid % SUB,
            first_i + subgroup_i + $iu * 16u, first_j + subgroup_j + $hu * 32u);
        coopStoreT(acc_high$i_$h, &out_stage[to], OUT_STRIDE);
        store_tile(y_start, subgroup, lid % SUB,
            first_i + subgroup_i + $iu * 16u, first_j + subgroup_j + $hu * 32u + 16u);
#end
#end
    }
}
