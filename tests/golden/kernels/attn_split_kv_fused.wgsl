// attn_split_kv_fused+f16_kv+subgroup
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
// The keys that token t attends to: from x to below y. Needs Params, and SPANS: the binding after
// the other inputs (in attn_split_kv_fused, after its scratch buffer). Token t is at position past + t;
// with spans, at the last key of its span. With sinks, each head has a key without a value.
const INPUTS: u32 = SPANS - 1u;

fn key_range(t: u32) -> vec2<u32> {
    let position = params.past + t;
    let end = select(params.kv_len, min(params.kv_len, position + 1u), params.causal != 0u);
    let first = select(0u, position + 1u - min(params.window, position + 1u), params.window != 0u);
    return vec2(min(first, end), end);
}
const OWN_READS: u32 = INPUTS;
// Keys per slice: `count` keys in at most params.splits slices, each but the last a multiple of
// params.granule. Why: the visible range is only known at run time, and few keys should make few
// slices.
fn slice_len(count: u32) -> u32 {
    let granule = max(params.granule, 1u);
    let least = (count + max(params.splits, 1u) - 1u) / max(params.splits, 1u);
    return max((least + granule - 1u) / granule, 1u) * granule;
}

const WG: u32 = 128;
const HEAD_DIM: u32 = 64;
const HEADS: u32 = 2;
const AT_ONCE: u32 = 4;

// f16 to f32: the two f16 of a 32-bit word, exactly.
// Why: f16 types are optional, and one software driver returns 0 for the second value of
// unpack2x16float, so each is moved to the first.
fn f16_low(word: u32) -> f32 {
    return unpack2x16float(word & 0xffffu).x;
}

fn f16_high(word: u32) -> f32 {
    return unpack2x16float(word >> 16u).x;
}
const LANE_ELEMENTS: u32 = 8u;
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
// The first parameters of attention, in catalogue order: sizes, token positions, mask.
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    kv_len: u32,
    past: u32,
    window: u32,
    causal: u32,
    splits: u32,
    granule: u32,
// Parameters of attention: offsets of q, k and v, and their token and head strides, in elements.
    q_offset: u32,
    q_token_stride: u32,
    q_head_stride: u32,
    k_offset: u32,
    k_token_stride: u32,
    k_head_stride: u32,
    v_offset: u32,
    v_token_stride: u32,
    v_head_stride: u32,
    y_offset: u32,
    scale: f32,
// Parameters of a kernel's fusion: none. With a fusion, generated text (codegen) replaces this
// file.
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

// Insertion point of epilogue fusion in kernels other than products with weights.
// Stores results of a kernel with index space (i, s0, s1) to y, densely. Needs OWN_READS and
// sizes(), the sizes of s0 and s1. With a fused epilogue, generated text replaces this file.
const ATTACHED: u32 = 0;

@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<f32>;

fn store(i: u32, s0: u32, s1: u32, value: f32) {
    y[params.y_offset + (i * sizes().x + s0) * sizes().y + s1] = value;
}

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
    let two = select(words.xy, words.zw, i == 1u);
    return vec4(f16_low(two.x), f16_high(two.x), f16_low(two.y), f16_high(two.y));
}

const EARLY: bool = false;

fn first_new() -> u32 {
    return 0u;
}

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
    var key0 = begin + (0u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
    let first0 = min(key0, max(end, 1u) - 1u);
    var k0 = vec4<u32>();
    var v0 = vec4<u32>();
    if (EARLY && begin < end && first0 < first_new()) {
        k0 = k[k_start + first0 * k_stride];
        v0 = v[v_start + first0 * v_stride];
    }
    var key1 = begin + (1u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
    let first1 = min(key1, max(end, 1u) - 1u);
    var k1 = vec4<u32>();
    var v1 = vec4<u32>();
    if (EARLY && begin < end && first1 < first_new()) {
        k1 = k[k_start + first1 * k_stride];
        v1 = v[v_start + first1 * v_stride];
    }
    var key2 = begin + (2u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
    let first2 = min(key2, max(end, 1u) - 1u);
    var k2 = vec4<u32>();
    var v2 = vec4<u32>();
    if (EARLY && begin < end && first2 < first_new()) {
        k2 = k[k_start + first2 * k_stride];
        v2 = v[v_start + first2 * v_stride];
    }
    var key3 = begin + (3u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
    let first3 = min(key3, max(end, 1u) - 1u);
    var k3 = vec4<u32>();
    var v3 = vec4<u32>();
    if (EARLY && begin < end && first3 < first_new()) {
        k3 = k[k_start + first3 * k_stride];
        v3 = v[v_start + first3 * v_stride];
    }
    // Scores in powers of two.
    let score_scale = params.scale * LOG2_E;
    // Heads past the group repeat its last one and are not stored.
    let q_start0 = params.q_offset + wid.y * params.q_token_stride
        + min(first_head + 0u, last_head) * params.q_head_stride;
    let q0_0 = q[q_start0 / 4u + head_lane * QUADS + 0u] * score_scale;
    var acc0_0 = vec4<f32>();
    let q0_1 = q[q_start0 / 4u + head_lane * QUADS + 1u] * score_scale;
    var acc0_1 = vec4<f32>();
    var running_max0 = LOWEST;
    var running_sum0 = 0.0;
    // Heads past the group repeat its last one and are not stored.
    let q_start1 = params.q_offset + wid.y * params.q_token_stride
        + min(first_head + 1u, last_head) * params.q_head_stride;
    let q1_0 = q[q_start1 / 4u + head_lane * QUADS + 0u] * score_scale;
    var acc1_0 = vec4<f32>();
    let q1_1 = q[q_start1 / 4u + head_lane * QUADS + 1u] * score_scale;
    var acc1_1 = vec4<f32>();
    var running_max1 = LOWEST;
    var running_sum1 = 0.0;
    if (EARLY && begin < end && first0 >= first_new()) {
        k0 = k[k_start + first0 * k_stride];
        v0 = v[v_start + first0 * v_stride];
    }
    if (EARLY && begin < end && first1 >= first_new()) {
        k1 = k[k_start + first1 * k_stride];
        v1 = v[v_start + first1 * v_stride];
    }
    if (EARLY && begin < end && first2 >= first_new()) {
        k2 = k[k_start + first2 * k_stride];
        v2 = v[v_start + first2 * v_stride];
    }
    if (EARLY && begin < end && first3 >= first_new()) {
        k3 = k[k_start + first3 * k_stride];
        v3 = v[v_start + first3 * v_stride];
    }
    for (var base = begin; base < end; base += AT_ONCE * SUBGROUPS * KEYS) {
        if (!EARLY || base != begin) {
            key0 = base + (0u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
            k0 = k[k_start + min(key0, end - 1u) * k_stride];
            key1 = base + (1u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
            k1 = k[k_start + min(key1, end - 1u) * k_stride];
            key2 = base + (2u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
            k2 = k[k_start + min(key2, end - 1u) * k_stride];
            key3 = base + (3u * SUBGROUPS + thread.subgroup) * KEYS + key_slot;
            k3 = k[k_start + min(key3, end - 1u) * k_stride];
            v0 = v[v_start + min(key0, end - 1u) * v_stride];
            v1 = v[v_start + min(key1, end - 1u) * v_stride];
            v2 = v[v_start + min(key2, end - 1u) * v_stride];
            v3 = v[v_start + min(key3, end - 1u) * v_stride];
        }
        var score0_0 = 0.0;
        var score0_1 = 0.0;
        var score0_2 = 0.0;
        var score0_3 = 0.0;
        var score1_0 = 0.0;
        var score1_1 = 0.0;
        var score1_2 = 0.0;
        var score1_3 = 0.0;
        {
            let elements = quad(k0, 0u);
            score0_0 += dot(q0_0, elements);
            score1_0 += dot(q1_0, elements);
        }
        {
            let elements = quad(k0, 1u);
            score0_0 += dot(q0_1, elements);
            score1_0 += dot(q1_1, elements);
        }
        {
            let elements = quad(k1, 0u);
            score0_1 += dot(q0_0, elements);
            score1_1 += dot(q1_0, elements);
        }
        {
            let elements = quad(k1, 1u);
            score0_1 += dot(q0_1, elements);
            score1_1 += dot(q1_1, elements);
        }
        {
            let elements = quad(k2, 0u);
            score0_2 += dot(q0_0, elements);
            score1_2 += dot(q1_0, elements);
        }
        {
            let elements = quad(k2, 1u);
            score0_2 += dot(q0_1, elements);
            score1_2 += dot(q1_1, elements);
        }
        {
            let elements = quad(k3, 0u);
            score0_3 += dot(q0_0, elements);
            score1_3 += dot(q1_0, elements);
        }
        {
            let elements = quad(k3, 1u);
            score0_3 += dot(q0_1, elements);
            score1_3 += dot(q1_1, elements);
        }
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            score0_0 += subgroupShuffleXor(score0_0, step);
            score0_1 += subgroupShuffleXor(score0_1, step);
            score0_2 += subgroupShuffleXor(score0_2, step);
            score0_3 += subgroupShuffleXor(score0_3, step);
            score1_0 += subgroupShuffleXor(score1_0, step);
            score1_1 += subgroupShuffleXor(score1_1, step);
            score1_2 += subgroupShuffleXor(score1_2, step);
            score1_3 += subgroupShuffleXor(score1_3, step);
        }
        {
            var new_max = running_max0;
            score0_0 = select(LOWEST, score0_0, key0 < end);
            new_max = max(new_max, score0_0);
            score0_1 = select(LOWEST, score0_1, key1 < end);
            new_max = max(new_max, score0_1);
            score0_2 = select(LOWEST, score0_2, key2 < end);
            new_max = max(new_max, score0_2);
            score0_3 = select(LOWEST, score0_3, key3 < end);
            new_max = max(new_max, score0_3);
            let rescale = exp2(running_max0 - new_max);
            running_max0 = new_max;
            running_sum0 *= rescale;
            acc0_0 *= rescale;
            acc0_1 *= rescale;
            score0_0 = select(0.0, exp2(score0_0 - new_max), key0 < end);
            running_sum0 += score0_0;
            score0_1 = select(0.0, exp2(score0_1 - new_max), key1 < end);
            running_sum0 += score0_1;
            score0_2 = select(0.0, exp2(score0_2 - new_max), key2 < end);
            running_sum0 += score0_2;
            score0_3 = select(0.0, exp2(score0_3 - new_max), key3 < end);
            running_sum0 += score0_3;
        }
        {
            var new_max = running_max1;
            score1_0 = select(LOWEST, score1_0, key0 < end);
            new_max = max(new_max, score1_0);
            score1_1 = select(LOWEST, score1_1, key1 < end);
            new_max = max(new_max, score1_1);
            score1_2 = select(LOWEST, score1_2, key2 < end);
            new_max = max(new_max, score1_2);
            score1_3 = select(LOWEST, score1_3, key3 < end);
            new_max = max(new_max, score1_3);
            let rescale = exp2(running_max1 - new_max);
            running_max1 = new_max;
            running_sum1 *= rescale;
            acc1_0 *= rescale;
            acc1_1 *= rescale;
            score1_0 = select(0.0, exp2(score1_0 - new_max), key0 < end);
            running_sum1 += score1_0;
            score1_1 = select(0.0, exp2(score1_1 - new_max), key1 < end);
            running_sum1 += score1_1;
            score1_2 = select(0.0, exp2(score1_2 - new_max), key2 < end);
            running_sum1 += score1_2;
            score1_3 = select(0.0, exp2(score1_3 - new_max), key3 < end);
            running_sum1 += score1_3;
        }
        {
            let elements = quad(v0, 0u);
            acc0_0 += score0_0 * elements;
            acc1_0 += score1_0 * elements;
        }
        {
            let elements = quad(v0, 1u);
            acc0_1 += score0_0 * elements;
            acc1_1 += score1_0 * elements;
        }
        {
            let elements = quad(v1, 0u);
            acc0_0 += score0_1 * elements;
            acc1_0 += score1_1 * elements;
        }
        {
            let elements = quad(v1, 1u);
            acc0_1 += score0_1 * elements;
            acc1_1 += score1_1 * elements;
        }
        {
            let elements = quad(v2, 0u);
            acc0_0 += score0_2 * elements;
            acc1_0 += score1_2 * elements;
        }
        {
            let elements = quad(v2, 1u);
            acc0_1 += score0_2 * elements;
            acc1_1 += score1_2 * elements;
        }
        {
            let elements = quad(v3, 0u);
            acc0_0 += score0_3 * elements;
            acc1_0 += score1_3 * elements;
        }
        {
            let elements = quad(v3, 1u);
            acc0_1 += score0_3 * elements;
            acc1_1 += score1_3 * elements;
        }
    }

    // Merges lanes that hold the same elements of other keys.
    {
        var max_score = running_max0;
        for (var step = LANES; step < 32u; step *= 2u) {
            max_score = max(max_score, subgroupShuffleXor(max_score, step));
        }
        let rescale = exp2(running_max0 - max_score);
        running_sum0 *= rescale;
        acc0_0 *= rescale;
        acc0_1 *= rescale;
        for (var step = LANES; step < 32u; step *= 2u) {
            running_sum0 += subgroupShuffleXor(running_sum0, step);
            acc0_0 += subgroupShuffleXor(acc0_0, step);
            acc0_1 += subgroupShuffleXor(acc0_1, step);
        }
        if (key_slot == 0u) {
            subgroup_acc[(thread.subgroup * HEADS + 0u) * (HEAD_DIM / 4u) + head_lane * QUADS + 0u] = acc0_0;
            subgroup_acc[(thread.subgroup * HEADS + 0u) * (HEAD_DIM / 4u) + head_lane * QUADS + 1u] = acc0_1;
            if (head_lane == 0u) {
                subgroup_max[thread.subgroup * HEADS + 0u] = max_score;
                subgroup_sum[thread.subgroup * HEADS + 0u] = running_sum0;
            }
        }
    }
    {
        var max_score = running_max1;
        for (var step = LANES; step < 32u; step *= 2u) {
            max_score = max(max_score, subgroupShuffleXor(max_score, step));
        }
        let rescale = exp2(running_max1 - max_score);
        running_sum1 *= rescale;
        acc1_0 *= rescale;
        acc1_1 *= rescale;
        for (var step = LANES; step < 32u; step *= 2u) {
            running_sum1 += subgroupShuffleXor(running_sum1, step);
            acc1_0 += subgroupShuffleXor(acc1_0, step);
            acc1_1 += subgroupShuffleXor(acc1_1, step);
        }
        if (key_slot == 0u) {
            subgroup_acc[(thread.subgroup * HEADS + 1u) * (HEAD_DIM / 4u) + head_lane * QUADS + 0u] = acc1_0;
            subgroup_acc[(thread.subgroup * HEADS + 1u) * (HEAD_DIM / 4u) + head_lane * QUADS + 1u] = acc1_1;
            if (head_lane == 0u) {
                subgroup_max[thread.subgroup * HEADS + 1u] = max_score;
                subgroup_sum[thread.subgroup * HEADS + 1u] = running_sum1;
            }
        }
    }
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
            outputs[4u * o + 0u] = acc[0];
            outputs[4u * o + 1u] = acc[1];
            outputs[4u * o + 2u] = acc[2];
            outputs[4u * o + 3u] = acc[3];
        } else {
            atomicStore(&part[slice * OUTPUTS + 4u * o + 0u], bitcast<u32>(acc[0]));
            atomicStore(&part[slice * OUTPUTS + 4u * o + 1u], bitcast<u32>(acc[1]));
            atomicStore(&part[slice * OUTPUTS + 4u * o + 2u], bitcast<u32>(acc[2]));
            atomicStore(&part[slice * OUTPUTS + 4u * o + 3u], bitcast<u32>(acc[3]));
            if (o % (HEAD_DIM / 4u) == 0u) {
                atomicStore(&part[stats + 2u * (slice * HEADS + h)], bitcast<u32>(max_score));
                atomicStore(&part[stats + 2u * (slice * HEADS + h) + 1u], bitcast<u32>(running_sum));
            }
        }
    }
    storageBarrier();
    let first_slice = task * params.splits;
    var part0_0 = 0.0;
    var part0_1 = 0.0;
    var part0_2 = 0.0;
    var part0_3 = 0.0;
    var part0_4 = 0.0;
    var part0_5 = 0.0;
    var part0_6 = 0.0;
    var part0_7 = 0.0;
    var part0_8 = 0.0;
    var part0_9 = 0.0;
    var part0_10 = 0.0;
    var part0_11 = 0.0;
    var part0_12 = 0.0;
    var part0_13 = 0.0;
    var part0_14 = 0.0;
    var part0_15 = 0.0;
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
        part0_0 = read_partial((first_slice + min(0u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_1 = read_partial((first_slice + min(1u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_2 = read_partial((first_slice + min(2u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_3 = read_partial((first_slice + min(3u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_4 = read_partial((first_slice + min(4u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_5 = read_partial((first_slice + min(5u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_6 = read_partial((first_slice + min(6u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_7 = read_partial((first_slice + min(7u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_8 = read_partial((first_slice + min(8u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_9 = read_partial((first_slice + min(9u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_10 = read_partial((first_slice + min(10u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_11 = read_partial((first_slice + min(11u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_12 = read_partial((first_slice + min(12u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_13 = read_partial((first_slice + min(13u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_14 = read_partial((first_slice + min(14u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        part0_15 = read_partial((first_slice + min(15u, slices - 1u)) * OUTPUTS
            + min(thread.lid + 0u * WG, OUTPUTS - 1u));
        var merged_max = slot_max;
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << 0u));
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << 1u));
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << 2u));
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << 3u));
        merged_max = max(merged_max, subgroupShuffleXor(merged_max, 1u << 4u));
        let weight = select(0.0, exp2(slot_max - merged_max), thread.lane < slices);
        var merged_sum = weight * slot_sum;
        merged_sum += subgroupShuffleXor(merged_sum, 1u << 0u);
        merged_sum += subgroupShuffleXor(merged_sum, 1u << 1u);
        merged_sum += subgroupShuffleXor(merged_sum, 1u << 2u);
        merged_sum += subgroupShuffleXor(merged_sum, 1u << 3u);
        merged_sum += subgroupShuffleXor(merged_sum, 1u << 4u);
        let normalizer = select(1.0 / merged_sum, 0.0, merged_sum == 0.0);
        if (thread.subgroup < HEADS && thread.lane < SPREAD_SPLITS) {
            slice_weights[merged_head * SPREAD_SPLITS + thread.lane] = weight * normalizer;
        }
    }
    workgroupBarrier();
    {
        let o = min(thread.lid + 0u * WG, OUTPUTS - 1u);
        let h = o / HEAD_DIM;
        let d = o % HEAD_DIM;
        let exists = thread.lid + 0u * WG < OUTPUTS && first_head + h <= last_head;
        var result = 0.0;
        if (slices == 1u) {
            result = outputs[o];
        } else {
            // Slices that do not exist are zero.
            result += slice_weights[h * SPREAD_SPLITS + 0u] * part0_0;
            result += slice_weights[h * SPREAD_SPLITS + 1u] * part0_1;
            result += slice_weights[h * SPREAD_SPLITS + 2u] * part0_2;
            result += slice_weights[h * SPREAD_SPLITS + 3u] * part0_3;
            result += slice_weights[h * SPREAD_SPLITS + 4u] * part0_4;
            result += slice_weights[h * SPREAD_SPLITS + 5u] * part0_5;
            result += slice_weights[h * SPREAD_SPLITS + 6u] * part0_6;
            result += slice_weights[h * SPREAD_SPLITS + 7u] * part0_7;
            result += slice_weights[h * SPREAD_SPLITS + 8u] * part0_8;
            result += slice_weights[h * SPREAD_SPLITS + 9u] * part0_9;
            result += slice_weights[h * SPREAD_SPLITS + 10u] * part0_10;
            result += slice_weights[h * SPREAD_SPLITS + 11u] * part0_11;
            result += slice_weights[h * SPREAD_SPLITS + 12u] * part0_12;
            result += slice_weights[h * SPREAD_SPLITS + 13u] * part0_13;
            result += slice_weights[h * SPREAD_SPLITS + 14u] * part0_14;
            result += slice_weights[h * SPREAD_SPLITS + 15u] * part0_15;
        }
        let head = min(first_head + h, last_head);
        if (exists) {
            store(wid.y, head, d, result);
        }
    }
}
