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

// Maximum loads of 16 weights per thread and step.
const W_LOADS: u32 = (BN * 2u + THREADS - 1u) / THREADS;

@group(0) @binding(1) var<storage, read> w: array<WeightWord>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

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
    for (var c = 0u; c < params.k; c += BK) {
#repeat t X_LOADS
        let xs$t = x[x_at$t + c / 4u * params.m];
#end
        workgroupBarrier();
#repeat t X_LOADS
        if ((BM * 8u) % THREADS == 0u || own_row + $tu * PASS_ROWS < BM) {
            x_tile[to_tile + $tu * PASS_ROWS * STRIDE] = xs$t;
        }
#end
        for (var t = 0u; t < W_LOADS; t++) {
            let l = t * THREADS + lid;
            if (l >= BN * 2u) {
                break;
            }
            let start = starts[t];
            // A multiple of 16 below 2^28, visible to the compiler, so that all four calls share
            // one decoded scale.
            let column = (c + l % 2u * 16u) & 0x0ffffff0u;
            let to = (l / 2u) * STRIDE + l % 2u * 4u;
#repeat p 4
            w_tile[to + $pu] = vec4<f16>(weights4(start, column + $pu * 4u, 0xffffffffu));
#end
        }
        workgroupBarrier();
#import coop_step
    }
#import coop_end
}
