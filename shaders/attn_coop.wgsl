// attn_coop: attn_prefill on tensor cores: y[t, h] = softmax over s of (q[t, h] .
// k[s, h / g] * scale) times v[s, h / g], g = heads / kv_heads. q f32, k and v f16, all strided by
// multiples of 4, y f32. q is converted to f16 after scaling each row by a power of two; softmax
// weights to f16 times 2^15. Sums are f32.
// Work split: one workgroup of 4 subgroups per head and 64 tokens, 16 tokens per subgroup. Tiles of
// KEYS keys pass through workgroup memory. SUB / 16 threads share a token in elementwise steps.
// Why: rows of a cooperative matrix cannot be rescaled, which rules out online softmax. Scores are
// computed twice: for each token's maximum, then for its weights, summed as rounded.
enable f16;
enable wgpu_cooperative_matrix;
#import key_range

override HEAD_DIM: u32 = 64;
override KEYS: u32 = 32;
// Threads of a subgroup; all subgroups have this size.
override SUB: u32 = 32;

const_assert HEAD_DIM % 16u == 0u && HEAD_DIM >= 16u && HEAD_DIM <= 128u;
const_assert KEYS % 16u == 0u && KEYS >= 16u;

const TOKENS: u32 = 64u;
const THREADS: u32 = 4u * SUB;
// Threads per token.
const PER: u32 = SUB / 16u;
// 16-wide tiles along the head and along the keys, and vec4s of both.
const STEPS: u32 = HEAD_DIM / 16u;
const COLUMNS: u32 = KEYS / 16u;
const NUMS: u32 = HEAD_DIM / 4u;
const QUADS: u32 = KEYS / 4u;
// Row strides of keys and values, of weights and of scores, with 8 f16 or 4 f32 of padding.
const STRIDE: u32 = NUMS + 2u;
const WEIGHT_STRIDE: u32 = QUADS + 2u;
const SCORE_STRIDE: u32 = KEYS + 4u;
// Maximum vec4s of a key tile that a thread loads.
const LOADS: u32 = (KEYS * NUMS + THREADS - 1u) / THREADS;
const LOWEST: f32 = -3.4028234e38;
const LOG2_E: f32 = 1.442695;
// vec4s of scores in a tile per thread.
const OWN: u32 = QUADS / PER;
const_assert OWN * PER == QUADS;
const SPANS: u32 = 4u;

struct Params {
#import attention_params
#import attention_strides
    y_offset: u32,
    scale: f32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f16>>;

fn sizes() -> vec2<u32> {
    return vec2(params.heads, HEAD_DIM);
}

#import fusion_store

// Keys and values in turn.
var<workgroup> tile: array<vec4<f16>, KEYS * STRIDE>;
// Per token: first a part of its query, then its weights.
var<workgroup> weights: array<vec4<f16>, TOKENS * WEIGHT_STRIDE>;
// Per token: scores, at the end a part of its result.
var<workgroup> scores: array<f32, TOKENS * SCORE_STRIDE>;
// Per-thread partial maxima as bits, at the end the factors of tokens.
var<workgroup> partial: array<u32, THREADS>;
// The key range of all tokens of this workgroup. 16 bytes, so that the variables after it stay
// 16-byte aligned, as cooperative matrices require.
var<workgroup> working: vec4<u32>;

// vec4 n of a key tile; 0 past the last key, because weight 0 times stale memory may be NaN.
fn load_key(start: u32, base: u32, end: u32, n: u32) -> vec4<f16> {
    let key = base + n / NUMS;
    let seen = min(key, max(end, 1u) - 1u);
    let value = k[start + seen * (params.k_token_stride / 4u) + n % NUMS];
    return select(vec4<f16>(), value, vec4(key < end));
}

fn load_value(start: u32, base: u32, end: u32, n: u32) -> vec4<f16> {
    let key = base + n / NUMS;
    let seen = min(key, max(end, 1u) - 1u);
    let value = v[start + seen * (params.v_token_stride / 4u) + n % NUMS];
    return select(vec4<f16>(), value, vec4(key < end));
}

fn put(n: u32, value: vec4<f16>) {
    if ((KEYS * NUMS) % THREADS == 0u || n < KEYS * NUMS) {
        tile[n / NUMS * STRIDE + n % NUMS] = value;
    }
}

// For four keys, whether a token with this range sees them.
fn are_seen(range: vec2<u32>, key: u32) -> vec4<bool> {
    let keys = vec4(key) + vec4(0u, 1u, 2u, 3u);
    return (keys >= vec4(range.x)) & (keys < vec4(range.y));
}

fn load_scores(at: u32) -> vec4<f32> {
    return vec4(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let first = wid.y * TOKENS;
    let last = min(first + TOKENS, max(params.tokens, 1u)) - 1u;
    // Read through workgroup memory so that uniformity is provable, as cooperative matrices
    // require. Both ends of a token's range grow with the token.
    if (lid == 0u) {
        let exists = wid.x < params.heads && first < params.tokens;
        working = vec4(select(0u, 1u, exists), key_range(min(first, last)).x, key_range(last).y, 0u);
    }
    let work = workgroupUniformLoad(&working);
    if (work.x == 0u) {
        return;
    }
    let begin = work.y;
    let end = work.z;
    let subgroup = lid / SUB;
    let lane = lid % SUB;
    let own_score = subgroup * 16u * SCORE_STRIDE;
    let own_weight = subgroup * 16u * WEIGHT_STRIDE;
    // The token of this thread. Tokens past the end repeat the last one and are not stored.
    let row = lid / PER;
    let part = lid % PER;
    let token = min(first + row, last);
    let range = key_range(token);
    let kv_head = wid.x / (params.heads / params.kv_heads);
    let q_start = (params.q_offset + token * params.q_token_stride + wid.x * params.q_head_stride) / 4u;
    let k_start = (params.k_offset + kv_head * params.k_head_stride) / 4u;
    let v_start = (params.v_offset + kv_head * params.v_head_stride) / 4u;

    // The largest |q| as bits: infinities and NaN compare above every number.
    var most = 0u;
    for (var c = part; c < NUMS; c += PER) {
        let bits = bitcast<vec4<u32>>(q[q_start + c]) & vec4(0x7fffffffu);
        most = max(most, max(max(bits.x, bits.y), max(bits.z, bits.w)));
    }
    partial[lid] = most;
    workgroupBarrier();
    for (var i = 0u; i < PER; i++) {
        most = max(most, partial[row * PER + i]);
    }
    // Scales the largest to exponent 14. Rows below 2^-97 share the factor 2^-111.
    let exponent = max(most >> 23u, 30u);
    // Carries the sign of the scale, so that the largest score has the largest weight.
    let by = bitcast<f32>((268u - exponent) << 23u) * select(1.0, -1.0, params.scale < 0.0);
    let factor = bitcast<f32>((exponent - 14u) << 23u);
#repeat s STEPS
    for (var c = part; c < 4u; c += PER) {
        weights[row * WEIGHT_STRIDE + c] = vec4<f16>(q[q_start + $su * 4u + c] * by);
    }
    workgroupBarrier();
    let a$s = coopLoadT<coop_mat16x16<f16, A>>(&weights[own_weight], WEIGHT_STRIDE);
    workgroupBarrier();
#end

    // Score differences are in powers of two. Beyond 2^24 a separate product rounds by more than 1
    // and a fused one does not, so the maximum is kept as it was computed. Keys of the next tile
    // are loaded while the current tile is multiplied.
    let power = factor * abs(params.scale) * LOG2_E;
    var zero: coop_mat16x16<f32, C>;
    var largest = LOWEST;
#repeat t LOADS
    var ks$t = load_key(k_start, begin, end, $tu * THREADS + lid);
#end
    for (var base = begin; base < end; base += KEYS) {
        workgroupBarrier();
#repeat t LOADS
        put($tu * THREADS + lid, ks$t);
#end
        workgroupBarrier();
#repeat t LOADS
        ks$t = load_key(k_start, base + KEYS, end, $tu * THREADS + lid);
#end
#repeat j COLUMNS
        {
            var sum = zero;
#repeat s STEPS
            {
                let b = coopLoad<coop_mat16x16<f16, B>>(&tile[$ju * 16u * STRIDE + $su * 4u], STRIDE);
                sum = coopMultiplyAdd(a$s, b, sum);
            }
#end
            let to = own_score + $ju * 16u;
            coopStoreT(sum, &scores[to], SCORE_STRIDE);
        }
#end
        workgroupBarrier();
#repeat c OWN
        {
            let own = 4u * ($cu * PER + part);
            let score = load_scores(row * SCORE_STRIDE + own);
            let seen = select(vec4(LOWEST), score, are_seen(range, base + own));
            largest = max(largest, max(max(seen.x, seen.y), max(seen.z, seen.w)));
        }
#end
    }
    workgroupBarrier();
    partial[lid] = bitcast<u32>(largest);
    workgroupBarrier();
    for (var i = 0u; i < PER; i++) {
        largest = max(largest, bitcast<f32>(partial[row * PER + i]));
    }

#repeat s STEPS
    var out$s: coop_mat16x16<f32, C>;
#end
    var total = 0.0;
#repeat t LOADS
    ks$t = load_key(k_start, begin, end, $tu * THREADS + lid);
#end
    for (var base = begin; base < end; base += KEYS) {
        workgroupBarrier();
#repeat t LOADS
        put($tu * THREADS + lid, ks$t);
#end
#repeat t LOADS
        let vs$t = load_value(v_start, base, end, $tu * THREADS + lid);
#end
        workgroupBarrier();
#repeat j COLUMNS
        {
            var sum = zero;
#repeat s STEPS
            {
                let b = coopLoad<coop_mat16x16<f16, B>>(&tile[$ju * 16u * STRIDE + $su * 4u], STRIDE);
                sum = coopMultiplyAdd(a$s, b, sum);
            }
#end
            let to = own_score + $ju * 16u;
            coopStoreT(sum, &scores[to], SCORE_STRIDE);
        }
#end
        workgroupBarrier();
#repeat t LOADS
        put($tu * THREADS + lid, vs$t);
        ks$t = load_key(k_start, base + KEYS, end, $tu * THREADS + lid);
#end
#repeat c OWN
        {
            let own = 4u * ($cu * PER + part);
            let below = (load_scores(row * SCORE_STRIDE + own) - largest) * power;
            let rounded = vec4<f16>(select(vec4(0.0), exp2(below + 15.0), are_seen(range, base + own)));
            let taken = vec4<f32>(rounded);
            total += (taken.x + taken.y) + (taken.z + taken.w);
            weights[row * WEIGHT_STRIDE + $cu * PER + part] = rounded;
        }
#end
        workgroupBarrier();
#repeat j COLUMNS
        {
            let a = coopLoadT<coop_mat16x16<f16, A>>(&weights[own_weight + $ju * 4u], WEIGHT_STRIDE);
#repeat s STEPS
            {
                let b = coopLoadT<coop_mat16x16<f16, B>>(&tile[$ju * 16u * STRIDE + $su * 4u], STRIDE);
                out$s = coopMultiplyAdd(a, b, out$s);
            }
#end
        }
#end
    }

    workgroupBarrier();
    partial[lid] = bitcast<u32>(total);
    workgroupBarrier();
    var all = 0.0;
    for (var i = 0u; i < PER; i++) {
        all += bitcast<f32>(partial[row * PER + i]);
    }
    workgroupBarrier();
    if (part == 0u) {
        partial[row] = bitcast<u32>(select(1.0 / all, 0.0, all == 0.0));
    }
#repeat s STEPS
    coopStoreT(out$s, &scores[own_score], SCORE_STRIDE);
    workgroupBarrier();
    for (var r = lane / 16u; r < 16u; r += PER) {
        let i = subgroup * 16u + r;
        if (first + i <= last) {
            let value = scores[own_score + r * SCORE_STRIDE + lane % 16u];
            store(first + i, wid.x, $su * 16u + lane % 16u, value * bitcast<f32>(partial[i]));
        }
    }
    workgroupBarrier();
#end
}
