// Start of matvec_mma_q8_0x8: loads the first turn's weights before anything else. Part of main.
const GROUPS_OF_ROW: u32 = K / 256u;
const TURNS: u32 = (GROUPS_OF_ROW + SUBGROUPS - 1u) / SUBGROUPS;
let first = min(own_subgroup, GROUPS_OF_ROW - 1u);
// The unit of four that a lane reads of the even blocks and of the odd ones, as in Q4_K.
let own_unit = (t & 1u) * 2u + (t >> 1u);
let late = vec2((t & 1u) == 1u);
#repeat r 2
let first_at$r = ((start$r + first) * GROUP_WORDS) & NEAR;
var next_header$r = w[first_at$r];
#repeat h 2
var next_even$r_$h = w[first_at$r + 1u + 4u * $hu + own_unit];
var next_odd$r_$h = w[first_at$r + ODD_WORD + 4u * $hu + own_unit];
#end
#end
