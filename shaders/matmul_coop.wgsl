// matmul_coop_*: tensor-core GEMM with packed weights: y[i, r] = factors[i] * sum over c of
// w[r, c] * x[i, c]. w [n, k] packed, x [m, k] f16 in quantize_to_f16's layout, y [m, n]. Weights are
// rounded to f16, sums are f32.
// Work split: that of coop_tiles; a thread decodes 16 neighbouring weights per step.
// Why: needs no f16 copy of the weight. Each tile of rows decodes the weight again, so
// matmul_f16_coop is faster for many rows.
enable f16;
enable wgpu_cooperative_matrix;
#import dequant_*

#import coop_tiles

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
#import coop_begin
    var starts: array<u32, W_LOADS>;
    for (var t = 0u; t < W_LOADS; t++) {
        starts[t] = row_start(row_of(task, min((t * THREADS + lid) / 2u, BN - 1u)), params.k);
    }
#import coop_decode
#import coop_end
}
