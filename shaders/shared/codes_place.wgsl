// Where codes of four columns lie in a row that a product of matvec_codes_* reads (kernel::codes).
// Word j of a block of 32 columns, in the order of units of a format (dequant_*): groups of a unit, parts of a
// group, and how many of those are neighbours. A unit takes turns with 8 / run - 1 others.
fn code_place(block: u32, j: u32, groups: u32, run: u32, chunk: u32) -> u32 {
    let lanes = 8u / run;
    let unit = block / groups * lanes + j / chunk % lanes;
    return (unit * groups + block % groups) * run + j % chunk + j / (chunk * lanes) * chunk;
}

// The same of units of four groups of two, apart: of each 256 columns four words of all eight units, then the other
// four.
fn apart_place(block: u32, j: u32) -> u32 {
    let unit = block / 4u % 2u * 4u + j / 2u;
    return block / 8u * 64u + block % 4u / 2u * 32u + unit * 4u + block % 2u * 2u + j % 2u;
}

// The same in planes: of each 1,024 columns four words of every lane, from the first 32 of its 64 columns, then four of
// every lane from the others. A lane has 16 columns of both.
fn plane_place(block: u32, j: u32) -> u32 {
    return (block / 32u * 64u + block % 2u * 32u + (block & 30u) + j / 4u) * 4u + j % 4u;
}

// Behind all codes lie four words for each lane: what a code of its first columns stands for, that of the others over
// 16, where a sum of products with those begins, and what all codes of a block add up to times what one stands for: of
// two lanes that share two blocks the even one has the first's, the odd one the second's.
fn plane_lane(columns: u32, block: u32, half: u32) -> u32 {
    return ((columns + 1023u) / 1024u * 64u + block / 32u * 32u + (block & 30u) + half) * 4u;
}

fn plane_words(columns: u32) -> u32 {
    return (columns + 1023u) / 1024u * 384u;
}

// Of eight rows that lie together for tiles: where word place of one of them is, of each 64 columns 16 words of every
// row, as four lanes read them.
fn tile_place(row: u32, place: u32) -> u32 {
    return place / 16u * 128u + row % 8u * 16u + place % 16u;
}

// The same of what goes along with a block: of each 128 columns that of four even rows and of four odd ones.
fn tile_factor(row: u32, block: u32) -> u32 {
    return (block / 4u * 2u + row % 2u) * 16u + row % 8u / 2u * 4u + block % 4u;
}

// The bits of 1.5 * 2^23 and 128 times what 16 codes add up to: weights come as 16 * w - 128.
fn plane_begin(sum: i32) -> u32 {
    return bitcast<u32>(0x4b400000 + 128 * sum);
}
