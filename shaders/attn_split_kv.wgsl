// attn_split_kv: first pass of flash decoding (split-KV): for each slice s of a token's keys,
// part[t, h, s] = sum of w v and the pair (m, sum of w); w = exp(score - m), score = q[t, h] .
// k * scale, m the slice's largest score. Inputs as in attn_decode; part
// [tokens, heads, splits, head_dim], then pairs [tokens, heads, splits, 2]. Empty slices write
// nothing. attn_split_kv_reduce merges slices.
// Work split: one workgroup per token, slice and up to HEADS query heads of a kv head, tiles of
// WG / 4 keys. Four threads read a key, then threads hold scores, then elements for each of TEAMS
// key subsets.
// Why: with few tokens and heads, occupancy needs split keys. Query heads of a group (GQA) share
// reads; keys load before queries arrive, values during scores. f16_kv, vec4: as in attn_decode.
override WG: u32 = 64;
override HEAD_DIM: u32 = 64;
override HEADS: u32 = 4;

#import nums
#import kv
#import key_range
#import key_slices

const_assert HEAD_DIM >= 1u && HEAD_DIM <= 256u && HEADS >= 1u;
const_assert WG >= 8u && WG <= 256u && (WG & (WG - 1u)) == 0u;

// Nums per head; threads that read one key; keys per tile.
const NUMS: u32 = HEAD_DIM / STEP;
const KEY_THREADS: u32 = 4u;
const KEYS: u32 = WG / KEY_THREADS;
// Nums of a key per thread.
const OWN_NUMS: u32 = (NUMS + KEY_THREADS - 1u) / KEY_THREADS;
// Scores per tile and per thread.
const SCORES: u32 = HEADS * KEYS;
const OWN_SCORES: u32 = (SCORES + WG - 1u) / WG;
// Key subsets; keys and Nums of one subset per thread.
const TEAMS: u32 = max(WG / NUMS, 1u);
const TEAM_KEYS: u32 = (KEYS + TEAMS - 1u) / TEAMS;
const PER_THREAD: u32 = (NUMS + WG - 1u) / WG;
const SPANS: u32 = 4u;
const LOWEST: f32 = -3.4028234e38;

// The 16 KiB of workgroup memory that every device has, in words.
const_assert HEADS * TEAMS * NUMS * STEP + SCORES * (KEY_THREADS + 3u) + 2u * HEADS <= 4096u;

struct Params {
#import attention_params
    splits: u32,
    granule: u32,
#import attention_strides
    scale: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<Num>;
@group(0) @binding(2) var<storage, read> k: array<Kept>;
@group(0) @binding(3) var<storage, read> v: array<Kept>;
@group(0) @binding(1u + OWN_READS) var<storage, read_write> part: array<f32>;

// Queries; at the end sums of the teams.
var<workgroup> nums: array<Num, HEADS * TEAMS * NUMS>;
// Partial scores, padded by one word per key to avoid bank conflicts.
var<workgroup> parts: array<f32, SCORES * (KEY_THREADS + 1u)>;
// Scores; at the end sums of weights.
var<workgroup> scores: array<f32, SCORES>;
var<workgroup> weights: array<f32, SCORES>;
// Per head: rescale factor of the running sums, and the largest score.
var<workgroup> shrinks: array<f32, HEADS>;
var<workgroup> tops: array<f32, HEADS>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = params.heads / params.kv_heads;
    let chunks = (group + HEADS - 1u) / HEADS;
    let kv_head = wid.x / chunks;
    let range = key_range(wid.y);
    let seen = range.y - range.x;
    let len = slice_len(seen);
    if (kv_head >= params.kv_heads || wid.y >= params.tokens || wid.z >= params.splits
        || wid.z * len >= seen) {
        return;
    }
    let begin = range.x + wid.z * len;
    let end = min(begin + len, range.y);
    let first_head = kv_head * group + (wid.x % chunks) * HEADS;
    let last_head = (kv_head + 1u) * group - 1u;
    for (var n = lid; n < HEADS * NUMS; n += WG) {
        // Heads past the group repeat its last one and are not stored.
        let head = min(first_head + n / NUMS, last_head);
        let start = params.q_offset + wid.y * params.q_token_stride + head * params.q_head_stride;
        nums[n] = q[start / STEP + n % NUMS];
    }

    let k_start = params.k_offset + kv_head * params.k_head_stride;
    let v_start = params.v_offset + kv_head * params.v_head_stride;
    let own_key = lid / KEY_THREADS;
    let lane = lid % KEY_THREADS;
    let team = lid / NUMS;
    var sums: array<Num, HEADS * PER_THREAD>;
    var largest: array<f32, OWN_SCORES>;
    var totals: array<f32, OWN_SCORES>;
    for (var i = 0u; i < OWN_SCORES; i++) {
        largest[i] = LOWEST;
    }
    for (var base = begin; base < end; base += KEYS) {
        let count = min(KEYS, end - base);
        // Prefetches the values of this thread's keys.
        var values: array<Num, TEAM_KEYS * PER_THREAD>;
        for (var i = 0u; i < TEAM_KEYS; i++) {
            let key = base + min(i * TEAMS + min(team, TEAMS - 1u), count - 1u);
            for (var p = 0u; p < PER_THREAD; p++) {
                let d = min(lid % NUMS + p * WG, NUMS - 1u);
                values[i * PER_THREAD + p] = kept_value((v_start + key * params.v_token_stride) / STEP + d);
            }
        }
        // Partial scores, four threads per key.
        let k_row = (k_start + (base + min(own_key, count - 1u)) * params.k_token_stride) / STEP;
        var keys: array<Num, OWN_NUMS>;
        for (var j = 0u; j < OWN_NUMS; j++) {
            keys[j] = kept_key(k_row + min(lane + j * KEY_THREADS, NUMS - 1u));
        }
        // In the first turn, this also makes all queries visible.
        workgroupBarrier();
        for (var h = 0u; h < HEADS; h++) {
            var product = Num();
            for (var j = 0u; j < OWN_NUMS; j++) {
                let d = lane + j * KEY_THREADS;
                product += select(Num(), nums[h * NUMS + min(d, NUMS - 1u)] * keys[j], d < NUMS);
            }
            parts[(h * KEYS + own_key) * (KEY_THREADS + 1u) + lane] = fold(product);
        }
        workgroupBarrier();
        for (var n = lid; n < SCORES; n += WG) {
            let at = n * (KEY_THREADS + 1u);
            let score = ((parts[at] + parts[at + 1u]) + (parts[at + 2u] + parts[at + 3u])) * params.scale;
            scores[n] = select(LOWEST, score, n % KEYS < count);
        }
        workgroupBarrier();
        for (var i = 0u; i < OWN_SCORES; i++) {
            let n = lid + i * WG;
            if (n < SCORES) {
                let h = n / KEYS;
                var next = largest[i];
                for (var key = 0u; key < KEYS; key++) {
                    next = max(next, scores[h * KEYS + key]);
                }
                let weight = select(0.0, exp(scores[n] - next), n % KEYS < count);
                let shrink = exp(largest[i] - next);
                weights[n] = weight;
                totals[i] = totals[i] * shrink + weight;
                largest[i] = next;
                if (n % KEYS == 0u) {
                    shrinks[h] = shrink;
                }
            }
        }
        workgroupBarrier();
        for (var h = 0u; h < HEADS; h++) {
            for (var p = 0u; p < PER_THREAD; p++) {
                var sum = sums[h * PER_THREAD + p] * shrinks[h];
                for (var i = 0u; i < TEAM_KEYS; i++) {
                    let key = i * TEAMS + team;
                    let weight = select(0.0, weights[h * KEYS + min(key, KEYS - 1u)], key < KEYS);
                    sum += weight * values[i * PER_THREAD + p];
                }
                sums[h * PER_THREAD + p] = sum;
            }
        }
    }

    // Every thread has passed the last use of the queries and the scores.
    for (var h = 0u; h < HEADS; h++) {
        for (var p = 0u; p < PER_THREAD; p++) {
            let d = lid % NUMS + p * WG;
            if (team < TEAMS && d < NUMS) {
                nums[(h * TEAMS + team) * NUMS + d] = sums[h * PER_THREAD + p];
            }
        }
    }
    for (var i = 0u; i < OWN_SCORES; i++) {
        let n = lid + i * WG;
        if (n < SCORES) {
            scores[n] = totals[i];
            if (n % KEYS == 0u) {
                tops[n / KEYS] = largest[i];
            }
        }
    }
    workgroupBarrier();
    let token_row = wid.y * params.heads;
    for (var n = lid; n < HEADS * NUMS; n += WG) {
        let head = first_head + n / NUMS;
        if (head <= last_head) {
            let start = n / NUMS * TEAMS * NUMS + n % NUMS;
            var sum = nums[start];
            for (var other = 1u; other < TEAMS; other++) {
                sum += nums[start + other * NUMS];
            }
            let row = (token_row + head) * params.splits + wid.z;
            for (var i = 0u; i < STEP; i++) {
                part[row * HEAD_DIM + n % NUMS * STEP + i] = element(sum, i);
            }
        }
    }
    if (lid < HEADS && first_head + lid <= last_head) {
        var total = 0.0;
        for (var key = 0u; key < KEYS; key++) {
            total += scores[lid * KEYS + key];
        }
        let row = (token_row + first_head + lid) * params.splits + wid.z;
        let stats = params.tokens * params.heads * params.splits * HEAD_DIM + 2u * row;
        part[stats] = tops[lid];
        part[stats + 1u] = total;
    }
}
