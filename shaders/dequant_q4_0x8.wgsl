// Weights as Q4_0x8: eight interleaved blocks of Q4_0 (144 bytes): eight f16 d, then 128 bytes;
// byte 32 g + j holds weight j of block 2 g in its low and of block 2 g + 1 in its high nibble, w =
// d * (q - 8) (quant::q4_0x8). The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 of these bytes, half of two blocks; eight neighbouring threads read a
// group.
// Why: each load is a vec4; Q4_0's blocks start at any half-word, which forces word loads.
#import half
#import nibbles

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec4<u32>,
    // Of both blocks.
    d: vec2<f32>,
}

// Group index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

fn pair_d(header: vec4<u32>, g: u32) -> vec2<f32> {
    let both = header[g];
    return vec2(f16_low(both), f16_low(both >> 16u));
}

fn decode(word: u32, d: f32) -> vec4<f32> {
    return (nibbles(word) - vec4(8.0)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let group = (start + min(c, k - 4u) / 256u) * 9u;
    let g = (c & 255u) >> 6u;
    let upper = (c & 32u) >> 5u;
    let word = weight_word(group + 1u + g * 2u + ((c & 16u) >> 4u))[(c & 15u) >> 2u];
    return decode(word >> (4u * upper), pair_d(weight_word(group), g)[upper]);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let group = (start + (unit >> 3u)) * 9u;
    let l = unit & 7u;
    return Unit(weight_word(group + 1u + l), pair_d(weight_word(group), l >> 1u));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A group has 256 columns, two blocks 64, a half 16; the upper nibbles are 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q[part & 3u] >> (part & 4u), unit.d[part >> 2u]);
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
    return unit.d[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -8.0 * unit.d[group];
}

// For prequant_blocks: vec4s per group, and the offset of codes of odd blocks; a word of codes as
// signed bytes, for even and odd blocks, and the value of one code step.
const GROUP_WORDS: u32 = 9u;
const ODD_WORD: u32 = 1u;
const CODE_UNIT: f32 = 0.0625;

fn even_codes(word: u32) -> u32 {
    return ((word << 4u) & 0xf0f0f0f0u) ^ 0x80808080u;
}

fn odd_codes(word: u32) -> u32 {
    return (word & 0xf0f0f0f0u) ^ 0x80808080u;
}
