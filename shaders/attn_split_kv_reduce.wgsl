// attn_split_kv_reduce: second pass of flash decoding (split-KV reduction), after attn_split_kv: y[t, h] = sum
// over s of exp(m[s] - M) part[t, h, s] / sum over s of exp(m[s] - M) l[s]. l[s] is the sum of
// weights of slice s, M the largest m. part and the pairs (m, l) are as attn_split_kv writes them, for
// non-empty slices only; y [tokens, heads, head_dim]. A token that sees no key gives zeros.
// Work split: one workgroup per head and token. Threads run over slices to find weights, then over
// elements, for each of TEAMS subsets of the slices.
// Why: merges the partial softmaxes of keys that are split over workgroups.
override WG: u32 = 64;
override HEAD_DIM: u32 = 64;

#import key_range
#import key_slices

const_assert HEAD_DIM >= 1u && HEAD_DIM <= 256u && WG <= 256u;

const MAX_SPLITS: u32 = 64u;
const TEAMS: u32 = max(WG / HEAD_DIM, 1u);
const LOWEST: f32 = -3.4028234e38;
const SPANS: u32 = 2u;

struct Params {
    tokens: u32,
    heads: u32,
    head_dim: u32,
    kv_len: u32,
#ifdef spans
    spans_offset: u32,
#else
    past: u32,
#endif
    window: u32,
    causal: u32,
    splits: u32,
    granule: u32,
    y_offset: u32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> part: array<f32>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store
#ifdef quant_epilogue
const QUANT_VALUES: u32 = HEAD_DIM;
const_assert QUANT_VALUES <= WG && QUANT_VALUES % 32u == 0u;
#import quant_epilogue
#endif

var<workgroup> tops: array<f32, MAX_SPLITS>;
var<workgroup> totals: array<f32, MAX_SPLITS>;
var<workgroup> team_sums: array<f32, TEAMS * HEAD_DIM>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    if (wid.x >= params.heads || wid.y >= params.tokens) {
        return;
    }
    let range = key_range(wid.y);
    let seen = range.y - range.x;
    let len = slice_len(seen);
    let used = min((seen + len - 1u) / len, min(params.splits, MAX_SPLITS));
    let row = (wid.y * params.heads + wid.x) * params.splits;
    let stats = params.tokens * params.heads * params.splits * HEAD_DIM + 2u * row;
    // Loads the thread's first values before the weights are computed, to overlap the latencies.
    let team = lid / HEAD_DIM;
    let own = lid % HEAD_DIM;
    let start = row * HEAD_DIM;
#repeat j 8
    let ahead$j = part[start + min(team + $ju * TEAMS, max(used, 1u) - 1u) * HEAD_DIM + own];
#end
    for (var s = lid; s < used; s += WG) {
        tops[s] = part[stats + 2u * s];
        totals[s] = part[stats + 2u * s + 1u];
    }
    workgroupBarrier();
    var largest = LOWEST;
    for (var s = 0u; s < used; s++) {
        largest = max(largest, tops[s]);
    }
    workgroupBarrier();
    for (var s = lid; s < used; s += WG) {
        let weight = exp(tops[s] - largest);
        tops[s] = weight;
        totals[s] *= weight;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var s = 0u; s < used; s++) {
        total += totals[s];
    }
    let factor = select(1.0 / total, 0.0, total == 0.0);
    if (team < TEAMS) {
        for (var d = own; d < HEAD_DIM; d += WG) {
            // Weighted sum of this element over every TEAMS-th slice.
            var sum = 0.0;
            for (var s = team; s < used; s += 8u * TEAMS) {
#repeat j 8
                let s$j = min(s + $ju * TEAMS, used - 1u);
                var part$j = ahead$j;
#end
                if (d != own || s != team) {
#repeat j 8
                    part$j = part[start + s$j * HEAD_DIM + d];
#end
                }
#repeat j 8
                sum += select(0.0, tops[s$j], s + $ju * TEAMS < used) * part$j;
#end
            }
            team_sums[team * HEAD_DIM + d] = sum;
        }
    }
    workgroupBarrier();
#ifdef quant_epilogue
    let gain = quant_gain(wid.x * HEAD_DIM + lid % HEAD_DIM);
    var value = 0.0;
#endif
    for (var d = lid; d < HEAD_DIM; d += WG) {
        var sum = team_sums[d];
        for (var other = 1u; other < TEAMS; other++) {
            sum += team_sums[other * HEAD_DIM + d];
        }
#ifdef quant_epilogue
        value = store(wid.y, wid.x, d, sum * factor);
#else
        store(wid.y, wid.x, d, sum * factor);
#endif
    }
#ifdef quant_epilogue
    // A thread has at most one element.
    let column = wid.x * HEAD_DIM + min(lid, HEAD_DIM - 1u);
    quant_epilogue(lid, QuantValue(wid.y, column, value, gain, lid < HEAD_DIM));
#endif
}
