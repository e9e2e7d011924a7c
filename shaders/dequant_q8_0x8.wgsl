// Weights as Q8_0x8: eight interleaved blocks of Q8_0 (272 bytes), w = d * q: eight f16 d, then
// signed bytes of the even blocks and of the odd ones (quant::q8_0x8). The contract is in
// dequant_f32.wgsl.
// Work split: a unit is 16 bytes of an even block and 16 of the next odd one; eight neighbouring
// threads read one group. Why: each load is a vec4; Q8_0's blocks start at any half-word.
#import half

alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    even: vec4<u32>,
    odd: vec4<u32>,
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
    return vec4<f32>(unpack4xI8(word)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let group = (start + min(c, k - 4u) / 256u) * 17u;
    let g = (c & 255u) >> 6u;
    let odd = (c & 32u) >> 5u;
    let word = weight_word(group + 1u + odd * 8u + g * 2u + ((c & 16u) >> 4u))[(c & 15u) >> 2u];
    return decode(word, pair_d(weight_word(group), g)[odd]);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let group = (start + (unit >> 3u)) * 17u;
    let l = unit & 7u;
    let d = pair_d(weight_word(group), l >> 1u);
    return Unit(weight_word(group + 1u + l), weight_word(group + 9u + l), d);
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A group has 256 columns, two blocks 64, a half 16; the odd block is 32 columns further.
    return (unit >> 1u) * 64u + (unit & 1u) * 16u + (part & 3u) * 4u + (part & 4u) * 8u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(part_codes(unit, part), unit.d[part >> 2u]);
}

const GROUPS: u32 = 2u;
const RUN: u32 = 4u;
const BIASED: bool = false;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return select(unit.even[part & 3u], unit.odd[part & 3u], part > 3u);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return 0.0;
}

// For prequant_blocks: vec4s per group, and the offset of codes of odd blocks; a word of codes as
// signed bytes, for even and odd blocks, and the value of one code step.
const GROUP_WORDS: u32 = 17u;
const ODD_WORD: u32 = 9u;
const CODE_UNIT: f32 = 1.0;

fn even_codes(word: u32) -> u32 {
    return word;
}

fn odd_codes(word: u32) -> u32 {
    return word;
}
