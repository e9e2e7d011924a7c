// Main loop of a tensor-core GEMM that decodes weights: thread loads of x begin at x_at, rows of w at
// starts.
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
