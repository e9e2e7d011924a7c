// Weights as Q4_0: w = d * (q - 8) in blocks of 32 (18 bytes): f16 d, then 16 bytes; byte j holds
// weight j in its low and weight 16 + j in its high nibble. The contract is in dequant_f32.wgsl.
// Work split: a unit is 4 bytes, so 8 weights; four threads read one block.
// Why: scattered reads of x are the bottleneck; here four threads read 64 contiguous bytes of it,
// and sharing a scale costs less.
#import half
#import halfwords
#import nibbles

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 8u;
const PARTS: u32 = 2u;

struct Unit {
    q: u32,
    d: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 32u);
}

fn decode(word: u32, d: f32) -> vec4<f32> {
    return (nibbles(word) - vec4(8.0)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 32u) * 9u;
    let word = weight_u32(h + 1u + ((c & 15u) >> 1u));
    return decode(word >> ((c & 16u) >> 2u), f16_low(weight_u16(h)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 2u)) * 9u;
    let i = h >> 1u;
    let t = unit & 3u;
    // Half-word h and word t after it: in two words, or in one if h is odd.
    let first = weight_word(i);
    let a = weight_word(i + t);
    let b = weight_word(i + t + 1u);
    let odd = (h & 1u) == 1u;
    let d = f16_low(select(first, first >> 16u, odd));
    return Unit(select((a >> 16u) | (b << 16u), b, odd), d);
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q >> (part * 4u), unit.d);
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
    return -8.0 * unit.d;
}
