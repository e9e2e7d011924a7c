// Where codes of four columns lie in a row that a product of matvec_codes_* reads.
// Word j of a block of 32 columns, in the order of units of a format (dequant_*): groups of a unit, parts of a
// group, and how many of those are neighbours. A unit takes turns with 8 / run - 1 others.
fn code_place(block: u32, j: u32, groups: u32, run: u32, chunk: u32) -> u32 {
    let lanes = 8u / run;
    let unit = block / groups * lanes + j / chunk % lanes;
    return (unit * groups + block % groups) * run + j % chunk + j / (chunk * lanes) * chunk;
}
