// attn_subgroup: subgroup flash decoding: attn_decode's y for 32-lane subgroups, head_dim 32, 64, 128
// or 256.
// Work split: one workgroup per head and token. HEAD_DIM / EACH lanes share a key, 16 bytes each,
// with AT_ONCE loads in flight. Subgroups take keys in turn and merge at the end.
// Kin to FlashAttention 2 (Dao, 2023): online softmax, divided by the sum of weights only at the end.
// With one query per head, subgroups split the keys instead of the queries.
// Why: online softmax state stays in the lanes of a key, so there are two barriers in all;
// attn_decode has four per tile, and attn_split_kv needs a second launch.
// f16_kv: k and v are f16.
#import key_range

override WG: u32 = 128;
override HEAD_DIM: u32 = 64;
override AT_ONCE: u32 = 4;

#ifdef f16_kv
#import half
const LANE_ELEMENTS: u32 = 8u;
#else
const LANE_ELEMENTS: u32 = 4u;
#endif
const QUADS: u32 = LANE_ELEMENTS / 4u;
const LANES: u32 = HEAD_DIM / LANE_ELEMENTS;
const KEYS: u32 = 32u / LANES;
const SUBGROUPS: u32 = WG / 32u;
// Row stride of sums, padded against bank conflicts.
const STRIDE: u32 = HEAD_DIM + 1u;
const LOWEST: f32 = -3.4028234e38;
const LOG2_E: f32 = 1.442695;
const SPANS: u32 = 4u;

const_assert HEAD_DIM % LANE_ELEMENTS == 0u && LANES <= 32u && (LANES & (LANES - 1u)) == 0u && WG >= HEAD_DIM;
const_assert WG >= 32u && WG <= 1024u && (WG & (WG - 1u)) == 0u && HEAD_DIM % SUBGROUPS == 0u;
// The 16 KiB of workgroup memory that every device has, in words.
const_assert SUBGROUPS * (STRIDE + 2u) + HEAD_DIM <= 4096u;

struct Params {
#import attention_params
#import attention_strides
    y_offset: u32,
    scale: f32,
#import fusion_params
}

struct Thread {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<u32>>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store
#ifdef quant_epilogue
const QUANT_VALUES: u32 = HEAD_DIM;
const_assert QUANT_VALUES % 32u == 0u;
#import quant_epilogue
#endif

// Per subgroup: largest score, sum of weights, weighted sums of values.
var<workgroup> subgroup_max: array<f32, SUBGROUPS>;
var<workgroup> subgroup_sum: array<f32, SUBGROUPS>;
var<workgroup> subgroup_acc: array<f32, SUBGROUPS * STRIDE>;
var<workgroup> outputs: array<f32, HEAD_DIM>;

// Elements 4 i to 4 i + 3 of 16 bytes.
fn quad(words: vec4<u32>, i: u32) -> vec4<f32> {
#ifdef f16_kv
    let two = select(words.xy, words.zw, i == 1u);
    return vec4(f16_low(two.x), f16_high(two.x), f16_low(two.y), f16_high(two.y));
#else
    return bitcast<vec4<f32>>(words);
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, thread: Thread) {
    if (wid.x >= params.heads || wid.y >= params.tokens) {
        return;
    }
    let key_slot = thread.lane / LANES;
    let head_lane = thread.lane % LANES;
    let kv_head = wid.x / (params.heads / params.kv_heads);
    let q_start = params.q_offset + wid.y * params.q_token_stride + wid.x * params.q_head_stride;
    // Scores are in powers of two.
    let score_scale = params.scale * LOG2_E;
#repeat i QUADS
    let q$i = q[q_start / 4u + head_lane * QUADS + $iu] * score_scale;
    var acc$i = vec4<f32>();
#end
    let k_start = (params.k_offset + kv_head * params.k_head_stride) / LANE_ELEMENTS + head_lane;
    let v_start = (params.v_offset + kv_head * params.v_head_stride) / LANE_ELEMENTS + head_lane;
    let k_stride = params.k_token_stride / LANE_ELEMENTS;
    let v_stride = params.v_token_stride / LANE_ELEMENTS;
    let range = key_range(wid.y);
    var running_max = LOWEST;
    var running_sum = 0.0;
    for (var base = range.x; base < range.y; base += AT_ONCE * SUBGROUPS * KEYS) {
#repeat j AT_ONCE
        let key$j = base + ($ju * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
        let k$j = k[k_start + min(key$j, range.y - 1u) * k_stride];
#end
#repeat j AT_ONCE
        let v$j = v[v_start + min(key$j, range.y - 1u) * v_stride];
#end
#repeat j AT_ONCE
        var score$j = 0.0;
#repeat i QUADS
        score$j += dot(q$i, quad(k$j, $iu));
#end
#end
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
#repeat j AT_ONCE
            score$j += subgroupShuffleXor(score$j, step);
#end
        }
        var new_max = running_max;
#repeat j AT_ONCE
        score$j = select(LOWEST, score$j, key$j < range.y);
        new_max = max(new_max, score$j);
#end
        let rescale = exp2(running_max - new_max);
        running_max = new_max;
        running_sum *= rescale;
#repeat i QUADS
        acc$i *= rescale;
#end
#repeat j AT_ONCE
        {
            let weight = select(0.0, exp2(score$j - new_max), key$j < range.y);
            running_sum += weight;
#repeat i QUADS
            acc$i += weight * quad(v$j, $iu);
#end
        }
#end
    }

    // Merges lanes that hold the same elements of other keys.
    var max_score = running_max;
    for (var step = LANES; step < 32u; step *= 2u) {
        max_score = max(max_score, subgroupShuffleXor(max_score, step));
    }
    let rescale = exp2(running_max - max_score);
    running_sum *= rescale;
#repeat i QUADS
    acc$i *= rescale;
#end
    for (var step = LANES; step < 32u; step *= 2u) {
        running_sum += subgroupShuffleXor(running_sum, step);
#repeat i QUADS
        acc$i += subgroupShuffleXor(acc$i, step);
#end
    }
    if (key_slot == 0u) {
        let at = thread.subgroup * STRIDE + head_lane * LANE_ELEMENTS;
#repeat i QUADS
#repeat c 4
        subgroup_acc[at + 4u * $iu + $cu] = acc$i[$c];
#end
#end
        if (head_lane == 0u) {
            subgroup_max[thread.subgroup] = max_score;
            subgroup_sum[thread.subgroup] = running_sum;
        }
    }
    workgroupBarrier();
    // One lane per subgroup; subgroups take elements in turn.
    let slot = min(thread.lane, SUBGROUPS - 1u);
    let slot_max = subgroup_max[slot];
    var merged_max = slot_max;
#repeat s 5
    merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << $su));
#end
    let weight = select(0.0, exp2(slot_max - merged_max), thread.lane < SUBGROUPS);
    var merged_sum = weight * subgroup_sum[slot];
#repeat s 5
    merged_sum += subgroupShuffleXor(merged_sum, 1u << $su);
#end
    let normalizer = select(1.0 / merged_sum, 0.0, merged_sum == 0.0);
    // HEAD_DIM is a multiple of SUBGROUPS, so all threads take as many turns.
    for (var first = 0u; first < HEAD_DIM; first += SUBGROUPS) {
        let d = first + thread.subgroup;
        var acc = weight * subgroup_acc[slot * STRIDE + d];
#repeat s 5
        acc += subgroupShuffleXor(acc, 1u << $su);
#end
        if (thread.lane == 0u) {
            outputs[d] = acc * normalizer;
        }
    }
    workgroupBarrier();
    let element = thread.lid % HEAD_DIM;
#ifdef quant_epilogue
    let gain = quant_gain(wid.x * HEAD_DIM + element);
    var value = 0.0;
    if (thread.lid < HEAD_DIM) {
        value = store(wid.y, wid.x, element, outputs[element]);
    }
    quant_epilogue(thread.lid, QuantValue(wid.y, wid.x * HEAD_DIM + element, value, gain, thread.lid < HEAD_DIM));
#else
    if (thread.lid < HEAD_DIM) {
        store(wid.y, wid.x, element, outputs[element]);
    }
#endif
}
