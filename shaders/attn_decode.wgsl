// attn_decode: attention for decode in one launch, without split-KV: y[t, h] = softmax over s of
// (q[t, h] . k[s, h / g] * scale) times v[s, h / g], g = heads / kv_heads. q
// [tokens, heads, head_dim], k and v [kv_len, kv_heads, head_dim], all strided, y
// [tokens, heads, head_dim]. Token t is at position past + t; causal and window bound its keys to
// one range.
// Work split: one workgroup per head and token, tiles of WG keys. Four threads read a key; then one
// thread holds a score; then one holds an element of y (or a vec4) for one of TEAMS key subsets.
// Why: reads of k and v are coalesced, and a tile needs one maximum (online softmax, as in
// FlashAttention).
// f16_kv: k and v are f16. vec4: head_dim and all offsets and strides of q, k and v are multiples
// of 4, and their ranges are multiples of 16 bytes.
#import block
#import nums
#import kv
#import key_range
#import soft_cap

override WG: u32 = 64;
override HEAD_DIM: u32 = 64;

const_assert HEAD_DIM >= 1u && HEAD_DIM <= 512u;

// Nums per head; threads that read one key; Nums of y per thread; key subsets.
const NUMS: u32 = HEAD_DIM / STEP;
const KEY_THREADS: u32 = 4u;
const PER_THREAD: u32 = (NUMS + WG - 1u) / WG;
const TEAMS: u32 = max(WG / NUMS, 1u);
const LOWEST: f32 = -3.4028234e38;
const SPANS: u32 = 4u;

struct Params {
#import attention_params
#import attention_strides
    y_offset: u32,
    scale: f32,
    soft_cap: f32,
#ifdef sinks
    sinks_offset: u32,
#endif
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<Num>;
@group(0) @binding(2) var<storage, read> k: array<Kept>;
@group(0) @binding(3) var<storage, read> v: array<Kept>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store
#ifdef quant_epilogue
const QUANT_VALUES: u32 = min(WG, HEAD_DIM);
const_assert HEAD_DIM % 32u == 0u;
#import quant_epilogue
// Results before quantisation: the thread that rounds an element may not be the one that computed
// it.
var<workgroup> made: array<f32, HEAD_DIM>;
#endif

var<workgroup> query: array<Num, NUMS>;
// Partial scores, padded by one word per key to avoid bank conflicts.
var<workgroup> parts: array<f32, WG * (KEY_THREADS + 1u)>;
var<workgroup> weights: array<f32, WG>;
var<workgroup> team_sums: array<Num, TEAMS * NUMS>;

// This thread's part of q . k for the key at `start`. Four loads in flight, to hide memory latency.
fn score_part(start: u32, lane: u32) -> Num {
    var sum = Num();
    for (var d = lane; d < NUMS; d += 4u * KEY_THREADS) {
#repeat j 4
        let d$j = d + $ju * KEY_THREADS;
        let k$j = kept_key(start + min(d$j, NUMS - 1u));
#end
#repeat j 4
        sum += select(Num(), query[min(d$j, NUMS - 1u)] * k$j, d$j < NUMS);
#end
    }
    return sum;
}

// Weighted sum of every TEAMS-th of `count` values.
fn value_part(start: u32, team: u32, count: u32) -> Num {
    let stride = params.v_token_stride / STEP;
    var sum = Num();
    for (var key = team; key < count; key += 8u * TEAMS) {
#repeat j 8
        let key$j = min(key + $ju * TEAMS, count - 1u);
        let v$j = kept_value(start + key$j * stride);
#end
#repeat j 8
        sum += select(0.0, weights[key$j], key + $ju * TEAMS < count) * v$j;
#end
    }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, place: Place) {
    if (wid.x >= params.heads || wid.y >= params.tokens) {
        return;
    }
    let lid = place.lid;
    let lane = lid % KEY_THREADS;
    let kv_head = wid.x / (params.heads / params.kv_heads);
    let q_start = params.q_offset + wid.y * params.q_token_stride + wid.x * params.q_head_stride;
    for (var d = lid; d < NUMS; d += WG) {
        query[d] = q[q_start / STEP + d];
    }
    workgroupBarrier();

    let k_start = params.k_offset + kv_head * params.k_head_stride;
    let v_start = params.v_offset + kv_head * params.v_head_stride;
    let range = key_range(wid.y);
    let team = lid / NUMS;
    var sums: array<Num, PER_THREAD>;
    var largest = LOWEST;
    var total = 0.0;
    for (var base = range.x; base < range.y; base += WG) {
        // Partial scores, four threads per key.
        let count = min(WG, range.y - base);
#repeat t 4
        {
            let key = $tu * (WG / KEY_THREADS) + lid / KEY_THREADS;
            if (key < count) {
                let start = (k_start + (base + key) * params.k_token_stride) / STEP;
                parts[key * (KEY_THREADS + 1u) + lane] = fold(score_part(start, lane));
            }
        }
#end
        workgroupBarrier();
        // One score per thread, and the new maximum.
        var score = LOWEST;
        if (lid < count) {
            let at = lid * (KEY_THREADS + 1u);
            score = ((parts[at] + parts[at + 1u]) + (parts[at + 2u] + parts[at + 3u])) * params.scale;
            score = capped(score);
        }
        let next = max(largest, block_max(score, place));
        let shrink = exp(largest - next);
        largest = next;
        let weight = select(0.0, exp(score - next), lid < count);
        weights[lid] = weight;
        total = total * shrink + weight;
        workgroupBarrier();
        // Values: each team takes every TEAMS-th key.
        for (var p = 0u; p < PER_THREAD; p++) {
            let d = lid % NUMS + p * WG;
            var sum = sums[p] * shrink;
            if (team < TEAMS && d < NUMS) {
                sum += value_part((v_start + base * params.v_token_stride) / STEP + d, team, count);
            }
            sums[p] = sum;
        }
        workgroupBarrier();
    }

    for (var p = 0u; p < PER_THREAD; p++) {
        let d = lid % NUMS + p * WG;
        if (team < TEAMS && d < NUMS) {
            team_sums[team * NUMS + d] = sums[p];
        }
    }
    // Also the barrier between the teams' sums and their readers.
    var all = block_sum(total, place);
#ifdef sinks
    all += sink_weight(wid.x, largest);
#endif
    let factor = select(1.0 / all, 0.0, all == 0.0);
    for (var d = lid; d < NUMS; d += WG) {
        var sum = team_sums[d];
        for (var other = 1u; other < TEAMS; other++) {
            sum += team_sums[other * NUMS + d];
        }
        for (var i = 0u; i < STEP; i++) {
#ifdef quant_epilogue
            made[d * STEP + i] = store(wid.y, wid.x, d * STEP + i, element(sum, i) * factor);
#else
            store(wid.y, wid.x, d * STEP + i, element(sum, i) * factor);
#endif
        }
    }
#ifdef quant_epilogue
    workgroupBarrier();
    for (var base = 0u; base < HEAD_DIM; base += WG) {
        let at = min(base + lid, HEAD_DIM - 1u);
        let column = wid.x * HEAD_DIM + at;
        let exists = base + lid < HEAD_DIM;
        quant_epilogue(lid, QuantValue(wid.y, column, made[at], quant_gain(column), exists));
        workgroupBarrier();
    }
#endif
}
