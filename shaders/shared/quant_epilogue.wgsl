// Quant epilogue (fused activation quantisation): rounds a workgroup's results for the next
// products, as quantize_activations does. Needs QUANT_VALUES, the values per call: 32 neighbouring columns of
// one row after another; thread t has value t. All threads must call quant_epilogue.
// An output row has quant_words() words, with codes at quant_code. At quant_factor follow, per 32
// columns: the scale, the sum of codes times the scale, and, if a norm comes before the products, the
// sum of squares, from which they compute its factor. quant_gain returns the weight of that norm (from
// fusion_quant_target). QUANT_TOGETHER interleaved rows have that multiple of the words.
// Why: a separate launch would read the results again and delay the next product.
// wide: subgroups have at least 32 lanes, in workgroup order as for matvec_int8_*. QUANT_WHOLE: they
// have exactly 32, so integer reductions may be one instruction, instead of five dependent
// exchanges.
#import rounding
#import prequant_layout
#import fusion_quant_target

// A value of a row, and the norm's weight for its column.
struct QuantValue {
    row: u32,
    column: u32,
    value: f32,
    gain: f32,
    exists: bool,
}

fn store_block(h: QuantValue, d: f32, sum: i32, squares: f32) {
    let padded = (params.quant_columns + 127u) / 128u * 4u * QUANT_TOGETHER;
    let factor = quant_factor(h.row, h.column / 32u);
    quant_put(factor, bitcast<u32>(d));
    quant_put(factor + padded, bitcast<u32>(d * f32(sum)));
    quant_sum(h.row, h.column / 32u, d * f32(sum));
    if (QUANT_NORM) {
        quant_put(factor + 2u * padded, bitcast<u32>(squares));
    }
}

fn store_word(h: QuantValue, code: u32) {
    quant_code(h.row, h.column / 32u, h.column % 32u / 4u, code);
}

#ifdef wide
// The sum of codes of 16 neighbours, and of all 32.
fn quant_sums(h: QuantValue, code: i32) -> vec2<i32> {
    if (QUANT_WHOLE) {
        let first = h.column % 32u < 16u;
        let sum = subgroupAdd(code);
        let sum_of_first = subgroupAdd(select(0, code, first));
        return vec2(select(sum - sum_of_first, sum_of_first, first), sum);
    }
    var half = code;
#repeat s 4
    half += subgroupShuffleXor(half, 1u << $su);
#end
    return vec2(half, half + subgroupShuffleXor(half, 16u));
}

fn quant_epilogue(lid: u32, h: QuantValue) {
    let v = h.value * h.gain;
    var most = bitcast<u32>(v) & 0x7fffffffu;
    var squares = h.value * h.value;
    if (QUANT_WHOLE) {
        most = subgroupMax(most);
    }
#repeat s 5
    if (!QUANT_WHOLE) {
        most = max(most, subgroupShuffleXor(most, 1u << $su));
    }
    if (QUANT_NORM) {
        squares += subgroupShuffleXor(squares, 1u << $su);
    }
#end
    let r = rounding(most);
    let own = i32(round(v * r.x));
    let code = bitcast<u32>(own) & 0xffu;
    let pair = code | (subgroupShuffleXor(code, 1u) << 8u);
    let four = pair | (subgroupShuffleXor(pair, 2u) << 16u);
    let sums = quant_sums(h, own);
    if (h.exists && h.column % 16u == 0u) {
        quant_half(h.row, h.column / 32u, h.column / 16u % 2u, r.y, sums.x);
    }
    if (h.exists && h.column % 4u == 0u) {
        store_word(h, four);
    }
    if (h.exists && h.column % 32u == 0u) {
        store_block(h, r.y, sums.y, squares);
    }
}
#else
var<workgroup> gained: array<f32, QUANT_VALUES>;
var<workgroup> handed: array<f32, QUANT_VALUES>;

fn four_of(at: u32) -> vec4<f32> {
    return vec4(gained[at], gained[at + 1u], gained[at + 2u], gained[at + 3u]);
}

fn quant_epilogue(lid: u32, h: QuantValue) {
    if (lid < QUANT_VALUES) {
        gained[lid] = h.value * h.gain;
        handed[lid] = h.value;
    }
    workgroupBarrier();
    if (lid < QUANT_VALUES && h.exists && h.column % 4u == 0u) {
        let first = lid / 32u * 32u;
        var most = 0u;
#repeat j 8
        most = max(most, most_of(four_of(first + $ju * 4u)));
#end
        let r = rounding(most);
        store_word(h, rounded4(four_of(lid), r.x));
        if (h.column % 32u == 0u) {
            var squares = 0.0;
            for (var c = 0u; c < 32u; c++) {
                squares += handed[lid + c] * handed[lid + c];
            }
            var sum = 0;
            for (var half = 0u; half < 2u; half++) {
                var part = 0;
                for (var c = half * 16u; c < half * 16u + 16u; c += 4u) {
                    part += dot4I8Packed(0x01010101u, rounded4(four_of(lid + c), r.x));
                }
                quant_half(h.row, h.column / 32u, half, r.y, part);
                sum += part;
            }
            store_block(h, r.y, sum, squares);
        }
    }
}
#endif
