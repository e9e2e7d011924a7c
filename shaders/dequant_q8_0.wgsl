// Weights as Q8_0: w = d * q in blocks of 32 (34 bytes): f16 d, then 32 signed bytes. The contract
// is in dequant_f32.wgsl.
// Work split: a unit is a block, so its scale is decoded once for 32 weights.
// Why: blocks are not aligned to 4 bytes, but a block touches the same nine words in both cases.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 32u;
const PARTS: u32 = 8u;

struct Unit {
    low: vec4<u32>,
    high: vec4<u32>,
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
    return decode(word, half_low(weight_u16(h)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + unit) * 17u;
    let i = h >> 1u;
    let first = weight_word(i);
    let a = vec4(first, weight_word(i + 1u), weight_word(i + 2u), weight_word(i + 3u));
    let b = vec4(
        weight_word(i + 4u),
        weight_word(i + 5u),
        weight_word(i + 6u),
        weight_word(i + 7u),
    );
    let last = weight_word(i + 8u);
    let a1 = vec4(a.yzw, b.x);
    let b1 = vec4(b.yzw, last);
    let odd = (h & 1u) == 1u;
    return Unit(
        select((a >> vec4(16u)) | (a1 << vec4(16u)), a1, odd),
        select((b >> vec4(16u)) | (b1 << vec4(16u)), b1, odd),
        half_low(select(first, first >> 16u, odd)),
    );
}

fn part_column(unit: u32, part: u32) -> u32 {
    return unit * 32u + part * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(select(unit.low, unit.high, part > 3u)[part & 3u], unit.d);
}
