// attn_split_kv_fused: fused split-KV flash decoding: attn_decode's y in one launch for 32-lane subgroups
// and head_dim 32, 64, 128 or 256. Keys are split into slices as in attn_split_kv; the last workgroup
// merges them.
// Work split: one workgroup per token, slice and up to HEADS query heads of a kv head.
// HEAD_DIM / EACH lanes share a key, 16 bytes each, with AT_ONCE loads in flight. The workgroup
// that takes the last ticket of a token and its heads merges their slices and resets the ticket to
// zero (last-block reduction).
// Kin to Flash-Decoding (Dao et al., 2023), merged by the last block, as in CUDA's threadFenceReduction.
// part: per token, kv head, chunk of heads and slice: HEADS weighted sums of v. After all of
// these, (m, sum of w) of each; w = exp2(score - m), scores multiplied by log2(e).
// Why: split keys raise occupancy, and a second launch would wait for all workgroups of this one.
// Partials are stored, read and counted atomically, with a storageBarrier after the stores. WGSL
// orders only the workgroup's accesses there; devices that run this kernel order memory device-wide.
// f16_kv: k and v are f16. settled: rows of k and v before `past` are from earlier runs, so the
// first keys load before q, which the previous launch may still write: saves 1.4 to 2.2 % of the
// time per token of small models with 512 keys on an H100.
#import key_range
#import key_slices

override WG: u32 = 128;
override HEAD_DIM: u32 = 64;
override HEADS: u32 = 2;
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
// vec4s of all heads; elements, and how many of them per thread.
const OUTPUT_QUADS: u32 = HEADS * HEAD_DIM / 4u;
const OUTPUTS: u32 = HEADS * HEAD_DIM;
const THREAD_OUTPUTS: u32 = (OUTPUTS + WG - 1u) / WG;
// Maximum number of slices: all are read at once.
const SPREAD_SPLITS: u32 = 16u;
const LOWEST: f32 = -3.4028234e38;
const LOG2_E: f32 = 1.442695;
const SPANS: u32 = 6u;

const_assert HEAD_DIM % LANE_ELEMENTS == 0u && LANES <= 32u && (LANES & (LANES - 1u)) == 0u;
const_assert WG >= 32u && WG <= 1024u && (WG & (WG - 1u)) == 0u && HEADS >= 1u && HEADS <= SUBGROUPS;
// The 16 KiB of workgroup memory that every device has, in words.
const_assert SUBGROUPS * HEADS * (HEAD_DIM + 2u) + OUTPUTS + HEADS * SPREAD_SPLITS + 1u <= 4096u;

struct Params {
#import attention_params
    splits: u32,
    granule: u32,
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
@group(0) @binding(4) var<storage, read_write> part: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> tickets: array<atomic<u32>>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store
#ifdef quant_epilogue
const QUANT_VALUES: u32 = WG;
const_assert HEAD_DIM % 32u == 0u;
#import quant_epilogue
#endif

// Per subgroup and head: weighted sums of values, largest score, sum of weights.
var<workgroup> subgroup_acc: array<vec4<f32>, SUBGROUPS * OUTPUT_QUADS>;
var<workgroup> subgroup_max: array<f32, SUBGROUPS * HEADS>;
var<workgroup> subgroup_sum: array<f32, SUBGROUPS * HEADS>;
// The results if there is one slice; else `slice_weights`.
var<workgroup> outputs: array<f32, OUTPUTS>;
var<workgroup> slice_weights: array<f32, HEADS * SPREAD_SPLITS>;
var<workgroup> ticket: u32;

// Elements 4 i to 4 i + 3 of 16 bytes.
fn quad(words: vec4<u32>, i: u32) -> vec4<f32> {
#ifdef f16_kv
    let two = select(words.xy, words.zw, i == 1u);
    return vec4(f16_low(two.x), f16_high(two.x), f16_low(two.y), f16_high(two.y));
#else
    return bitcast<vec4<f32>>(words);
#endif
}

#ifdef settled
const EARLY: bool = true;

// The first key that this run writes.
fn first_new() -> u32 {
    return params.past;
}
#else
const EARLY: bool = false;

fn first_new() -> u32 {
    return 0u;
}
#endif

fn read_partial(at: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&part[at]));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, thread: Thread) {
    let group = params.heads / params.kv_heads;
    let chunks = (group + HEADS - 1u) / HEADS;
    let range = key_range(wid.y);
    let visible = range.y - range.x;
    let len = slice_len(visible);
    let slices = max((visible + len - 1u) / len, 1u);
    if (wid.x >= params.kv_heads * chunks || wid.y >= params.tokens || wid.z >= min(slices, params.splits)) {
        return;
    }
    let kv_head = wid.x / chunks;
    let first_head = kv_head * group + wid.x % chunks * HEADS;
    let last_head = min(first_head + HEADS, (kv_head + 1u) * group) - 1u;
    let key_slot = thread.lane / LANES;
    let head_lane = thread.lane % LANES;
    let k_start = (params.k_offset + kv_head * params.k_head_stride) / LANE_ELEMENTS + head_lane;
    let v_start = (params.v_offset + kv_head * params.v_head_stride) / LANE_ELEMENTS + head_lane;
    let k_stride = params.k_token_stride / LANE_ELEMENTS;
    let v_stride = params.v_token_stride / LANE_ELEMENTS;
    let begin = range.x + wid.z * len;
    let end = min(begin + len, range.y);
#repeat j AT_ONCE
    var key$j = begin + ($ju * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
    let first$j = min(key$j, max(end, 1u) - 1u);
    var k$j = vec4<u32>();
    var v$j = vec4<u32>();
    if (EARLY && begin < end && first$j < first_new()) {
        k$j = k[k_start + first$j * k_stride];
        v$j = v[v_start + first$j * v_stride];
    }
#end
    // Scores in powers of two.
    let score_scale = params.scale * LOG2_E;
#repeat h HEADS
    // Heads past the group repeat its last one and are not stored.
    let q_start$h = params.q_offset + wid.y * params.q_token_stride
        + min(first_head + $hu, last_head) * params.q_head_stride;
#repeat i QUADS
    let q$h_$i = q[q_start$h / 4u + head_lane * QUADS + $iu] * score_scale;
    var acc$h_$i = vec4<f32>();
#end
    var running_max$h = LOWEST;
    var running_sum$h = 0.0;
#end
#repeat j AT_ONCE
    if (EARLY && begin < end && first$j >= first_new()) {
        k$j = k[k_start + first$j * k_stride];
        v$j = v[v_start + first$j * v_stride];
    }
#end
    for (var base = begin; base < end; base += AT_ONCE * SUBGROUPS * KEYS) {
        if (!EARLY || base != begin) {
#repeat j AT_ONCE
            key$j = base + ($ju * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
            k$j = k[k_start + min(key$j, end - 1u) * k_stride];
#end
#repeat j AT_ONCE
            v$j = v[v_start + min(key$j, end - 1u) * v_stride];
#end
        }
#repeat h HEADS
#repeat j AT_ONCE
        var score$h_$j = 0.0;
#end
#end
#repeat j AT_ONCE
#repeat i QUADS
        {
            let elements = quad(k$j, $iu);
#repeat h HEADS
            score$h_$j += dot(q$h_$i, elements);
#end
        }
#end
#end
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
#repeat h HEADS
#repeat j AT_ONCE
            score$h_$j += subgroupShuffleXor(score$h_$j, step);
#end
#end
        }
#repeat h HEADS
        {
            var new_max = running_max$h;
#repeat j AT_ONCE
            score$h_$j = select(LOWEST, score$h_$j, key$j < end);
            new_max = max(new_max, score$h_$j);
#end
            let rescale = exp2(running_max$h - new_max);
            running_max$h = new_max;
            running_sum$h *= rescale;
#repeat i QUADS
            acc$h_$i *= rescale;
#end
#repeat j AT_ONCE
            score$h_$j = select(0.0, exp2(score$h_$j - new_max), key$j < end);
            running_sum$h += score$h_$j;
#end
        }
#end
#repeat j AT_ONCE
#repeat i QUADS
        {
            let elements = quad(v$j, $iu);
#repeat h HEADS
            acc$h_$i += score$h_$j * elements;
#end
        }
#end
#end
    }

    // Merges lanes that hold the same elements of other keys.
#repeat h HEADS
    {
        var max_score = running_max$h;
        for (var step = LANES; step < 32u; step *= 2u) {
            max_score = max(max_score, subgroupShuffleXor(max_score, step));
        }
        let rescale = exp2(running_max$h - max_score);
        running_sum$h *= rescale;
#repeat i QUADS
        acc$h_$i *= rescale;
#end
        for (var step = LANES; step < 32u; step *= 2u) {
            running_sum$h += subgroupShuffleXor(running_sum$h, step);
#repeat i QUADS
            acc$h_$i += subgroupShuffleXor(acc$h_$i, step);
#end
        }
        if (key_slot == 0u) {
#repeat i QUADS
            subgroup_acc[(thread.subgroup * HEADS + $hu) * (HEAD_DIM / 4u) + head_lane * QUADS + $iu] = acc$h_$i;
#end
            if (head_lane == 0u) {
                subgroup_max[thread.subgroup * HEADS + $hu] = max_score;
                subgroup_sum[thread.subgroup * HEADS + $hu] = running_sum$h;
            }
        }
    }
#end
    workgroupBarrier();
    // Merges the subgroups' sums, four elements per thread.
    let task = wid.y * params.kv_heads * chunks + wid.x;
    let slice = task * params.splits + wid.z;
    let stats = params.tokens * params.kv_heads * chunks * params.splits * OUTPUTS;
    for (var o = thread.lid; o < OUTPUT_QUADS; o += WG) {
        let h = o / (HEAD_DIM / 4u);
        var max_score = subgroup_max[h];
        for (var s = 1u; s < SUBGROUPS; s++) {
            max_score = max(max_score, subgroup_max[s * HEADS + h]);
        }
        var acc = vec4<f32>();
        var running_sum = 0.0;
        for (var s = 0u; s < SUBGROUPS; s++) {
            let weight = exp2(subgroup_max[s * HEADS + h] - max_score);
            acc += weight * subgroup_acc[s * OUTPUT_QUADS + o];
            running_sum += weight * subgroup_sum[s * HEADS + h];
        }
        if (slices == 1u) {
            acc *= select(1.0 / running_sum, 0.0, running_sum == 0.0);
#repeat c 4
            outputs[4u * o + $cu] = acc[$c];
#end
        } else {
#repeat c 4
            atomicStore(&part[slice * OUTPUTS + 4u * o + $cu], bitcast<u32>(acc[$c]));
#end
            if (o % (HEAD_DIM / 4u) == 0u) {
                atomicStore(&part[stats + 2u * (slice * HEADS + h)], bitcast<u32>(max_score));
                atomicStore(&part[stats + 2u * (slice * HEADS + h) + 1u], bitcast<u32>(running_sum));
            }
        }
    }
    storageBarrier();
    let first_slice = task * params.splits;
#repeat o THREAD_OUTPUTS
#repeat j SPREAD_SPLITS
    var part$o_$j = 0.0;
#end
#end
    if (slices > 1u) {
        if (thread.lid == 0u) {
            ticket = atomicAdd(&tickets[task], 1u);
        }
        if (workgroupUniformLoad(&ticket) + 1u != slices) {
            return;
        }
        if (thread.lid == 0u) {
            atomicStore(&tickets[task], 0u);
        }
        // One subgroup per head, lanes over slices; all loads are issued before the first use.
        let slot = min(thread.lane, slices - 1u);
        let merged_head = min(thread.subgroup, HEADS - 1u);
        let slot_at = stats + 2u * ((first_slice + slot) * HEADS + merged_head);
        let slot_max = read_partial(slot_at);
        let slot_sum = read_partial(slot_at + 1u);
#repeat o THREAD_OUTPUTS
#repeat j SPREAD_SPLITS
        part$o_$j = read_partial((first_slice + min($ju, slices - 1u)) * OUTPUTS
            + min(thread.lid + $ou * WG, OUTPUTS - 1u));
#end
#end
        var merged_max = slot_max;
#repeat s 5
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << $su));
#end
        let weight = select(0.0, exp2(slot_max - merged_max), thread.lane < slices);
        var merged_sum = weight * slot_sum;
#repeat s 5
        merged_sum += subgroupShuffleXor(merged_sum, 1u << $su);
#end
        let normalizer = select(1.0 / merged_sum, 0.0, merged_sum == 0.0);
        if (thread.subgroup < HEADS && thread.lane < SPREAD_SPLITS) {
            slice_weights[merged_head * SPREAD_SPLITS + thread.lane] = weight * normalizer;
        }
    }
    workgroupBarrier();
#repeat o THREAD_OUTPUTS
    {
        let o = min(thread.lid + $ou * WG, OUTPUTS - 1u);
        let h = o / HEAD_DIM;
        let d = o % HEAD_DIM;
        let exists = thread.lid + $ou * WG < OUTPUTS && first_head + h <= last_head;
        var result = 0.0;
        if (slices == 1u) {
            result = outputs[o];
        } else {
            // Slices that do not exist are zero.
#repeat j SPREAD_SPLITS
            result += slice_weights[h * SPREAD_SPLITS + $ju] * part$o_$j;
#end
        }
        let head = min(first_head + h, last_head);
#ifdef quant_epilogue
        let gain = quant_gain(head * HEAD_DIM + d);
        var value = 0.0;
        if (exists) {
            value = store(wid.y, head, d, result);
        }
        quant_epilogue(thread.lid, QuantValue(wid.y, head * HEAD_DIM + d, value, gain, exists));
        // quant_epilogue may reuse workgroup memory that was read above.
        workgroupBarrier();
#else
        if (exists) {
            store(wid.y, head, d, result);
        }
#endif
    }
#end
}
