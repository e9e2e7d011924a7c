// Start of matvec_mma_q6_kx8: loads the first turn's weights before anything else. Part of main.
// A chunk is 64 columns of the first half of 2,048 and 64 of the second: units n, n + 1, 32 + n and
// 33 + n, n even.
const CHUNKS: u32 = K / 128u;
const TURNS: u32 = (CHUNKS + SUBGROUPS - 1u) / SUBGROUPS;
let first = min(own_subgroup, CHUNKS - 1u);
let first_n = first % 16u * 2u;
#repeat r 2
let first_at$r = (start$r + first / 16u * 105u) & NEAR;
var next_d$r = w[first_at$r + 104u][first_n / 8u];
#repeat s 2
var next_pairs$r_$s = w[first_at$r + 64u + first_n + $su];
var next_scales$r_$s = w[first_at$r + 96u + first_n / 4u][(first_n + $su) % 4u];
#repeat h 2
var next$r_$h_$s = w[first_at$r + 32u * $hu + first_n + $su][t];
#end
#end
#end
