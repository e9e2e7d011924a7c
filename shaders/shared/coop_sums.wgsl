// Accumulators of a tensor-core GEMM, in main(.., lid), and the place of a thread in the tiles.
    let subgroup = lid / SUB;
    let own_i = subgroup / WJ * (TI * 16u);
    let own_j = subgroup % WJ * (TH * 16u);
#repeat i TI
#repeat j TH
    var low$i_$j: coop_mat16x16<f32, C>;
    var high$i_$j: coop_mat16x16<f32, C>;
#end
#end
    // Where this thread writes both tiles.
    let own_row = tile_row(lid);
    let to_tile = own_row * STRIDE + lid % 8u;
