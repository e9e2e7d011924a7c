// First part of main of a matvec_prequant_*: loads the weights of each thread's first turn before
// anything else; for prequant_units those of its only turn, for prequant_trits those of UNROLL turns.
// Why: weights are constant, so these loads overlap with the previous launch, which still computes
// x. If there is no single first turn, compilers batch more of the loads themselves.
#ifdef headers
#import prequant_begin_planes
const_assert M == 1u;
let own_word = PREQUANT_AT + (lane & 7u);
// Bit index for the lower of its two sub-blocks.
let bit = lane & 6u;
let header_row = lane >> 3u;
let header_block = (lane >> 1u) & 3u;
let upper = lane & 1u;
var header_start = start0;
#repeat r 4
if (header_row == $ru) {
    header_start = start$r;
}
#end
let first_header = select(min(own_subgroup * 4u + header_block, BLOCKS - 1u), own_subgroup * 4u + header_block, WHOLE);
#repeat r 4
let at$r = ((start$r + first_block) * BLOCK_WORDS + own_word) & NEAR;
let fifths_at$r = ((start$r + first_block) * BLOCK_WORDS + 1u + (lane & 1u)) & NEAR;
var next$r = w[at$r];
var next_fifths$r = vec4<u32>();
if (FIFTHS) {
    next_fifths$r = w[fifths_at$r];
}
#end
let header_at = ((header_start + first_header) * BLOCK_WORDS) & NEAR;
var next_header = w[header_at];
#elifdef eights
const_assert ROWS == 4u && M == 1u && SUB == 32u && K % 2048u == 0u;
const SUBGROUPS: u32 = TEAM / 32u;
const STEPS: u32 = K / 2048u;
const TURNS: u32 = (STEPS + SUBGROUPS - 1u) / SUBGROUPS;
const NEAR: u32 = 0x0fffffffu;
const WHOLE: bool = STEPS % SUBGROUPS == 0u;
const_assert TURNS % UNROLL == 0u;
const ACROSS: u32 = 32u;
const HALVINGS: u32 = 3u;
let lane = place.lane;
let own_subgroup = place.lid % TEAM / 32u;
let first_step = select(min(own_subgroup, STEPS - 1u), own_subgroup, WHOLE);
#repeat r 4
let at$r = (start$r + first_step * 105u) & NEAR;
var next_first$r = w[at$r + lane];
var next_second$r = w[at$r + lane + 32u];
var next_pairs$r = w[at$r + lane + 64u];
var next_scales$r = w[at$r + 96u + lane / 4u][lane % 4u];
var next_d$r = w[at$r + 104u][lane / 8u];
#end
#elifdef trits
const_assert ROWS == 8u && M == 1u && SUB == 32u && K % 256u == 0u;
const BLOCKS: u32 = K / 256u;
// Blocks of a row per turn, two per subgroup; then the words from one turn to the next.
const STRIDE: u32 = TEAM / 16u;
const REACH: u32 = STRIDE / 2u * 33u;
const TURNS: u32 = (BLOCKS + STRIDE - 1u) / STRIDE;
const_assert UNROLL <= TURNS;
// In words of 4 bytes.
const NEAR: u32 = 0x3fffffffu;
const WHOLE: bool = BLOCKS % STRIDE == 0u;
const ACROSS: u32 = 16u;
const HALVINGS: u32 = 2u;
let lane = place.lane;
let own_unit = lane & 7u;
let own_block = place.lid % TEAM / 32u * 2u + ((lane >> 3u) & 1u);
let first_block = select(min(own_block, BLOCKS - 1u), own_block, WHOLE);
#repeat r 4
let block$r = row_start(row_of(task, first_r + (lane >> 4u) * 4u + $ru), params.k) + first_block;
// A block of 33 half-words starts at a word or at its upper half, as do all others that the lane
// takes of the row.
let late$r = (block$r & 1u) == 1u;
let at$r = ((block$r * 33u + own_unit * 4u) >> 1u) & NEAR;
let d_at$r = (at$r + 16u - 2u * own_unit) & NEAR;
#end
// UNROLL turns are in flight. A lane without a block in the last turn rereads its first.
#repeat s UNROLL
let reach$s = select(0u, $su * REACH, WHOLE || $su + 1u < TURNS || own_block + $su * STRIDE < BLOCKS);
#repeat r 4
var next$s_$r = vec4(w[at$r + reach$s], w[at$r + reach$s + 1u], w[at$r + reach$s + 2u], w[d_at$r + reach$s]);
#end
#end
#elifdef blocks
#import prequant_begin_blocks
#elifdef several
#import prequant_begin_planes
const_assert M == 8u && GROUPS == 2u && RUN == 4u;
const UNITS: u32 = K / 32u;
#else
let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
#repeat r ROWS
var unit$r = Unit();
if (units <= TEAM) {
    unit$r = load_unit(start$r, min(place.lid % TEAM, units - 1u), params.k);
}
#end
#endif
