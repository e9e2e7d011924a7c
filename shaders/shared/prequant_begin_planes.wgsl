// Start of matvec_prequant_* for rows of x in planes and blocks of 256 columns: a step is four blocks
// of each of a team's four rows of w. Part of main.
const_assert ROWS == 4u && SUB == 32u && K % 256u == 0u;
const SUBGROUPS: u32 = TEAM / 32u;
const BLOCKS: u32 = K / 256u;
const STEPS: u32 = (K + 1023u) / 1024u;
const TURNS: u32 = (STEPS + SUBGROUPS - 1u) / SUBGROUPS;
// Masks buffer indices, which are below this (in 16-byte words): compilers see that an addition
// cannot carry and fold it into the load's address.
const NEAR: u32 = 0x0fffffffu;
// Whether every lane has work in every turn.
const WHOLE: bool = K % 1024u == 0u && STEPS % SUBGROUPS == 0u;
const_assert TURNS % UNROLL == 0u;
// Lanes that hold parts of a row's sum, and the number of halvings after the first two.
const ACROSS: u32 = 32u;
const HALVINGS: u32 = 3u;
let lane = place.lane;
let own_subgroup = place.lid % TEAM / 32u;
let own_block = lane >> 3u;
let first_block = select(min(own_subgroup * 4u + own_block, BLOCKS - 1u), own_subgroup * 4u + own_block, WHOLE);
