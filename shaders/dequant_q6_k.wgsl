// Weights as Q6_K: w = d * s * (q - 32) in blocks of 256 (210 bytes): 128 bytes of low nibbles, 64
// of upper bit pairs, 16 signed scales s (one per 16 weights), f16 d. In half n of a block, with j
// < 32, weights j, 32 + j, 64 + j, 96 + j have their nibbles in bytes 64 n + j (low), 64 n + 32 + j
// (low) and the same two high; their bit pairs are in byte 32 n + j, lowest first. The contract is
// in dequant_f32.wgsl.
// Work split: a unit is 8 neighbouring j, so 32 weights with 4 scales; eight threads read one
// block.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    // Nibbles of bytes j, then of bytes 32 + j.
    low: vec4<u32>,
    high: vec2<u32>,
    scales: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// Four quants of quadrant z (32 columns each), from a word of nibbles and one of bit pairs.
fn quants(low: u32, high: u32, z: u32) -> u32 {
    return ((low >> ((z & 2u) * 2u)) & 0x0f0f0f0fu) | (((high >> (z * 2u)) & 0x03030303u) << 4u);
}

fn decode(low: u32, high: u32, z: u32, scale: f32) -> vec4<f32> {
    return (vec4<f32>(unpack4xU8(quants(low, high, z))) - vec4(32.0)) * scale;
}

fn signed_byte(word: u32, shift: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - shift)) >> 24u);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 256u) * 105u;
    let n = (c & 128u) >> 7u;
    let z = (c & 96u) >> 5u;
    let j = c & 31u;
    let low = weight_u32(h + n * 32u + (z & 1u) * 16u + (j >> 1u));
    let high = weight_u32(h + 64u + n * 16u + (j >> 1u));
    let scales = weight_u16(h + 96u + n * 4u + z);
    let d = f16_low(weight_u16(h + 104u));
    return decode(low, high, z, d * signed_byte(scales, (j >> 4u) * 8u));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 3u)) * 105u;
    let n = (unit >> 2u) & 1u;
    let u = unit & 3u;
    let low = h + n * 32u + u * 4u;
    let scales = weight_u64(h + 96u + n * 4u);
    let d = f16_low(weight_u16(h + 104u));
    let shift = (u >> 1u) * 8u;
    return Unit(
        vec4(weight_u64(low), weight_u64(low + 16u)),
        weight_u64(h + 64u + n * 16u + u * 4u),
        d * vec4(
            signed_byte(scales.x, shift),
            signed_byte(scales.x, shift + 16u),
            signed_byte(scales.y, shift),
            signed_byte(scales.y, shift + 16u),
        ),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    // Parts 2 z and 2 z + 1 are the first and the second four columns of quadrant z.
    return (unit >> 2u) * 128u + (unit & 3u) * 8u + (part >> 1u) * 32u + (part & 1u) * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let z = part >> 1u;
    return decode(unit.low[(z & 1u) * 2u + (part & 1u)], unit.high[part & 1u], z, unit.scales[z]);
}

const GROUPS: u32 = 4u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = false;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return quants(unit.low[((part >> 1u) & 1u) * 2u + (part & 1u)], unit.high[part & 1u], part >> 1u);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -32.0 * unit.scales[group];
}
