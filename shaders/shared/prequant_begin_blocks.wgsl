// First part of main of a matvec_prequant_* for eight interleaved blocks of 32: declarations and first
// loads of prequant_blocks.
#import prequant_begin_planes
const_assert M == 1u;
let own_word = lane & 7u;
#repeat r 4
let at$r = ((start$r + first_block) * GROUP_WORDS) & NEAR;
var next_even$r = w[at$r + 1u + own_word];
var next_odd$r = w[at$r + ODD_WORD + own_word];
var next_d$r = w[at$r][own_word >> 1u];
#end
