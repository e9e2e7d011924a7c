// matmul_batched_tiled: register-tiled GEMM of activations: y[b, i, j] = sum over c of
// a[b, i, c] * b[b, c, j] for many rows and columns. Any strides, y [batch, m, n]. a_down: columns
// of a are contiguous, else its rows; b_down: the same of b.
// Work split: a workgroup of 256 threads computes 64 QM x 64 QN of y, a thread QM x QN squares of
// 4 x 4, 64 apart. 16 columns of a and rows of b are staged in workgroup memory, as vec4s down a
// and along b.
// Why: a thread reads QM + QN vec4s for 16 QM QN products, and 8 x 4 threads read at most 256 bytes
// together. The next step is prefetched. vec4s of a tile row are swizzled by the row number, which
// avoids bank conflicts without padding: 128 x 128 take exactly 16 KiB. 35 Tflop/s at 4,096 squared
// on an H200 through wgpu (16 x 16, one element per thread: 6.2).
override QM: u32 = 2;
override QN: u32 = 2;

const THREADS: u32 = 256u;
const BM: u32 = QM * 64u;
const BN: u32 = QN * 64u;
const BK: u32 = 16u;
const A_STRIDE: u32 = BM / 4u;
const B_STRIDE: u32 = BN / 4u;
const OWN_READS: u32 = 2u;
const_assert QM >= 1u && QM <= 2u && QN >= 1u && QN <= 2u;

#import batched_operands
#import fusion_store

var<workgroup> a_tile: array<vec4<f32>, BK * A_STRIDE>;
var<workgroup> b_tile: array<vec4<f32>, BK * B_STRIDE>;

// Row or column of a step, and vec4 of the tile, of this thread's load q. Neighbouring threads load
// neighbouring memory.
fn down(q: u32) -> vec2<u32> {
    return vec2(q % BK, q / BK);
}

fn along(q: u32, width: u32) -> vec2<u32> {
    return vec2(q / (width / 4u), q % (width / 4u));
}

fn place_a(q: u32) -> vec2<u32> {
#ifdef a_down
    return along(q, BM);
#else
    return down(q);
#endif
}

fn place_b(q: u32) -> vec2<u32> {
#ifdef b_down
    return down(q);
#else
    return along(q, BN);
#endif
}

// Swizzled index of vec4 `quad` in row c of a tile.
fn in_row(c: u32, quad: u32) -> u32 {
    return quad ^ (c & 7u);
}

// Four numbers of a column of a, zero from k on; past the last row, the last again.
fn load_a(start: u32, i: u32, c: u32) -> vec4<f32> {
    let column = start + min(c, params.k - 1u) * params.a_col_stride;
    let rows = min(vec4(i) + vec4(0u, 1u, 2u, 3u), vec4(params.m - 1u)) * params.a_row_stride;
    let values = vec4(a[column + rows.x], a[column + rows.y], a[column + rows.z], a[column + rows.w]);
    return select(vec4(0.0), values, c < params.k);
}

// Four numbers of a row of b, in the same way.
fn load_b(start: u32, c: u32, j: u32) -> vec4<f32> {
    let row = start + min(c, params.k - 1u) * params.b_row_stride;
    let columns = min(vec4(j) + vec4(0u, 1u, 2u, 3u), vec4(params.n - 1u)) * params.b_col_stride;
    let values = vec4(b[row + columns.x], b[row + columns.y], b[row + columns.z], b[row + columns.w]);
    return select(vec4(0.0), values, c < params.k);
}

fn store4(batch: u32, i: u32, j: u32, sums: vec4<f32>) {
    if (i < params.m) {
#repeat e 4
        if (j + $eu < params.n) {
            store(batch, i, j + $eu, sums[$eu]);
        }
#end
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    if (params.m == 0u || params.n == 0u) {
        return;
    }
    let first_i = wid.y * BM;
    let first_j = wid.x * BN;
    // 32 threads are eight along and four down.
    let tx = lid / 32u % 2u * 8u + lid % 8u;
    let ty = lid / 64u * 4u + lid / 8u % 4u;
    // A batch count may exceed the limit of a grid dimension.
    for (var batch = wid.z; batch < params.batch; batch += groups.z) {
        let a_start = params.a_offset + batch * params.a_batch_stride;
        let b_start = params.b_offset + batch * params.b_batch_stride;
#repeat p QM
        let a_place$p = place_a($pu * THREADS + lid);
        var next_a$p = vec4(0.0);
#end
#repeat q QN
        let b_place$q = place_b($qu * THREADS + lid);
        var next_b$q = vec4(0.0);
#end
        if (params.k > 0u) {
#repeat p QM
            next_a$p = load_a(a_start, first_i + a_place$p.y * 4u, a_place$p.x);
#end
#repeat q QN
            next_b$q = load_b(b_start, b_place$q.x, first_j + b_place$q.y * 4u);
#end
        }
#repeat p QM
#repeat q QN
        var sum0_$p_$q = vec4(0.0);
        var sum1_$p_$q = vec4(0.0);
        var sum2_$p_$q = vec4(0.0);
        var sum3_$p_$q = vec4(0.0);
#end
#end
        for (var c = 0u; c < params.k; c += BK) {
            workgroupBarrier();
#repeat p QM
            a_tile[a_place$p.x * A_STRIDE + in_row(a_place$p.x, a_place$p.y)] = next_a$p;
#end
#repeat q QN
            b_tile[b_place$q.x * B_STRIDE + in_row(b_place$q.x, b_place$q.y)] = next_b$q;
#end
            workgroupBarrier();
            // The last step loads zeros.
#repeat p QM
            next_a$p = load_a(a_start, first_i + a_place$p.y * 4u, c + BK + a_place$p.x);
#end
#repeat q QN
            next_b$q = load_b(b_start, c + BK + b_place$q.x, first_j + b_place$q.y * 4u);
#end
            for (var s = 0u; s < BK; s += 4u) {
#repeat u 4
                {
#repeat q QN
                    let b$q = b_tile[(s + $uu) * B_STRIDE + in_row(s + $uu, tx + $qu * 16u)];
#end
#repeat p QM
                    {
                        let a4 = a_tile[(s + $uu) * A_STRIDE + in_row(s + $uu, ty + $pu * 16u)];
#repeat q QN
                        sum0_$p_$q += a4.x * b$q;
                        sum1_$p_$q += a4.y * b$q;
                        sum2_$p_$q += a4.z * b$q;
                        sum3_$p_$q += a4.w * b$q;
#end
                    }
#end
                }
#end
            }
        }
#repeat p QM
#repeat q QN
        {
            let i = first_i + (ty + $pu * 16u) * 4u;
            let j = first_j + (tx + $qu * 16u) * 4u;
            store4(batch, i, j, sum0_$p_$q);
            store4(batch, i + 1u, j, sum1_$p_$q);
            store4(batch, i + 2u, j, sum2_$p_$q);
            store4(batch, i + 3u, j, sum3_$p_$q);
        }
#end
#end
    }
}
