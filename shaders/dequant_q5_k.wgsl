// Weights as Q5_K: w = d * s * q - dmin * m in blocks of 256 (176 bytes): f16 d and dmin, 12 bytes
// of 6-bit scales s and minima m of 8 sub-blocks, 32 bytes of fifth bits (bit b of byte j for
// weight j of sub-block b), then 128 bytes as in Q4_K. The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 of these bytes, half of two sub-blocks; eight neighbouring threads read
// one block and share its header. Why: blocks are aligned to 16 bytes, so each load is a vec4.
#import half
#import k_scales

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec4<u32>,
    // Fifth bits of the two sub-blocks, in the lowest bits.
    high: vec4<u32>,
    // Scales of the two sub-blocks, then minima.
    scales: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

fn quants(word: u32, high: u32) -> u32 {
    return (word & 0x0f0f0f0fu) | ((high & 0x01010101u) << 4u);
}

fn decode(word: u32, high: u32, scale: f32, minimum: f32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(quants(word, high))) * scale - vec4(minimum);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let block = (start + min(c, k - 4u) / 256u) * 11u;
    let b = (c & 255u) >> 5u;
    let scales = pair_scales(weight_word(block), b >> 1u);
    let half = (c & 16u) >> 4u;
    let t = (c & 15u) >> 2u;
    let word = weight_word(block + 3u + (b >> 1u) * 2u + half)[t] >> ((b & 1u) * 4u);
    let high = weight_word(block + 1u + half)[t] >> b;
    let odd = (b & 1u) == 1u;
    return decode(word, high, select(scales.x, scales.y, odd), select(scales.z, scales.w, odd));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let block = (start + (unit >> 3u)) * 11u;
    let l = unit & 7u;
    let high = weight_word(block + 1u + (l & 1u)) >> vec4(l & 6u);
    return Unit(weight_word(block + 3u + l), high, pair_scales(weight_word(block), l >> 1u));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A block has 256 columns, a group 64, a half 16; the upper nibbles are 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let upper = part > 3u;
    let s = unit.scales;
    let word = unit.q[part & 3u] >> (part & 4u);
    let high = unit.high[part & 3u] >> (part >> 2u);
    return decode(word, high, select(s.x, s.y, upper), select(s.z, s.w, upper));
}

const GROUPS: u32 = 2u;
const RUN: u32 = 4u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return quants(unit.q[part & 3u] >> (part & 4u), unit.high[part & 3u] >> (part >> 2u));
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -unit.scales[2u + group];
}

// For prequant_headers: vec4s per block, the first of its codes, and whether fifth bits precede them;
// a word of codes of even and of odd sub-blocks as signed bytes, and the value of one code step of
// the latter.
const BLOCK_WORDS: u32 = 11u;
const PREQUANT_AT: u32 = 3u;
const FIFTHS: bool = true;
const UPPER_UNIT: f32 = 16.0;

fn lower_codes(word: u32, fifths: u32) -> u32 {
    return quants(word, fifths);
}

fn upper_codes(word: u32, fifths: u32) -> u32 {
    return quants(word >> 4u, fifths >> 1u);
}
