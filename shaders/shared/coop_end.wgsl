// End of a tensor-core GEMM: stores the accumulators through workgroup memory.
    let to = subgroup * 16u * OUT_STRIDE;
#repeat i TI
#repeat j TH
    coopStoreT(low$i_$j, &sums[to], OUT_STRIDE);
    coopStoreT(high$i_$j, &sums[to + 16u], OUT_STRIDE);
    store_tile(task, subgroup, lid % SUB, first_i, own_i + $iu * 16u, own_j + $ju * 16u);
#end
#end
