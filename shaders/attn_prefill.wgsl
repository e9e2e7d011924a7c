// attn_prefill: tiled attention with online softmax (FlashAttention) for prefill: y[t, h] = softmax
// over s of (q[t, h] . k[s, h / g] * scale) times v[s, h / g], g = heads / kv_heads. q
// [tokens, heads, head_dim], k and v [kv_len, kv_heads, head_dim], all strided, y
// [tokens, heads, head_dim]. Token t is at position past + t; causal and window bound its keys to
// one range.
// Work split: one workgroup per head and 64 tokens, tiles of 32 keys. Thread (tx, ty) of 16 x 16
// computes tokens 4 ty + a: scores of keys tx and tx + 16, then vec4s tx + 16 b of y.
// Why: k and v are read once per 64 tokens, and q, k (16 columns at a time) and v fit in 16 KiB of
// workgroup memory for heads up to 512. f16_kv: k and v are f16.
#import key_range
#import nums
#import kv
#import soft_cap

override HEAD_DIM: u32 = 64;

const_assert HEAD_DIM >= 1u && HEAD_DIM <= 512u;

const THREADS: u32 = 256u;
const TOKENS: u32 = 64u;
const PAIRS: u32 = 16u;
// vec4s per head; those per thread; staged row of q or k: 4 and one of padding against bank
// conflicts.
const NUMS: u32 = (HEAD_DIM + 3u) / 4u;
const PER_THREAD: u32 = (NUMS + 15u) / 16u;
const STRIDE: u32 = 5u;
const STAGE: u32 = 512u;
const K_STAGE: u32 = TOKENS * STRIDE;
// Key pairs whose values fit in the stage.
const V_PAIRS: u32 = min(PAIRS, STAGE / 2u / NUMS);
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
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<Kept>;
@group(0) @binding(3) var<storage, read> v: array<Kept>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store

// In turn: columns of q and k, values of v, partial maxima and sums.
var<workgroup> stage: array<vec4<f32>, STAGE>;
// Softmax weights of keys (p, p + 16) per token.
var<workgroup> weights: array<vec2<f32>, TOKENS * PAIRS>;

// Four columns from c of the row at `start`, zero from HEAD_DIM on.
fn load_q(start: u32, c: u32) -> vec4<f32> {
    var value = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        if (c + i < HEAD_DIM) {
            value[i] = q[start + c + i];
        }
    }
    return value;
}

fn load_k(start: u32, c: u32) -> vec4<f32> {
    var value = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        if (c + i < HEAD_DIM) {
            value[i] = kept_key(start + c + i);
        }
    }
    return value;
}

fn load_v(start: u32, c: u32) -> vec4<f32> {
    var value = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        if (c + i < HEAD_DIM) {
            value[i] = kept_value(start + c + i);
        }
    }
    return value;
}

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let first = wid.y * TOKENS;
    if (wid.x >= params.heads || first >= params.tokens) {
        return;
    }
    let tx = lid & 15u;
    let ty = lid >> 4u;
    let last = min(first + TOKENS, params.tokens) - 1u;
    let kv_head = wid.x / (params.heads / params.kv_heads);
    let q_start = params.q_offset + wid.x * params.q_head_stride;
    let k_start = params.k_offset + kv_head * params.k_head_stride;
    let v_start = params.v_offset + kv_head * params.v_head_stride;
    // Tokens past the end repeat the last one and are not stored.
    var ranges: array<vec2<u32>, 4>;
    for (var a = 0u; a < 4u; a++) {
        ranges[a] = key_range(min(first + 4u * ty + a, last));
    }
    var sums: array<vec4<f32>, 4u * PER_THREAD>;
    for (var n = 0u; n < 4u * PER_THREAD; n++) {
        sums[n] = vec4(0.0);
    }
    // For the four tokens of this thread.
    var largest = vec4(LOWEST);
    var totals = vec4(0.0);

    // Both ends of a token's range grow with the token.
    let key_end = key_range(last).y;
    for (var base = key_range(first).x; base < key_end; base += 2u * PAIRS) {
        var scores: array<vec2<f32>, 4>;
        for (var a = 0u; a < 4u; a++) {
            scores[a] = vec2(0.0);
        }
        for (var c = 0u; c < HEAD_DIM; c += 16u) {
            {
                let token = min(first + (lid >> 2u), last);
                stage[(lid >> 2u) * STRIDE + (lid & 3u)] =
                    load_q(q_start + token * params.q_token_stride, c + (lid & 3u) * 4u);
            }
            if (lid < 8u * PAIRS) {
                let key = min(base + (lid >> 2u), key_end - 1u);
                stage[K_STAGE + (lid >> 2u) * STRIDE + (lid & 3u)] =
                    load_k(k_start + key * params.k_token_stride, c + (lid & 3u) * 4u);
            }
            workgroupBarrier();
            for (var d = 0u; d < 4u; d++) {
                let k0 = stage[K_STAGE + tx * STRIDE + d];
                let k1 = stage[K_STAGE + (tx + PAIRS) * STRIDE + d];
                for (var a = 0u; a < 4u; a++) {
                    let qa = stage[(4u * ty + a) * STRIDE + d];
                    scores[a] = vec2(dot4(qa, k0, scores[a].x), dot4(qa, k1, scores[a].y));
                }
            }
            workgroupBarrier();
        }

        // Scores to weights: the maximum over the 16 threads of a token, four tokens at once.
        let key0 = base + tx;
        let key1 = base + tx + PAIRS;
        var mine = vec4(LOWEST);
        for (var a = 0u; a < 4u; a++) {
            scores[a] *= params.scale;
            scores[a] = vec2(capped(scores[a].x), capped(scores[a].y));
            let seen0 = key0 >= ranges[a].x && key0 < ranges[a].y;
            let seen1 = key1 >= ranges[a].x && key1 < ranges[a].y;
            mine[a] = max(select(LOWEST, scores[a].x, seen0), select(LOWEST, scores[a].y, seen1));
        }
        stage[lid] = mine;
        workgroupBarrier();
        var next = largest;
        for (var i = 0u; i < 16u; i++) {
            next = max(next, stage[ty * 16u + i]);
        }
        let shrink = exp(largest - next);
        largest = next;
        totals *= shrink;
        for (var a = 0u; a < 4u; a++) {
            let seen0 = key0 >= ranges[a].x && key0 < ranges[a].y;
            let seen1 = key1 >= ranges[a].x && key1 < ranges[a].y;
            let weight = vec2(
                select(0.0, exp(scores[a].x - next[a]), seen0),
                select(0.0, exp(scores[a].y - next[a]), seen1),
            );
            weights[(4u * ty + a) * PAIRS + tx] = weight;
            totals[a] += weight.x + weight.y;
            for (var b = 0u; b < PER_THREAD; b++) {
                sums[a * PER_THREAD + b] *= shrink[a];
            }
        }
        workgroupBarrier();

        // Values: keys p and p + 16 of each pair, as many pairs at a time as the stage holds.
        for (var pair = 0u; pair < PAIRS; pair += V_PAIRS) {
            for (var n = lid; n < 2u * V_PAIRS * NUMS; n += THREADS) {
                let place = n / NUMS;
                let offset = pair + (place >> 1u) + (place & 1u) * PAIRS;
                let key = min(base + offset, key_end - 1u);
                stage[n] = load_v(v_start + key * params.v_token_stride, (n % NUMS) * 4u);
            }
            workgroupBarrier();
            // Not in the loop condition: PoCL 6 cannot split such a loop at barriers.
            let pairs = min(V_PAIRS, PAIRS - pair);
            for (var p = 0u; p < pairs; p++) {
                var ws: array<vec2<f32>, 4>;
                for (var a = 0u; a < 4u; a++) {
                    ws[a] = weights[(4u * ty + a) * PAIRS + pair + p];
                }
                for (var b = 0u; b < PER_THREAD; b++) {
                    // Columns past the head repeat the last ones and are not stored.
                    let d = min(tx + 16u * b, NUMS - 1u);
                    let v0 = stage[2u * p * NUMS + d];
                    let v1 = stage[(2u * p + 1u) * NUMS + d];
                    for (var a = 0u; a < 4u; a++) {
                        sums[a * PER_THREAD + b] += ws[a].x * v0 + ws[a].y * v1;
                    }
                }
            }
            workgroupBarrier();
        }
    }

    stage[lid] = totals;
    workgroupBarrier();
    var all = vec4(0.0);
    for (var i = 0u; i < 16u; i++) {
        all += stage[ty * 16u + i];
    }
#ifdef sinks
    for (var a = 0u; a < 4u; a++) {
        all[a] += sink_weight(wid.x, largest[a]);
    }
#endif
    let factor = select(vec4(1.0) / all, vec4(0.0), all == vec4(0.0));
    for (var a = 0u; a < 4u; a++) {
        let token = first + 4u * ty + a;
        if (token <= last) {
            for (var b = 0u; b < PER_THREAD; b++) {
                let column = (tx + 16u * b) * 4u;
                for (var i = 0u; i < 4u; i++) {
                    if (column + i < HEAD_DIM) {
                        store(token, wid.x, column + i, sums[a * PER_THREAD + b][i] * factor[a]);
                    }
                }
            }
        }
    }
}
