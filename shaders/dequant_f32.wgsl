// Weights as plain f32: word r * k + c is w[r, c]. A row may have any length.
// Contract of all dequant_* files; the importer defines weight_word(i), element i of the binding.
// weights4(start, c, k) = w[c .. c + 4] of a row, c a multiple of 4. For matvec, a row is split
// into units of UNIT_LEN weights, one thread each, and a unit into PARTS parts of 4 neighbours. If
// PARTIAL is true, columns from k on are 0 and x must not be read there.
// Packed formats also supply weights as scale * code + bias, for int8 products. part_codes gives the
// four codes of a part, one byte each, -128 to 127. A unit's parts form GROUPS groups of RUN, each
// within 32 columns, with one group_scale and one group_bias (0 unless BIASED; equal over the 32
// columns if BIASED_EVENLY). 8 / RUN neighbouring units share 32 columns. quantize_activations stores a
// unit's codes of x together; a load reads CODE_LEN words of them.
// vec4: k is a multiple of 4, so rows are read 16 bytes at a time.
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
alias WeightWord = vec4<u32>;
const PARTIAL: bool = false;

fn weights4(start: u32, c: u32, k: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(weight_word((start + min(c, k - 4u)) >> 2u));
}
#else
alias WeightWord = u32;
const PARTIAL: bool = true;

fn weight_at(start: u32, c: u32, k: u32) -> f32 {
    return select(0.0, bitcast<f32>(weight_word(start + min(c, k - 1u))), c < k);
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
