// Where a row's codes, what codes of each 32 columns stand for and what those add up to lie in what round_codes
// writes. Needs code_words, place_of, row_words and padded, of one row.
#ifdef tiles
// Of each 64 columns 16 words of every row, as four lanes read them; then of each 128 what codes of 32 stand for, of
// four even rows and of four odd ones; then their sums alike.
fn code_at(row: u32, block: u32, j: u32) -> u32 {
    let place = place_of(block, j);
    return row / 8u * 8u * row_words() + place / 16u * 128u + row % 8u * 16u + place % 16u;
}

fn factor_at(row: u32, block: u32) -> u32 {
    let place = (block / 4u * 2u + row % 2u) * 16u + row % 8u / 2u * 4u + block % 4u;
    return row / 8u * 8u * row_words() + 8u * code_words() + place;
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
