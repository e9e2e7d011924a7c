// Weights as Q3_K: w = d * (s - 32) * (q - 4) in blocks of 256 (110 bytes): 32 bytes of third bits,
// 64 of low bit pairs, 12 of 6-bit scales s (one per 16 weights), f16 d. In half n of a block, with
// j < 32, weights j, 32 + j, 64 + j, 96 + j have their pairs in byte 32 n + j, lowest first, and
// their third bits in byte j from bit 4 n on. The contract is in dequant_f32.wgsl.
// Work split: a unit is 8 neighbouring j, so 32 weights with 4 scales; eight threads read one
// block.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    low: vec2<u32>,
    // Third bits, those of this half of the block lowest.
    high: vec2<u32>,
    scales: vec4<f32>,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// Four quants of quadrant z (32 columns each).
fn quants(low: u32, high: u32, z: u32) -> u32 {
    return ((low >> (z * 2u)) & 0x03030303u) | (((high >> z) & 0x01010101u) << 2u);
}

fn decode(low: u32, high: u32, z: u32, scale: f32) -> vec4<f32> {
    return (vec4<f32>(unpack4xU8(quants(low, high, z))) - vec4(4.0)) * scale;
}

// Scales of the four quadrants of half n, for their columns from 16 t on.
fn quadrant_scales(h: u32, n: u32, t: u32) -> vec4<f32> {
    // Eight bytes of nibbles, those of half 0 low, then four bytes of bit pairs.
    let low = weight_u64(h) >> vec2(t * 8u + n * 4u);
    let high = weight_u32(h + 4u) >> (t * 8u + n * 4u);
    let a = vec4(low.x, low.x >> 16u, low.y, low.y >> 16u) & vec4(15u);
    let b = vec4(high, high >> 16u, high >> 2u, high >> 18u) & vec4(3u);
    return vec4<f32>(a | (b << vec4(4u))) - vec4(32.0);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 256u) * 55u;
    let n = (c & 128u) >> 7u;
    let z = (c & 96u) >> 5u;
    let j = c & 31u;
    let high = weight_u32(h + (j >> 1u)) >> (n * 4u);
    let low = weight_u32(h + 16u + n * 16u + (j >> 1u));
    let d = f16_low(weight_u16(h + 54u));
    return decode(low, high, z, d * quadrant_scales(h + 48u, n, j >> 4u)[z]);
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 3u)) * 55u;
    let n = (unit >> 2u) & 1u;
    let u = unit & 3u;
    return Unit(
        weight_u64(h + 16u + n * 16u + u * 4u),
        weight_u64(h + u * 4u) >> vec2(n * 4u),
        f16_low(weight_u16(h + 54u)) * quadrant_scales(h + 48u, n, u >> 1u),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    // Parts 2 z and 2 z + 1 are the first and the second four columns of quadrant z.
    return (unit >> 2u) * 128u + (unit & 3u) * 8u + (part >> 1u) * 32u + (part & 1u) * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    let z = part >> 1u;
    return decode(unit.low[part & 1u], unit.high[part & 1u], z, unit.scales[z]);
}

const GROUPS: u32 = 4u;
const RUN: u32 = 2u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = false;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return quants(unit.low[part & 1u], unit.high[part & 1u], part >> 1u);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.scales[group];
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -4.0 * unit.scales[group];
}
