// Weights as plain f16: half-word r * k + c is w[r, c]. A row may have any length and start at an
// odd half-word. The contract is in dequant_f32.wgsl.
// vec4: k is a multiple of 4, so rows are read 8 bytes at a time.
#import half

const UNIT_LEN: u32 = 4u;
const PARTS: u32 = 1u;

struct Unit {
    values: vec4<f32>,
}

// Element index of the first weight of a row.
fn row_start(row: u32, k: u32) -> u32 {
    return row * k;
}

#ifdef vec4
alias WeightWord = vec2<u32>;
const PARTIAL: bool = false;

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    let words = weight_word((start + min(c, k - 4u)) >> 2u);
    return vec4(
        f16_low(words.x),
        f16_high(words.x),
        f16_low(words.y),
        f16_high(words.y),
    );
}
#else
alias WeightWord = u32;
const PARTIAL: bool = true;

fn weight_at(start: u32, c: u32, k: u32) -> f32 {
    let h = start + min(c, k - 1u);
    let bits = (weight_word(h >> 1u) >> ((h & 1u) * 16u)) & 0xffffu;
    return select(0.0, f16_low(bits), c < k);
}

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    return vec4(
        weight_at(start, c, k),
        weight_at(start, c + 1u, k),
        weight_at(start, c + 2u, k),
        weight_at(start, c + 3u, k),
    );
}
#endif

fn load_unit(start: u32, unit: u32, k: u32) -> Unit {
    return Unit(weights4(start, unit * 4u, k));
}

fn part_column(unit: u32, part: u32) -> u32 {
    return unit * 4u;
}

fn part_weights(unit: Unit, part: u32) -> vec4<f32> {
    return unit.values;
}
