// Weights as Q6_Kx8: eight interleaved blocks of Q6_K (1,680 bytes): w = d * s * v, v = q - 32 in
// 6-bit two's complement. In 16-byte words, thread n of 32 has units n and 32 + n: upper nibbles of
// each unit, then low bit pairs of both, then four words each of scales and, last, d of all blocks
// (quant::q6_kx8). The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 neighbouring weights, and 16 that are 32 further.
// Why: each load is a 16-byte word, while Q6_K's blocks start at any half-word. Codes are signed
// without a subtraction: the upper six bits of a byte.
#import half

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec4<u32>,
    pairs: vec2<u32>,
    // d / 4 * s of the first 16 weights and of the others.
    scales: vec2<f32>,
}

// Index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 2048u) * 105u;
}

// The low bits of part p of four, in bits 2 and 3 of each byte.
fn low_bits(pairs: u32, p: u32) -> u32 {
    return select(pairs >> (2u * max(p, 1u) - 2u), pairs << 2u, p == 0u) & 0x0c0c0c0cu;
}

// Its codes: bytes 4 * v.
fn lower_codes(q: u32, pairs: u32, p: u32) -> u32 {
    return ((q << 4u) & 0xf0f0f0f0u) | low_bits(pairs, p);
}

fn upper_codes(q: u32, pairs: u32, p: u32) -> u32 {
    return (q & 0xf0f0f0f0u) | low_bits(pairs, p);
}

fn signed_byte(word: u32, shift: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - shift)) >> 24u);
}

fn decode(codes: u32, scale: f32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(codes)) * scale;
}

fn quarter_d(word: u32, t: u32) -> f32 {
    return 0.25 * f16_low(word >> (16u * t));
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let column = min(c, k - 4u);
    let at = start + column / 2048u * 105u;
    let u = ((column & 1984u) >> 5u) | ((column & 16u) >> 4u);
    let second = (column & 32u) >> 5u;
    let t = u >> 5u;
    let n = u & 31u;
    let p = (column & 15u) >> 2u;
    let q = weight_word(at + u)[p];
    let pairs = weight_word(at + 64u + n)[2u * t + second];
    let codes = select(lower_codes(q, pairs, p), upper_codes(q, pairs, p), second == 1u);
    let scales = weight_word(at + 96u + (n >> 2u))[n & 3u];
    let d = quarter_d(weight_word(at + 104u)[n >> 3u], t);
    return decode(codes, d * signed_byte(scales, 16u * t + 8u * second));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let at = start + (unit >> 6u) * 105u;
    let t = (unit >> 5u) & 1u;
    let n = unit & 31u;
    let pairs = weight_word(at + 64u + n);
    let scales = weight_word(at + 96u + (n >> 2u))[n & 3u] >> (16u * t);
    let d = quarter_d(weight_word(at + 104u)[n >> 3u], t);
    return Unit(
        weight_word(at + (unit & 63u)),
        select(pairs.xy, pairs.zw, t == 1u),
        d * vec2(signed_byte(scales, 0u), signed_byte(scales, 8u)),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A pair of units has 64 columns; the second parts are 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(part_codes(unit, part), unit.scales[part >> 2u]);
}

const GROUPS: u32 = 2u;
const RUN: u32 = 4u;
const BIASED: bool = false;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    if (part < 4u) {
        return lower_codes(unit.q[part & 3u], unit.pairs.x, part & 3u);
    }
    return upper_codes(unit.q[part & 3u], unit.pairs.y, part & 3u);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return 0.0;
}
