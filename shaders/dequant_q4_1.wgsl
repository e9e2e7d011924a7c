// Weights as Q4_1: w = d * q + m in blocks of 32 (20 bytes): f16 d and m, then 16 bytes; byte j
// holds weight j in its low and weight 16 + j in its high nibble. The contract is in
// dequant_f32.wgsl.
// Work split: a unit is 4 bytes, so 8 weights; four threads read one block and 64 contiguous bytes
// of x.
#import half
#import nibbles

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 8u;
const PARTS: u32 = 2u;

struct Unit {
    q: u32,
    d: f32,
    m: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 32u);
}

fn decode(word: u32, d: f32, m: f32) -> vec4<f32> {
    return nibbles(word) * d + vec4(m);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let i = (start + min(c, k - 4u) / 32u) * 5u;
    let scales = weight_word(i);
    let word = weight_word(i + 1u + ((c & 15u) >> 2u));
    return decode(word >> ((c & 16u) >> 2u), f16_low(scales), f16_high(scales));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let i = (start + (unit >> 2u)) * 5u;
    let scales = weight_word(i);
    return Unit(weight_word(i + 1u + (unit & 3u)), f16_low(scales), f16_high(scales));
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q >> (part * 4u), unit.d, unit.m);
}

const GROUPS: u32 = 1u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec2<u32>;
const CODE_LEN: u32 = 2u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return (unit.q >> (part * 4u)) & 0x0f0f0f0fu;
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return unit.m;
}
