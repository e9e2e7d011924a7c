// Offsets in quantize_activations' output of a row's codes, and of the scales and scaled sums of each 32
// columns. Needs code_words, place_of, row_words and padded, of one row.
#ifdef tiles
fn code_at(row: u32, block: u32, j: u32) -> u32 {
    return row / 8u * 8u * row_words() + tile_place(row, place_of(block, j));
}

fn factor_at(row: u32, block: u32) -> u32 {
    return row / 8u * 8u * row_words() + 8u * code_words() + tile_factor(row, block);
}

fn sum_at(row: u32, block: u32) -> u32 {
    return factor_at(row, block) + 8u * padded();
}
#else
fn code_at(row: u32, block: u32, j: u32) -> u32 {
    return row * row_words() + place_of(block, j);
}

fn factor_at(row: u32, block: u32) -> u32 {
    return row * row_words() + code_words() + block;
}

fn sum_at(row: u32, block: u32) -> u32 {
    return factor_at(row, block) + padded();
}
#endif
