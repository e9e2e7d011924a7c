// Weights as IQ4_XS: w = d * (s - 32) * value of q in blocks of 256 (136 bytes): f16 d, 16 high
// bits and 32 low bits of 8 scales s (one per 32 weights), then 8 times 16 bytes as in Q4_0. The
// contract is in dequant_f32.wgsl.
// Work split: a unit is 8 bytes, so 16 weights; two threads read one sub-block.
// Why: blocks are aligned to 8 bytes, so each load is a vec2.
#import half
#import iq4_values

alias WeightWord = vec2<u32>;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 16u;
const PARTS: u32 = 4u;

struct Unit {
    q: vec2<u32>,
    scale: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// d * (s - 32) of sub-block b.
fn sub_scale(header: vec2<u32>, b: u32) -> f32 {
    let s = ((header.y >> (b * 4u)) & 15u) | (((header.x >> (16u + b * 2u)) & 3u) << 4u);
    return f16_low(header.x) * (f32(s) - 32.0);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let block = (start + min(c, k - 4u) / 256u) * 17u;
    let b = (c & 255u) >> 5u;
    let word = weight_word(block + 1u + b * 2u + ((c & 8u) >> 3u))[(c & 4u) >> 2u];
    return iq4_values(word >> ((c & 16u) >> 2u)) * sub_scale(weight_word(block), b);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let block = (start + (unit >> 4u)) * 17u;
    let l = unit & 15u;
    return Unit(weight_word(block + 1u + l), sub_scale(weight_word(block), l >> 1u));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // A sub-block has 32 columns; the upper nibbles are 16 columns further.
    return (unit >> 1u) * 32u + (unit & 1u) * 8u + (part & 1u) * 4u + (part >> 1u) * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return iq4_values(unit.q[part & 1u] >> ((part >> 1u) * 4u)) * unit.scale;
}

const GROUPS: u32 = 1u;
const RUN: u32 = 4u;
const BIASED: bool = false;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return pack4xI8(iq4_codes(unit.q[part & 1u] >> ((part >> 1u) * 4u)));
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scale;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return 0.0;
}
