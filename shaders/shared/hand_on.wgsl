// What a workgroup stores, rounded for the products that follow as round_codes does it. Needs HANDED, the values that
// it hands on at once: 32 neighbouring columns of a row after another, thread t has value t. All threads call hand_on.
// A row of what is handed on has hand_words() words, of which hand_code places the codes; behind them, where
// hand_factor says, are what a code of each 32 columns stands for, what their codes add up to times that, and where a
// norm is in front of the products the sum of squares of each 32, by which those that read them find its factor.
// hand_gain gives the weight of that norm, which attached_hand has from the attachment. Of HAND_TOGETHER rows that lie
// together words are as many for each.
// Why: a step of its own would read again what is at hand here, and whoever follows would wait for it.
// wide: subgroups have at least 32 lanes, and neighbours of a workgroup are neighbours there, as for matvec_int8_*;
// HAND_WHOLE: they have 32. Then reductions of whole numbers are an instruction each on devices that have one, where
// exchanges wait for each other five times.
#import rounding
#import codes_place
#import attached_hand

// A value of a row, and the weight of the norm there.
struct Handed {
    row: u32,
    column: u32,
    value: f32,
    gain: f32,
    exists: bool,
}

fn hand_block(h: Handed, d: f32, sum: i32, squares: f32) {
    let padded = (params.hand_columns + 127u) / 128u * 4u * HAND_TOGETHER;
    let factor = hand_factor(h.row, h.column / 32u);
    hand_put(factor, bitcast<u32>(d));
    hand_put(factor + padded, bitcast<u32>(d * f32(sum)));
    hand_sum(h.row, h.column / 32u, d * f32(sum));
    if (HAND_NORM) {
        hand_put(factor + 2u * padded, bitcast<u32>(squares));
    }
}

fn hand_word(h: Handed, code: u32) {
    hand_code(h.row, h.column / 32u, h.column % 32u / 4u, code);
}

#ifdef wide
// What the codes of 16 neighbours add up to, and those of all 32.
fn code_sums(h: Handed, code: i32) -> vec2<i32> {
    if (HAND_WHOLE) {
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

fn hand_on(lid: u32, h: Handed) {
    let v = h.value * h.gain;
    var most = bitcast<u32>(v) & 0x7fffffffu;
    var squares = h.value * h.value;
    if (HAND_WHOLE) {
        most = subgroupMax(most);
    }
#repeat s 5
    if (!HAND_WHOLE) {
        most = max(most, subgroupShuffleXor(most, 1u << $su));
    }
    if (HAND_NORM) {
        squares += subgroupShuffleXor(squares, 1u << $su);
    }
#end
    let r = rounding(most);
    let own = i32(round(v * r.x));
    let code = bitcast<u32>(own) & 0xffu;
    let pair = code | (subgroupShuffleXor(code, 1u) << 8u);
    let four = pair | (subgroupShuffleXor(pair, 2u) << 16u);
    let sums = code_sums(h, own);
    if (h.exists && h.column % 16u == 0u) {
        hand_half(h.row, h.column / 32u, h.column / 16u % 2u, r.y, sums.x);
    }
    if (h.exists && h.column % 4u == 0u) {
        hand_word(h, four);
    }
    if (h.exists && h.column % 32u == 0u) {
        hand_block(h, r.y, sums.y, squares);
    }
}
#else
var<workgroup> gained: array<f32, HANDED>;
var<workgroup> handed: array<f32, HANDED>;

fn four_of(at: u32) -> vec4<f32> {
    return vec4(gained[at], gained[at + 1u], gained[at + 2u], gained[at + 3u]);
}

fn hand_on(lid: u32, h: Handed) {
    if (lid < HANDED) {
        gained[lid] = h.value * h.gain;
        handed[lid] = h.value;
    }
    workgroupBarrier();
    if (lid < HANDED && h.exists && h.column % 4u == 0u) {
        let first = lid / 32u * 32u;
        var most = 0u;
#repeat j 8
        most = max(most, most_of(four_of(first + $ju * 4u)));
#end
        let r = rounding(most);
        hand_word(h, rounded4(four_of(lid), r.x));
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
                hand_half(h.row, h.column / 32u, half, r.y, part);
                sum += part;
            }
            hand_block(h, r.y, sum, squares);
        }
    }
}
#endif
