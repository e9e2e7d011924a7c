// Start of a tensor-core GEMM, in main(wid, grid, lid): the workgroup's rows, and zeroed
// accumulators. Consecutive workgroups take the same rows of w, so that memory is read once.
    let group = wid.y * grid.x + wid.x;
    let task = task_of(group / grid.y);
    let first_i = group % grid.y * BM;
    // Read through workgroup memory: cooperative matrices require provable uniformity.
    if (lid == 0u) {
        working = vec4(select(0u, 1u, exists(task) && first_i < params.m));
    }
    if (workgroupUniformLoad(&working).x == 0u) {
        return;
    }
    for (var r = lid; r < BM; r += THREADS) {
        row_factors[r] = factors[min(first_i + r, params.m - 1u)];
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
    // Where this thread reads x, and where it writes both tiles.
    let own_row = tile_row(lid);
    let to_tile = own_row * STRIDE + lid % 8u;
#repeat t X_LOADS
    let x_at$t = x_start + min(first_i + own_row + $tu * PASS_ROWS, params.m - 1u) * 8u + lid % 8u;
#end
