// The beginning of what matvec_codes_* do with rows of x in planes, of blocks of 256 columns: a step is four of them
// for each of a team's four rows of w. Part of main.
const_assert ROWS == 4u && SUB == 32u && K % 256u == 0u;
const SUBGROUPS: u32 = TEAM / 32u;
const BLOCKS: u32 = K / 256u;
const STEPS: u32 = (K + 1023u) / 1024u;
const TURNS: u32 = (STEPS + SUBGROUPS - 1u) / SUBGROUPS;
// Of places in a buffer, which hold fewer words of 16 bytes: compilers see that nothing is carried over when a step
// is added, and add it where they load.
const NEAR: u32 = 0x0fffffffu;
// Whether all lanes have something in every turn.
const WHOLE: bool = K % 1024u == 0u && STEPS % SUBGROUPS == 0u;
const_assert TURNS % UNROLL == 0u;
// Lanes that a row's sum is spread over, and halvings of that behind the first two.
const ACROSS: u32 = 32u;
const HALVINGS: u32 = 3u;
let lane = place.lane;
let own_subgroup = place.lid % TEAM / 32u;
let own_block = lane >> 3u;
let first_block = select(min(own_subgroup * 4u + own_block, BLOCKS - 1u), own_subgroup * 4u + own_block, WHOLE);
