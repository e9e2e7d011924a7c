// Weights as Q5_0: w = d * (q - 16) in blocks of 32 (22 bytes): f16 d, 32 fifth bits (bit i for
// weight i), then 16 bytes as in Q4_0. The contract is in dequant_f32.wgsl.
// Work split: a unit is 4 bytes, so 8 weights; four threads read one block and 64 contiguous bytes
// of x.
#import half
#import halfwords
#import fifths

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 8u;
const PARTS: u32 = 2u;

struct Unit {
    q: u32,
    // Fifth bits of the unit, those of the upper nibbles 16 bits higher.
    high: u32,
    d: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 32u);
}

fn decode(word: u32, high: u32, d: f32) -> vec4<f32> {
    return (fifths(word, high) - vec4(16.0)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 32u) * 11u;
    let word = weight_u32(h + 3u + ((c & 15u) >> 1u)) >> ((c & 16u) >> 2u);
    return decode(word, weight_u32(h + 1u) >> (c & 31u), f16_low(weight_u16(h)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 2u)) * 11u;
    let t = unit & 3u;
    return Unit(weight_u32(h + 3u + 2u * t), weight_u32(h + 1u) >> (4u * t), f16_low(weight_u16(h)));
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q >> (part * 4u), unit.high >> (part * 16u), unit.d);
}

const GROUPS: u32 = 1u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec2<u32>;
const CODE_LEN: u32 = 2u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return fifth_codes(unit.q >> (part * 4u), unit.high >> (part * 16u));
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -16.0 * unit.d;
}
