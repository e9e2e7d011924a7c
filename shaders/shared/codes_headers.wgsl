// The sums of a matvec_codes_q4_k where subgroups have 32 lanes: one row of x, four rows of w a team. Part of its main.
// Work split: the lanes of a subgroup take 32 neighbouring units, so four blocks of each row: as in codes_units each
// multiplies its unit of every row. Of the 16 headers of those blocks each lane reads one, two lanes a header, takes
// four scales and four minima out of it, multiplies the minima with what the codes of their 32 columns add up to, and
// hands the scales to whom they belong.
// Why: a lane that decodes the header of each unit for itself spends more on that than on products; products of a
// token are bound by instructions before they are by memory.
const_assert ROWS == 4u && M == 1u;
let units = params.k / 32u;
// Where the sums of codes lie.
let sums_at = factors0 + (params.k + 127u) / 128u;
let lane = place.lane;
let header_row = lane >> 3u;
let header_block = (lane >> 1u) & 3u;
let upper = (lane & 1u) == 1u;
var header_start = start0;
#repeat r 4
if (header_row == $ru) {
    header_start = start$r;
}
#end
var minima = 0.0;
for (var base = place.lid % TEAM - lane; base < units; base += TEAM) {
    let u = min(base + lane, units - 1u);
    let exists = base + lane < units;
    // A unit further is an eighth of a block.
    let own = u >> 3u;
    let block = min((base >> 3u) + header_block, units / 8u - 1u);
    let header = w[(header_start + block) * 9u];
#repeat r 4
    let q$r = w[(start$r + own) * 9u + 1u + (u & 7u)];
#end
    let low = x[codes0 + u * 2u];
    let high = x[codes0 + u * 2u + 1u];
    let pair = (u >> 1u) * 2u;
    let d_low = bitcast<f32>(x[factors0 + (pair >> 2u)][pair & 3u]);
    let d_high = bitcast<f32>(x[factors0 + (pair >> 2u)][(pair & 3u) + 1u]);
    let part = bitcast<vec4<f32>>(x[sums_at + block * 2u + (lane & 1u)]);

    let s_low = header.y & 0x3f3f3f3fu;
    let s_high = (header.w & 0x0f0f0f0fu) | ((header.y >> 2u) & 0x30303030u);
    let m_low = header.z & 0x3f3f3f3fu;
    let m_high = ((header.w >> 4u) & 0x0f0f0f0fu) | ((header.z >> 2u) & 0x30303030u);
    let scales = select(s_low, s_high, upper);
    let mins = vec4<f32>(unpack4xU8(select(m_low, m_high, upper)));
    let there = (base >> 3u) + header_block < units / 8u;
    minima += select(0.0, half_low(header.x >> 16u) * dot(mins, part), there);
    let d = half_low(header.x);
    let by_low = select(0.0, d_low, exists);
    let by_high = select(0.0, d_high, exists);
#repeat r 4
    {
        let holder = (lane >> 2u) + 8u * $ru;
        let two = subgroupShuffle(scales, holder) >> ((lane & 2u) * 8u);
        let by = subgroupShuffle(d, holder);
        // Sums that begin at the bits of 1.5 * 2^23 end at those of a float.
        var a = 0x4b400000;
        var b = 0x4b400000;
#repeat p 4
        a += dot4I8Packed(q$r[$p] & 0x0f0f0f0fu, low[$p]);
        b += dot4I8Packed((q$r[$p] >> 4u) & 0x0f0f0f0fu, high[$p]);
#end
        let first = (bitcast<f32>(a) - 12582912.0) * (f32(two & 0xffu) * by_low);
        let second = (bitcast<f32>(b) - 12582912.0) * (f32((two >> 8u) & 0xffu) * by_high);
        sum$r_0 += by * (first + second);
    }
#end
}
#repeat r 4
sum$r_0 -= select(0.0, minima, header_row == $ru);
#end
