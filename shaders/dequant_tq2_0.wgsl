// Weights as TQ2_0: w = d * (q - 1) in blocks of 256 (66 bytes): 64 bytes of bit pairs, f16 d. In
// half n of a block, with j < 32, weights j, 32 + j, 64 + j, 96 + j are in byte 32 n + j, lowest
// first. The contract is in dequant_f32.wgsl.
// Work split: a unit is 8 neighbouring j, so 32 weights; eight threads read one block.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec2<u32>,
    d: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// Bit pair z of four bytes.
fn decode(word: u32, z: u32, d: f32) -> vec4<f32> {
    return (vec4<f32>(unpack4xU8((word >> (z * 2u)) & 0x03030303u)) - vec4(1.0)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 256u) * 33u;
    let word = weight_u32(h + ((c & 128u) >> 3u) + ((c & 31u) >> 1u));
    return decode(word, (c & 96u) >> 5u, f16_low(weight_u16(h + 32u)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 3u)) * 33u;
    return Unit(weight_u64(h + (unit & 7u) * 4u), f16_low(weight_u16(h + 32u)));
}

fn part_column(unit: u32, part: u32) -> u32 {
    // Parts 2 z and 2 z + 1 are the first and the second four columns of quadrant z.
    return (unit >> 2u) * 128u + (unit & 3u) * 8u + (part >> 1u) * 32u + (part & 1u) * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q[part & 1u], part >> 1u, unit.d);
}

const GROUPS: u32 = 4u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return (unit.q[part & 1u] >> ((part >> 1u) * 2u)) & 0x03030303u;
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -unit.d;
}
