// matmul_halves: y[i, r] = sum over c of w[r, c] * x[i, c] on matrix hardware; w [n, k] f16 as half_weights_* orders
// it, x [m, k] f16 as round_half does, y f32, its rows y_stride apart. y has room for whole tiles: what lies behind m
// and n is written. Sums are f32. plain: w is [n, k]. Each of SPLITS parts of the columns has a y of its own, one
// behind the other: grid z.
// Work split: a workgroup of WI x WJ subgroups makes BM x BN of y from BK columns of both operands at a time, a
// subgroup TI x TJ tiles of 16 x 16; a thread moves vec4s of both operands to workgroup memory in each step.
// Why: 64 x 64 for a subgroup keeps the matrix units busy with what is read from workgroup memory; rows of 40 halves
// are the padding with the fewest bank conflicts. Steps are written out STEPS times, since sums are copied in each turn
// of a loop; two workgroups at once hide what each waits for. Sums leave as they are: what is done with them takes a
// launch of its own (scaled_rows).
enable f16;
enable wgpu_cooperative_matrix;

override TI: u32 = 4;
override TJ: u32 = 4;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup, all of the same size.
override SUB: u32 = 32;
// Steps of a turn: k is a multiple of 32 times this and SPLITS.
override STEPS: u32 = 1;
override SPLITS: u32 = 1;

const THREADS: u32 = WI * WJ * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TJ * 16u;
const BK: u32 = 32u;
// vec4s from row to row of a tile: 32 halves and 8 of padding.
const STRIDE: u32 = 10u;
// Rows of a tile that all threads write at once, and what a thread loads for a step, at most: vec4s.
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
// As long as it is so that whatever lies behind it starts at 16 bytes, as matrices must: they are read wrongly
// elsewhere, without an error.
var<workgroup> working: vec4<u32>;

#import tile_row

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Workgroups that follow each other take the same rows of w, so that it is read from memory once.
    let group = wid.y * grid.x + wid.x;
    let first_i = group % grid.y * BM;
    let first_j = group / grid.y * BN;
    // All threads agree, and matrices want that to be plain to see.
    if (lid == 0u) {
        working = vec4(select(0u, 1u, first_i < params.m && first_j < params.n));
    }
    if (workgroupUniformLoad(&working).x == 0u) {
        return;
    }
    let subgroup = lid / SUB;
    let own_i = subgroup / WJ * (TI * 16u);
    let own_j = subgroup % WJ * (TJ * 16u);
    // From row to row of w, and from step to step: vec4s.
#ifdef plain
    let w_row = params.k / 4u;
    let w_step = 8u;
#else
    let w_row = 8u;
    let w_step = params.n * 8u;
#endif
    // Where a thread reads of both, and where it writes in both tiles.
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
    // The steps of this layer.
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
