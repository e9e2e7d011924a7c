// attn_subgroup: subgroup flash decoding: attn_decode's y for 32-lane subgroups, head_dim 32, 64, 128
// or 256.
// Work split: one workgroup per head and token. HEAD_DIM / EACH lanes share a key, 16 bytes each,
// with AT_ONCE loads in flight. Subgroups take keys in turn and merge at the end.
// Why: online softmax state stays in the lanes of a key, so there are two barriers in all;
// attn_decode has four per tile, and attn_split_kv needs a second launch.
// f16_kv: k and v are f16.
#import key_range

override WG: u32 = 128;
override HEAD_DIM: u32 = 64;
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
// Row stride of sums, padded against bank conflicts.
const STRIDE: u32 = HEAD_DIM + 1u;
const LOWEST: f32 = -3.4028234e38;
const LOG2_E: f32 = 1.442695;
const SPANS: u32 = 4u;

const_assert HEAD_DIM % EACH == 0u && LANES <= 32u && (LANES & (LANES - 1u)) == 0u && WG >= HEAD_DIM;
const_assert WG >= 32u && WG <= 1024u && (WG & (WG - 1u)) == 0u;
// The 16 KiB of workgroup memory that every device has, in words.
const_assert SUBGROUPS * (STRIDE + 2u) + HEAD_DIM <= 4096u;

struct Params {
#import attention_params
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

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store
#ifdef hands_on
const QUANT_VALUES: u32 = HEAD_DIM;
const_assert QUANT_VALUES % 32u == 0u;
#import quant_epilogue
#endif

// Per subgroup: largest score, sum of weights, weighted sums of values.
var<workgroup> tops: array<f32, SUBGROUPS>;
var<workgroup> totals: array<f32, SUBGROUPS>;
var<workgroup> sums: array<f32, SUBGROUPS * STRIDE>;
var<workgroup> made: array<f32, HEAD_DIM>;

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
fn main(@builtin(workgroup_id) wid: vec3<u32>, place: Place) {
    if (wid.x >= params.heads || wid.y >= params.tokens) {
        return;
    }
    let own = place.lane / LANES;
    let part = place.lane % LANES;
    let kv_head = wid.x / (params.heads / params.kv_heads);
    let q_start = params.q_offset + wid.y * params.q_token_stride + wid.x * params.q_head_stride;
    // Scores are in powers of two.
    let by = params.scale * LOG2_E;
#repeat i QUADS
    let q$i = q[q_start / 4u + part * QUADS + $iu] * by;
    var sum$i = vec4<f32>();
#end
    let k_start = (params.k_offset + kv_head * params.k_head_stride) / EACH + part;
    let v_start = (params.v_offset + kv_head * params.v_head_stride) / EACH + part;
    let k_stride = params.k_token_stride / EACH;
    let v_stride = params.v_token_stride / EACH;
    let range = key_range(wid.y);
    var largest = LOWEST;
    var total = 0.0;
    for (var base = range.x; base < range.y; base += AT_ONCE * SUBGROUPS * KEYS) {
#repeat j AT_ONCE
        let key$j = base + ($ju * SUBGROUPS + place.subgroup) * KEYS + own;
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
        var next = largest;
#repeat j AT_ONCE
        score$j = select(LOWEST, score$j, key$j < range.y);
        next = max(next, score$j);
#end
        let shrink = exp2(largest - next);
        largest = next;
        total *= shrink;
#repeat i QUADS
        sum$i *= shrink;
#end
#repeat j AT_ONCE
        {
            let weight = select(0.0, exp2(score$j - next), key$j < range.y);
            total += weight;
#repeat i QUADS
            sum$i += weight * quad(v$j, $iu);
#end
        }
#end
    }

    // Merges lanes that hold the same elements of other keys.
    var top = largest;
    for (var step = LANES; step < 32u; step *= 2u) {
        top = max(top, subgroupShuffleXor(top, step));
    }
    let shrink = exp2(largest - top);
    total *= shrink;
#repeat i QUADS
    sum$i *= shrink;
#end
    for (var step = LANES; step < 32u; step *= 2u) {
        total += subgroupShuffleXor(total, step);
#repeat i QUADS
        sum$i += subgroupShuffleXor(sum$i, step);
#end
    }
    if (own == 0u) {
        let at = place.subgroup * STRIDE + part * EACH;
#repeat i QUADS
#repeat c 4
        sums[at + 4u * $iu + $cu] = sum$i[$c];
#end
#end
        if (part == 0u) {
            tops[place.subgroup] = top;
            totals[place.subgroup] = total;
        }
    }
    workgroupBarrier();
    // One lane per subgroup; subgroups take elements in turn.
    let other = min(place.lane, SUBGROUPS - 1u);
    let other_top = tops[other];
    var most = other_top;
#repeat s 5
    most = max(most, subgroupShuffleXor(most, 1u << $su));
#end
    let weight = select(0.0, exp2(other_top - most), place.lane < SUBGROUPS);
    var all = weight * totals[other];
#repeat s 5
    all += subgroupShuffleXor(all, 1u << $su);
#end
    let factor = select(1.0 / all, 0.0, all == 0.0);
    for (var d = place.subgroup; d < HEAD_DIM; d += SUBGROUPS) {
        var sum = weight * sums[other * STRIDE + d];
#repeat s 5
        sum += subgroupShuffleXor(sum, 1u << $su);
#end
        if (place.lane == 0u) {
            made[d] = sum * factor;
        }
    }
    workgroupBarrier();
    let element = place.lid % HEAD_DIM;
#ifdef hands_on
    let gain = quant_gain(wid.x * HEAD_DIM + element);
    var value = 0.0;
    if (place.lid < HEAD_DIM) {
        value = store(wid.y, wid.x, element, made[element]);
    }
    quant_epilogue(place.lid, QuantValue(wid.y, wid.x * HEAD_DIM + element, value, gain, place.lid < HEAD_DIM));
#else
    if (place.lid < HEAD_DIM) {
        store(wid.y, wid.x, element, made[element]);
    }
#endif
}
