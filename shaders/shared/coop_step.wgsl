// Step of a tensor-core GEMM: multiplies and accumulates the tiles in workgroup memory.
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
