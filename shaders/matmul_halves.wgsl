// matmul_halves: y[i, r] = factors[i] * sum over c of w[r, c] * x[i, c] on matrix hardware; w [n, k] f16 as
// half_weights_* orders it, x [m, k] f16 as round_half does, y [m, n]. Sums are f32.
// Work split: that of coop_tiles; a thread moves vec4s of both operands to workgroup memory in each step.
// Why: a weight is decoded once and not again for each tile of rows of x, and nothing but moves stands between
// two steps of the matrix units.
enable f16;
enable wgpu_cooperative_matrix;

#import coop_tiles

// What a thread loads of w for a step, at most: vec4s.
const W_LOADS: u32 = (BN * 8u + THREADS - 1u) / THREADS;

@group(0) @binding(1) var<storage, read> w: array<vec4<f16>>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
#import coop_begin
#repeat t W_LOADS
    let w_at$t = row_of(task, min(own_row + $tu * PASS_ROWS, BN - 1u)) * 8u + lid % 8u;
#end
#repeat t X_LOADS
    var xs$t = x[x_at$t];
#end
#repeat t W_LOADS
    var ws$t = w[w_at$t];
#end
    for (var c = 0u; c < params.k; c += BK) {
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
        // What the next step takes is on its way while this one multiplies; the last one loads itself again.
        let next = min(c + BK, params.k - BK) / 4u;
#repeat t X_LOADS
        xs$t = x[x_at$t + next * params.m];
#end
#repeat t W_LOADS
        ws$t = w[w_at$t + next * params.n];
#end
        workgroupBarrier();
#import coop_step
    }
#import coop_end
}
