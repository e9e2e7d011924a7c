// The beginning of a matvec_codes_* of eight blocks part by part, as codes_begin: what codes_blocks needs, and its
// first reads. Part of its main.
const_assert ROWS == 4u && M == 1u && SUB == 32u && K % 256u == 0u;
const SUBGROUPS: u32 = TEAM / 32u;
const GROUPS_OF_ROW: u32 = K / 256u;
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
let own_group = lane >> 3u;
let own_word = lane & 7u;
let first_group = select(min(own_subgroup * 4u + own_group, GROUPS_OF_ROW - 1u), own_subgroup * 4u + own_group, WHOLE);
#repeat r 4
let at$r = ((start$r + first_group) * GROUP_WORDS) & NEAR;
var next_even$r = w[at$r + 1u + own_word];
var next_odd$r = w[at$r + ODD_WORD + own_word];
var next_d$r = w[at$r][own_word >> 1u];
#end
