// Weights as Q8_0: w = d * q in blocks of 32 (34 bytes): f16 d, then 32 signed bytes. The contract
// is in dequant_f32.wgsl.
// Work split: a unit is words t and t + 4 of a block, so 8 weights; four threads read one block and
// 64 contiguous bytes of x.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 8u;
const PARTS: u32 = 2u;

struct Unit {
    low: u32,
    high: u32,
    d: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 32u);
}

fn decode(word: u32, d: f32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 32u) * 17u;
    let word = weight_u32(h + 1u + ((c & 31u) >> 1u));
    return decode(word, f16_low(weight_u16(h)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 2u)) * 17u;
    let i = h >> 1u;
    let t = unit & 3u;
    // Half-word h and words t and t + 4 after it: each in two words, or in one if h is odd.
    let first = weight_word(i);
    let a = weight_word(i + t);
    let b = weight_word(i + t + 1u);
    let e = weight_word(i + t + 4u);
    let f = weight_word(i + t + 5u);
    let odd = (h & 1u) == 1u;
    return Unit(
        select((a >> 16u) | (b << 16u), b, odd),
        select((e >> 16u) | (f << 16u), f, odd),
        f16_low(select(first, first >> 16u, odd)),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(select(unit.low, unit.high, part == 1u), unit.d);
}

const GROUPS: u32 = 1u;
const RUN: u32 = 2u;
const BIASED: bool = false;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec2<u32>;
const CODE_LEN: u32 = 2u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return select(unit.low, unit.high, part == 1u);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return 0.0;
}
