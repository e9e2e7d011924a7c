// Start of matvec_mma_q4_k: loads the first turn's weights before anything else. Part of main.
const BLOCKS: u32 = K / 256u;
const TURNS: u32 = (BLOCKS + SUBGROUPS - 1u) / SUBGROUPS;
let first = min(own_subgroup, BLOCKS - 1u);
// The unit of four that a lane reads: units 0 and 1 are a pair of sub-blocks, 2 and 3 another;
// lanes t and t ^ 1 read the same half of either.
let own_unit = (t & 1u) * 2u + (t >> 1u);
let odd = vec2((t & 1u) == 1u);
#repeat r 2
let first_at$r = ((start$r + first) * 9u) & NEAR;
var next_header$r = w[first_at$r];
#repeat h 2
var next$r_$h = w[first_at$r + 1u + 4u * $hu + own_unit];
#end
#end
