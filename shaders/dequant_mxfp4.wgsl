// Weights as MXFP4: w = 2^(e - 128) * value of q in blocks of 32 (17 bytes): a byte e, then 16
// bytes; byte j holds weight j in its low and weight 16 + j in its high nibble. q is FP4
// (E2M1: a sign, two exponent bits, one mantissa bit); its values here are doubled, hence 2^(e - 128).
// Scales below 2^-126 count as 0, since GPUs may flush subnormals. The contract is in dequant_f32.wgsl.
// Work split: a unit is 4 bytes, so 8 weights; four threads read one block and 64 contiguous bytes
// of x.
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

// 32 bits at a byte offset. Reads only words that hold wanted bits.
fn weight_bytes(at: u32) -> u32 {
    let low = weight_word(at >> 2u);
    let shift = (at & 3u) * 8u;
    if (shift == 0u) {
        return low;
    }
    return (low >> shift) | (weight_word((at >> 2u) + 1u) << (32u - shift));
}

fn scale_at(at: u32) -> f32 {
    let e = (weight_word(at >> 2u) >> ((at & 3u) * 8u)) & 0xffu;
    return bitcast<f32>((max(e, 1u) - 1u) << 23u);
}

// Values of four low nibbles.
fn quants(word: u32) -> vec4<i32> {
    let q = unpack4xU8(word & 0x0f0f0f0fu);
    // 0 1 2 3 4 6 8 12, a hexadecimal digit each.
    let size = vec4<i32>((vec4(0xc8643210u) >> ((q & vec4(7u)) << vec4(2u))) & vec4(15u));
    return select(size, -size, q > vec4(7u));
}

fn decode(word: u32, d: f32) -> vec4<f32> {
    return vec4<f32>(quants(word)) * d;
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let at = (start + min(c, k - 4u) / 32u) * 17u;
    let word = weight_bytes(at + 1u + (c & 15u));
    return decode(word >> ((c & 16u) >> 2u), scale_at(at));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let at = (start + (unit >> 2u)) * 17u;
    return Unit(weight_bytes(at + 1u + 4u * (unit & 3u)), scale_at(at));
}

fn part_column(unit: u32, part: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u + part * 16u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q >> (part * 4u), unit.d);
}

const GROUPS: u32 = 1u;
const RUN: u32 = 2u;
const BIASED: bool = false;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec2<u32>;
const CODE_LEN: u32 = 2u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return pack4xI8(quants(unit.q >> (part * 4u)));
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return 0.0;
}
