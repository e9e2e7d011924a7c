// Weights as TQ1_0: w = d * (digit - 1) in blocks of 256 (54 bytes): 32 bytes, byte j with weights
// j, 32 + j, .. 128 + j; 16 bytes, byte j with weights 160 + j, 176 + j, .. 224 + j; 4 bytes, byte
// j with weights 240 + j, 244 + j, .. 252 + j; f16 d. Digit n of a byte is (3 * (byte * 3^n mod
// 256)) / 256. The contract is in dequant_f32.wgsl.
// Work split: a unit is 16 neighbouring columns: one digit of 16 bytes (in the last unit four
// digits of 4 bytes).
// Why: all units are alike; bytes are read once per digit, but from cache.
#import half
#import halfwords

alias WeightWord = u32;
const PARTIAL: bool = false;
const UNIT_LEN: u32 = 16u;
const PARTS: u32 = 4u;

struct Unit {
    q: vec4<u32>,
    // 3^n of each word.
    powers: vec4<u32>,
    d: f32,
}

// Block index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * (k / 256u);
}

// The digits of four bytes at 3^n = power, two bytes at a time.
fn digits(word: u32, power: u32) -> u32 {
    let even = (((word & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u;
    let odd = ((((word >> 8u) & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u;
    return ((even >> 8u) & 0x00030003u) | (odd & 0x03000300u);
}

fn decode(word: u32, power: u32, d: f32) -> vec4<f32> {
    return (vec4<f32>(unpack4xU8(digits(word, power))) - vec4(1.0)) * d;
}

// 3^n for n of 0 to 4, packed as bytes.
fn power_of(n: u32) -> u32 {
    return select((0x1b090301u >> (n * 8u)) & 0xffu, 81u, n > 3u);
}

// Half-word index in the block of the 16 bytes of unit u, and the digit taken from them.
fn place(u: u32) -> vec2<u32> {
    return select(vec2((u & 1u) * 8u, u >> 1u), vec2(16u, u - 10u), u > 9u);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let h = (start + min(c, k - 4u) / 256u) * 27u;
    let u = (c & 255u) >> 4u;
    let t = (c & 15u) >> 2u;
    let spot = place(u);
    let last = u == 15u;
    let word = weight_u32(h + select(spot.x + 2u * t, 24u, last));
    return decode(word, power_of(select(spot.y, t, last)), f16_low(weight_u16(h + 26u)));
}

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    let h = (start + (unit >> 4u)) * 27u;
    let u = unit & 15u;
    let spot = place(u);
    let d = f16_low(weight_u16(h + 26u));
    if (u == 15u) {
        return Unit(vec4(weight_u32(h + 24u)), vec4(1u, 3u, 9u, 27u), d);
    }
    let q = vec4(weight_u64(h + spot.x), weight_u64(h + spot.x + 4u));
    return Unit(q, vec4(power_of(spot.y)), d);
}

fn part_column(unit: u32, part: u32) -> u32 {
    return unit * 16u + part * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return decode(unit.q[part], unit.powers[part], unit.d);
}

const GROUPS: u32 = 1u;
const RUN: u32 = 4u;
const BIASED: bool = true;
const BIASED_EVENLY: bool = true;
alias CodeWords = vec4<u32>;
const CODE_LEN: u32 = 4u;

fn part_codes(unit: Unit, part: u32) -> u32 {
    return digits(unit.q[part], unit.powers[part]);
}

fn group_scale(unit: Unit, group: u32) -> f32 {
    return unit.d;
}

fn group_bias(unit: Unit, group: u32) -> f32 {
    return -unit.d;
}
