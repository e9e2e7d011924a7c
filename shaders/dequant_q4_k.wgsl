// Weights as Q4_K: w = d * s * q - dmin * m in blocks of 256 (144 bytes): f16 d and dmin, 12 bytes
// of 6-bit scales s and minima m of 8 sub-blocks, then 128 bytes; byte 32 g + j holds weight j of
// sub-block 2 g in its low and of 2 g + 1 in its high nibble. The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 of these bytes, half of two sub-blocks; eight neighbouring threads read
// one block and share its header. Why: blocks are aligned to 16 bytes, so each load is a vec4.
#import half
#import k_scales
#import nibbles

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec4<u32>,
    // Scales of the two sub-blocks, then minima.
    scales: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

fn decode(word: u32, scale: f32, minimum: f32) -> vec4<f32> {
    return nibbles(word) * scale - vec4(minimum);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let block = (start + min(c, k - 4u) / 256u) * 9u;
    let g = (c & 255u) >> 6u;
    let scales = pair_scales(weight_word(block), g);
    let word = weight_word(block + 1u + g * 2u + ((c & 16u) >> 4u))[(c & 15u) >> 2u];
    if ((c & 32u) == 0u) {
        return decode(word, scales.x, scales.z);
    }
    return decode(word >> 4u, scales.y, scales.w);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let block = (start + (unit >> 3u)) * 9u;
    let l = unit & 7u;
    return Unit(weight_word(block + 1u + l), pair_scales(weight_word(block), l >> 1u));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A block has 256 columns, a group 64, a half 16; the upper nibbles are 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let upper = part > 3u;
    let s = unit.scales;
    return decode(unit.q[part & 3u] >> (part & 4u), select(s.x, s.y, upper), select(s.z, s.w, upper));
}

const GROUPS: u32 = 2u;
const RUN: u32 = 4u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return (unit.q[part & 3u] >> (part & 4u)) & 0x0f0f0f0fu;
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
const BLOCK_WORDS: u32 = 9u;
const PREQUANT_AT: u32 = 1u;
const FIFTHS: bool = false;
const UPPER_UNIT: f32 = 1.0;

fn lower_codes(word: u32, fifths: u32) -> u32 {
    return word & 0x0f0f0f0fu;
}

fn upper_codes(word: u32, fifths: u32) -> u32 {
    return (word & 0xf0f0f0f0u) ^ 0x80808080u;
}
