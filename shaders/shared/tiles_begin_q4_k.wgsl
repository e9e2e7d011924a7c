// The beginning of a matvec_tiles_q4_k, before anything is read but weights: those of the first turn. Part of its main.
const BLOCKS: u32 = K / 256u;
const TURNS: u32 = (BLOCKS + SUBGROUPS - 1u) / SUBGROUPS;
let first = min(place.subgroup, BLOCKS - 1u);
#repeat r 2
let first_at$r = ((start$r + first) * 9u) & NEAR;
var next_header$r = w[first_at$r];
#repeat h 2
#repeat l 2
#repeat s 2
var next$r_$h_$l_$s = w[first_at$r + 1u + 4u * $hu + 2u * $lu + $su][t];
#end
#end
#end
#end
