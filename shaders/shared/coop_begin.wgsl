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
#import coop_sums
    let x_start = params.x_offset / 4u;
    // Where this thread reads x.
#repeat t X_LOADS
    let x_at$t = x_start + min(first_i + own_row + $tu * PASS_ROWS, params.m - 1u) * 8u + lid % 8u;
#end
