// attn_split_kv_fused: fused split-KV flash decoding: attn_decode's y in one launch for 32-lane subgroups
// and head_dim 32, 64, 128 or 256. Keys are split into slices as in attn_split_kv; the last workgroup
// merges them.
// Work split: one workgroup per token, slice and up to HEADS query heads of a kv head.
// HEAD_DIM / EACH lanes share a key, 16 bytes each, with AT_ONCE loads in flight. The workgroup
// that takes the last ticket of a token and its heads merges their slices and resets the ticket to
// zero (last-block reduction).
// part: per token, kv head, chunk of heads and slice: HEADS weighted sums of v. After all of them
// (m, sum of w) of each; w = exp2(score - m), scores in powers of two.
// Why: split keys raise occupancy, and a second launch would wait for all workgroups of this one.
// Partials are stored, read and counted atomically, with a storageBarrier after the stores. WGSL
// orders only the workgroup there; devices that run this kernel order memory device-wide.
// f16_kv: k and v are f16. settled: rows of k and v before `past` are from earlier runs, so the
// first keys load before q, which the previous launch may still write: 1.4 to 2.2 % per token of
// small models with 512 keys on an H100.
#import key_range
#import key_slices

override WG: u32 = 128;
override HEAD_DIM: u32 = 64;
override HEADS: u32 = 2;
override AT_ONCE: u32 = 4;

#ifdef f16_kv
#import half
const EACH: u32 = 8u;
#else
const EACH: u32 = 4u;
#endif
const QUADS: u32 = EACH / 4u;
const LANES: u32 = HEAD_DIM / EACH;
const KEYS: u32 = 32u / LANES;
const SUBGROUPS: u32 = WG / 32u;
// vec4s of all heads; elements, and how many of them per thread.
const MADE_QUADS: u32 = HEADS * HEAD_DIM / 4u;
const MADE: u32 = HEADS * HEAD_DIM;
const OWN: u32 = (MADE + WG - 1u) / WG;
// Maximum number of slices: all are read at once.
const SPREAD_SPLITS: u32 = 16u;
const LOWEST: f32 = -3.4028234e38;
const LOG2_E: f32 = 1.442695;
const SPANS: u32 = 6u;

const_assert HEAD_DIM % EACH == 0u && LANES <= 32u && (LANES & (LANES - 1u)) == 0u;
const_assert WG >= 32u && WG <= 1024u && (WG & (WG - 1u)) == 0u && HEADS >= 1u && HEADS <= SUBGROUPS;
// The 16 KiB of workgroup memory that every device has, in words.
const_assert SUBGROUPS * HEADS * (HEAD_DIM + 2u) + MADE + HEADS * SPREAD_SPLITS + 1u <= 4096u;

struct Params {
#import attention_params
    splits: u32,
    granule: u32,
#import attention_strides
    y_offset: u32,
    scale: f32,
#import fusion_params
}

struct Place {
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
#ifdef hands_on
const QUANT_VALUES: u32 = WG;
const_assert HEAD_DIM % 32u == 0u;
#import quant_epilogue
#endif

// Per subgroup and head: weighted sums of values, largest score, sum of weights.
var<workgroup> sums: array<vec4<f32>, SUBGROUPS * MADE_QUADS>;
var<workgroup> tops: array<f32, SUBGROUPS * HEADS>;
var<workgroup> totals: array<f32, SUBGROUPS * HEADS>;
// The results if there is one slice; else `weights` of the slices.
var<workgroup> made: array<f32, MADE>;
var<workgroup> weights: array<f32, HEADS * SPREAD_SPLITS>;
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

fn read_part(at: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&part[at]));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, place: Place) {
    let group = params.heads / params.kv_heads;
    let chunks = (group + HEADS - 1u) / HEADS;
    let range = key_range(wid.y);
    let seen = range.y - range.x;
    let len = slice_len(seen);
    let used = max((seen + len - 1u) / len, 1u);
    if (wid.x >= params.kv_heads * chunks || wid.y >= params.tokens || wid.z >= min(used, params.splits)) {
        return;
    }
    let kv_head = wid.x / chunks;
    let first_head = kv_head * group + wid.x % chunks * HEADS;
    let last_head = min(first_head + HEADS, (kv_head + 1u) * group) - 1u;
    let own = place.lane / LANES;
    let piece = place.lane % LANES;
    let k_start = (params.k_offset + kv_head * params.k_head_stride) / EACH + piece;
    let v_start = (params.v_offset + kv_head * params.v_head_stride) / EACH + piece;
    let k_stride = params.k_token_stride / EACH;
    let v_stride = params.v_token_stride / EACH;
    let begin = range.x + wid.z * len;
    let end = min(begin + len, range.y);
#repeat j AT_ONCE
    var key$j = begin + ($ju * SUBGROUPS + place.subgroup) * KEYS + own;
    let first$j = min(key$j, max(end, 1u) - 1u);
    var k$j = vec4<u32>();
    var v$j = vec4<u32>();
    if (EARLY && begin < end && first$j < first_new()) {
        k$j = k[k_start + first$j * k_stride];
        v$j = v[v_start + first$j * v_stride];
    }
#end
    // Scores in powers of two.
    let by = params.scale * LOG2_E;
#repeat h HEADS
    // Heads past the group repeat its last one and are not stored.
    let q_start$h = params.q_offset + wid.y * params.q_token_stride
        + min(first_head + $hu, last_head) * params.q_head_stride;
#repeat i QUADS
    let q$h_$i = q[q_start$h / 4u + piece * QUADS + $iu] * by;
    var sum$h_$i = vec4<f32>();
#end
    var largest$h = LOWEST;
    var total$h = 0.0;
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
            key$j = base + ($ju * SUBGROUPS + place.subgroup) * KEYS + own;
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
            var next = largest$h;
#repeat j AT_ONCE
            score$h_$j = select(LOWEST, score$h_$j, key$j < end);
            next = max(next, score$h_$j);
#end
            let shrink = exp2(largest$h - next);
            largest$h = next;
            total$h *= shrink;
#repeat i QUADS
            sum$h_$i *= shrink;
#end
#repeat j AT_ONCE
            score$h_$j = select(0.0, exp2(score$h_$j - next), key$j < end);
            total$h += score$h_$j;
#end
        }
#end
#repeat j AT_ONCE
#repeat i QUADS
        {
            let elements = quad(v$j, $iu);
#repeat h HEADS
            sum$h_$i += score$h_$j * elements;
#end
        }
#end
#end
    }

    // Merges lanes that hold the same elements of other keys.
#repeat h HEADS
    {
        var top = largest$h;
        for (var step = LANES; step < 32u; step *= 2u) {
            top = max(top, subgroupShuffleXor(top, step));
        }
        let shrink = exp2(largest$h - top);
        total$h *= shrink;
#repeat i QUADS
        sum$h_$i *= shrink;
#end
        for (var step = LANES; step < 32u; step *= 2u) {
            total$h += subgroupShuffleXor(total$h, step);
#repeat i QUADS
            sum$h_$i += subgroupShuffleXor(sum$h_$i, step);
#end
        }
        if (own == 0u) {
#repeat i QUADS
            sums[(place.subgroup * HEADS + $hu) * (HEAD_DIM / 4u) + piece * QUADS + $iu] = sum$h_$i;
#end
            if (piece == 0u) {
                tops[place.subgroup * HEADS + $hu] = top;
                totals[place.subgroup * HEADS + $hu] = total$h;
            }
        }
    }
#end
    workgroupBarrier();
    // Merges the subgroups' sums, four elements per thread.
    let team = wid.y * params.kv_heads * chunks + wid.x;
    let slice = team * params.splits + wid.z;
    let stats = params.tokens * params.kv_heads * chunks * params.splits * MADE;
    for (var o = place.lid; o < MADE_QUADS; o += WG) {
        let h = o / (HEAD_DIM / 4u);
        var top = tops[h];
        for (var s = 1u; s < SUBGROUPS; s++) {
            top = max(top, tops[s * HEADS + h]);
        }
        var sum = vec4<f32>();
        var total = 0.0;
        for (var s = 0u; s < SUBGROUPS; s++) {
            let weight = exp2(tops[s * HEADS + h] - top);
            sum += weight * sums[s * MADE_QUADS + o];
            total += weight * totals[s * HEADS + h];
        }
        if (used == 1u) {
            sum *= select(1.0 / total, 0.0, total == 0.0);
#repeat c 4
            made[4u * o + $cu] = sum[$c];
#end
        } else {
#repeat c 4
            atomicStore(&part[slice * MADE + 4u * o + $cu], bitcast<u32>(sum[$c]));
#end
            if (o % (HEAD_DIM / 4u) == 0u) {
                atomicStore(&part[stats + 2u * (slice * HEADS + h)], bitcast<u32>(top));
                atomicStore(&part[stats + 2u * (slice * HEADS + h) + 1u], bitcast<u32>(total));
            }
        }
    }
    storageBarrier();
    let first_slice = team * params.splits;
#repeat o OWN
#repeat j SPREAD_SPLITS
    var part$o_$j = 0.0;
#end
#end
    if (used > 1u) {
        if (place.lid == 0u) {
            ticket = atomicAdd(&tickets[team], 1u);
        }
        if (workgroupUniformLoad(&ticket) + 1u != used) {
            return;
        }
        if (place.lid == 0u) {
            atomicStore(&tickets[team], 0u);
        }
        // One subgroup per head, lanes over slices; all loads are issued before the first use.
        let other = min(place.lane, used - 1u);
        let own_head = min(place.subgroup, HEADS - 1u);
        let other_at = stats + 2u * ((first_slice + other) * HEADS + own_head);
        let other_top = read_part(other_at);
        let other_total = read_part(other_at + 1u);
#repeat o OWN
#repeat j SPREAD_SPLITS
        part$o_$j = read_part((first_slice + min($ju, used - 1u)) * MADE + min(place.lid + $ou * WG, MADE - 1u));
#end
#end
        var most = other_top;
#repeat s 5
        most = max(most, subgroupShuffleXor(most, 1u << $su));
#end
        let weight = select(0.0, exp2(other_top - most), place.lane < used);
        var all = weight * other_total;
#repeat s 5
        all += subgroupShuffleXor(all, 1u << $su);
#end
        let factor = select(1.0 / all, 0.0, all == 0.0);
        if (place.subgroup < HEADS && place.lane < SPREAD_SPLITS) {
            weights[own_head * SPREAD_SPLITS + place.lane] = weight * factor;
        }
    }
    workgroupBarrier();
#repeat o OWN
    {
        let o = min(place.lid + $ou * WG, MADE - 1u);
        let h = o / HEAD_DIM;
        let d = o % HEAD_DIM;
        let exists = place.lid + $ou * WG < MADE && first_head + h <= last_head;
        var result = 0.0;
        if (used == 1u) {
            result = made[o];
        } else {
            // Slices that do not exist are zero.
#repeat j SPREAD_SPLITS
            result += weights[h * SPREAD_SPLITS + $ju] * part$o_$j;
#end
        }
        let head = min(first_head + h, last_head);
#ifdef hands_on
        let gain = quant_gain(head * HEAD_DIM + d);
        var value = 0.0;
        if (exists) {
            value = store(wid.y, head, d, result);
        }
        quant_epilogue(place.lid, QuantValue(wid.y, head * HEAD_DIM + d, value, gain, exists));
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
