// Weights as Q8_0x2: two interleaved blocks of Q8_0 (68 bytes), w = d * q: a word with d of both as
// f16, then eight units of two words of signed bytes (quant::q8_0x2). The contract is in
// dequant_f32.wgsl.
// Work split: a unit is 4 neighbouring weights and 4 that are 16 further, as in Q8_0; four threads
// read one block and 64 contiguous bytes of x.
// Why: three loads per unit; Q8_0's blocks start at any half-word and need five.
#import half

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 8u;
const PARTS: u32 = 2u;

struct Unit {
    low: u32,
    high: u32,
    d: f32,
}

// Index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 64u) * 17u;
}

fn decode(word: u32, d: f32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let column = min(c, k - 4u);
    let at = start + column / 64u * 17u;
    let block = (column >> 5u) & 1u;
    let unit = block * 4u + ((column >> 2u) & 3u);
    let word = weight_word(at + 1u + unit * 2u + ((column >> 4u) & 1u));
    return decode(word, f16_low(weight_word(at) >> (16u * block)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let at = start + (unit >> 3u) * 17u;
    let word = at + 1u + (unit & 7u) * 2u;
    let d = f16_low(weight_word(at) >> (4u * (unit & 4u)));
    return Unit(weight_word(word), weight_word(word + 1u), d);
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(part_codes(unit, part), unit.d);
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
