// Weights as Q2_K: w = d * s * q - dmin * m in blocks of 256 (84 bytes): 16 bytes with a scale s in
// the low and a minimum m in the high nibble (one per 16 weights), 64 bytes of bit pairs, f16 d and
// dmin. In half n of a block, with j < 32, weights j, 32 + j, 64 + j, 96 + j are in byte 32 n + j,
// lowest first. The contract is in dequant_f32.wgsl.
// Work split: a unit is 8 neighbouring j, so 32 weights with 4 scales; eight threads read one
// block.
#import half

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    q: vec2<u32>,
    scales: vec4<f32>,
    minima: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// Bit pair z of four bytes.
fn pairs(word: u32, z: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8((word >> (z * 2u)) & 0x03030303u));
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let i = (start + min(c, k - 4u) / 256u) * 21u;
    let n = (c & 128u) >> 7u;
    let z = (c & 96u) >> 5u;
    let b = (c & 255u) >> 4u;
    let pair = weight_word(i + (b >> 2u)) >> ((b & 3u) * 8u);
    let d = weight_word(i + 20u);
    let q = pairs(weight_word(i + 4u + n * 8u + ((c & 31u) >> 2u)), z);
    return q * (f16_low(d) * f32(pair & 15u)) - vec4(f16_high(d) * f32((pair >> 4u) & 15u));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let i = (start + (unit >> 3u)) * 21u;
    let n = (unit >> 2u) & 1u;
    let u = unit & 3u;
    // Bytes 0 and 2 of two words: the pairs for this half of each quadrant's 32 columns.
    let shift = (u >> 1u) * 8u;
    let a = weight_word(i + n * 2u) >> shift;
    let b = weight_word(i + n * 2u + 1u) >> shift;
    let s = vec4(a, a >> 16u, b, b >> 16u);
    let d = weight_word(i + 20u);
    let q = i + 4u + n * 8u + u * 2u;
    return Unit(
        vec2(weight_word(q), weight_word(q + 1u)),
        vec4<f32>(s & vec4(15u)) * f16_low(d),
        vec4<f32>((s >> vec4(4u)) & vec4(15u)) * f16_high(d),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    // Parts 2 z and 2 z + 1 are the first and the second four columns of quadrant z.
    return (unit >> 2u) * 128u + (unit & 3u) * 8u + (part >> 1u) * 32u + (part & 1u) * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let z = part >> 1u;
    return pairs(unit.q[part & 1u], z) * unit.scales[z] - vec4(unit.minima[z]);
}

const GROUPS: u32 = 4u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = false;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return (unit.q[part & 1u] >> ((part >> 1u) * 2u)) & 0x03030303u;
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -unit.minima[group];
}
