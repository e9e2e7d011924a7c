// matmul_coop_*: y[i, r] = factors[i] * sum over c of w[r, c] * x[i, c] on matrix hardware; w [n, k] packed, x
// [m, k] f16 as round_half makes it, y [m, n]. Weights are rounded to f16, sums are f32.
// Work split: a workgroup of WI x WJ subgroups makes BM x BN of y. 32 columns of both at a time go to workgroup
// memory, a thread decodes 16 neighbouring weights; a subgroup multiplies TI x 2 TH tiles of 16 x 16, of which TH
// lie in each half of the workgroup's columns, so that both products of an evaluation are its own.
// Why: 64 x 64 for a subgroup keeps the matrix units busy with what is read from workgroup memory; rows of 40
// halves are the padding with the fewest bank conflicts. Sums leave through workgroup memory, because nothing
// reads elements of a cooperative matrix.
enable f16;
enable wgpu_cooperative_matrix;
#import dequant_*

override TI: u32 = 4;
override TH: u32 = 2;
override WI: u32 = 2;
override WJ: u32 = 2;
// Threads of a subgroup, all of the same size.
override SUB: u32 = 32;

const SUBGROUPS: u32 = WI * WJ;
const THREADS: u32 = SUBGROUPS * SUB;
const BM: u32 = WI * TI * 16u;
const BN: u32 = WJ * TH * 32u;
const OWN_READS: u32 = 3u;
const TASK_ROWS: u32 = BN;
const BK: u32 = 32u;
// vec4s from row to row of a tile: 32 halves and 8 of padding.
const STRIDE: u32 = 10u;
// What a thread loads of x (vec4s) and decodes of w (16 weights each) for a step, at most.
const X_LOADS: u32 = (BM * 8u + THREADS - 1u) / THREADS;
const W_LOADS: u32 = (BN * 2u + THREADS - 1u) / THREADS;
// Numbers from row to row of the sums that leave: two tiles and padding.
const OUT_STRIDE: u32 = 36u;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
#import attached_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> factors: array<f32>;

var<workgroup> x_tile: array<vec4<f16>, BM * STRIDE>;
var<workgroup> w_tile: array<vec4<f16>, BN * STRIDE>;
var<workgroup> sums: array<f32, SUBGROUPS * 16u * OUT_STRIDE>;
// As long as it is so that whatever lies behind it starts at 16 bytes, as matrices must: they are read wrongly
// elsewhere, without an error.
var<workgroup> working: vec4<u32>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

#import attached_rows

// Two tiles of a subgroup, half the workgroup's columns apart, from sums to where they go.
fn leave(task: Task, subgroup: u32, lane: u32, first_i: u32, first_e: u32) {
    workgroupBarrier();
    for (var p = lane; p < 256u; p += SUB) {
        let at = (subgroup * 16u + p / 16u) * OUT_STRIDE + p % 16u;
        let i = first_i + p / 16u;
        let factor = factors[min(i, params.m - 1u)];
        let e = first_e + p % 16u;
        let low = sums[at] * factor;
        let high = sums[at + 16u] * factor;
        if (e < evaluations(task)) {
            store(task, e, i, low, high);
        }
        if (e + BN / 2u < evaluations(task)) {
            store(task, e + BN / 2u, i, high, 0.0);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let task = task_of(wid.x);
    let first_i = wid.y * BM;
    // All threads agree, and matrices want that to be plain to see.
    if (lid == 0u) {
        working = vec4(select(0u, 1u, exists(task) && first_i < params.m));
    }
    if (workgroupUniformLoad(&working).x == 0u) {
        return;
    }
    let subgroup = lid / SUB;
    let own_i = subgroup / WJ * (TI * 16u);
    let own_j = subgroup % WJ * (TH * 16u);
    let x_start = params.x_offset / 4u;
#repeat i TI
#repeat j TH
    var low$i_$j: coop_mat16x16<f32, C>;
    var high$i_$j: coop_mat16x16<f32, C>;
#end
#end
    var starts: array<u32, W_LOADS>;
    for (var t = 0u; t < W_LOADS; t++) {
        starts[t] = row_start(row_of(task, min((t * THREADS + lid) / 2u, BN - 1u)), params.k);
    }
    var x_at: array<u32, X_LOADS>;
    for (var t = 0u; t < X_LOADS; t++) {
        let l = t * THREADS + lid;
        x_at[t] = x_start + min(first_i + l / 8u, params.m - 1u) * (params.x_stride / 4u) + l % 8u;
    }
    for (var c = 0u; c < params.k; c += BK) {
        var xs: array<vec4<f16>, X_LOADS>;
        for (var t = 0u; t < X_LOADS; t++) {
            xs[t] = x[x_at[t] + c / 4u];
        }
        workgroupBarrier();
        for (var t = 0u; t < X_LOADS; t++) {
            let l = t * THREADS + lid;
            if (l < BM * 8u) {
                x_tile[(l / 8u) * STRIDE + l % 8u] = xs[t];
            }
        }
        for (var t = 0u; t < W_LOADS; t++) {
            let l = t * THREADS + lid;
            if (l >= BN * 2u) {
                break;
            }
            let start = starts[t];
            // Known to be a multiple of 16 below 2^28, so that all four decode one scale, once.
            let column = (c + l % 2u * 16u) & 0x0ffffff0u;
            let to = (l / 2u) * STRIDE + l % 2u * 4u;
#repeat p 4
            w_tile[to + $pu] = vec4<f16>(weights4(start, column + $pu * 4u, 0xffffffffu));
#end
        }
        workgroupBarrier();
#repeat s 2
        {
#repeat i TI
            let a$i = coopLoadT<coop_mat16x16<f16, A>>(
                &x_tile[(own_i + $iu * 16u) * STRIDE + $su * 4u], STRIDE);
#end
#repeat j TH
            {
                let b = coopLoad<coop_mat16x16<f16, B>>(
                    &w_tile[(own_j + $ju * 16u) * STRIDE + $su * 4u], STRIDE);
#repeat i TI
                low$i_$j = coopMultiplyAdd(a$i, b, low$i_$j);
#end
            }
            {
                let b = coopLoad<coop_mat16x16<f16, B>>(
                    &w_tile[(BN / 2u + own_j + $ju * 16u) * STRIDE + $su * 4u], STRIDE);
#repeat i TI
                high$i_$j = coopMultiplyAdd(a$i, b, high$i_$j);
#end
            }
#end
        }
#end
    }
    let to = subgroup * 16u * OUT_STRIDE;
#repeat i TI
#repeat j TH
    coopStoreT(low$i_$j, &sums[to], OUT_STRIDE);
    coopStoreT(high$i_$j, &sums[to + 16u], OUT_STRIDE);
    leave(task, subgroup, lid % SUB, first_i + own_i + $iu * 16u, own_j + $ju * 16u);
#end
#end
}
