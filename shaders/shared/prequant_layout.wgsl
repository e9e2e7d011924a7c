// Layouts of quantised rows of x for matvec_prequant_* (kernel::prequant): word index of four columns in
// a row.
// Word j of a block of 32 columns, in the order of a format's units (dequant_*): groups per unit,
// parts per group, and how many of those are neighbours. 8 / run units alternate.
fn code_place(block: u32, j: u32, groups: u32, run: u32, chunk: u32) -> u32 {
    let lanes = 8u / run;
    let unit = block / groups * lanes + j / chunk % lanes;
    return (unit * groups + block % groups) * run + j % chunk + j / (chunk * lanes) * chunk;
}

// The same for units of four groups of two, apart: of each 256 columns four words of all eight
// units, then the other four.
fn apart_place(block: u32, j: u32) -> u32 {
    let unit = block / 4u % 2u * 4u + j / 2u;
    return block / 8u * 64u + block % 4u / 2u * 32u + unit * 4u + block % 2u * 2u + j % 2u;
}

// The same in planes: of each 1,024 columns four words per lane from the first 32 of its 64
// columns, then four words per lane from the others. A lane has 16 columns of each.
fn plane_place(block: u32, j: u32) -> u32 {
    return (block / 32u * 64u + block % 2u * 32u + (block & 30u) + j / 4u) * 4u + j % 4u;
}

// After all codes, four words per lane: the scale of its first columns; that of the others divided
// by 16; the start value of a sum over those; and a block's sum of codes times its scale. Of two
// lanes that share two blocks, the even one has the first block's, the odd one the second's.
fn plane_lane(columns: u32, block: u32, half: u32) -> u32 {
    return ((columns + 1023u) / 1024u * 64u + block / 32u * 32u + (block & 30u) + half) * 4u;
}

fn plane_words(columns: u32) -> u32 {
    return (columns + 1023u) / 1024u * 384u;
}

// For tiles of eight interleaved rows: index of word `place` of one row. Per 64 columns, 16 words
// of every row, as four lanes read them.
fn tile_place(row: u32, place: u32) -> u32 {
    return place / 16u * 128u + row % 8u * 16u + place % 16u;
}

// The same for factors of a block: per 128 columns those of four even rows and of four odd ones.
fn tile_factor(row: u32, block: u32) -> u32 {
    return (block / 4u * 2u + row % 2u) * 16u + row % 8u / 2u * 4u + block % 4u;
}

// The bits of 1.5 * 2^23 plus 128 times the sum of 16 codes: weights are used as 16 * w - 128.
fn plane_begin(sum: i32) -> u32 {
    return bitcast<u32>(0x4b400000 + 128 * sum);
}
