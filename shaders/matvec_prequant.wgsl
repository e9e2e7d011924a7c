// matvec_prequant_*: int8 GEMV: the product of matvec_* with quantised rows of x (kin to MMVQ in
// llama.cpp). w [n, k] packed; x as quantize_activations or a fused quant epilogue writes it; y [m, n], few
// rows i.
// Work split: one workgroup per TEAMS * ROWS rows of w and M rows of x, ROWS per team of threads. A
// team's threads take units of the k columns in turn (coalesced); their sums are reduced at the
// end.
// Why: a packed int8 dot product takes one instruction, floats a conversion and a product per
// weight. x is quantised once for all workgroups.
// headers: Q4_K and Q5_K, K columns in planes; see prequant_headers. eights (Q6_Kx8), trits (TQ2_0),
// blocks (Q4_0x8, Q8_0x8), several (eight rows of x): other inner loops, each in its prequant_* file.
// scaled: fused RMS norm: sums of squares of 32 columns each follow the factors of x, and their
// root mean square scales the products.
// quant_epilogue (of a fusion): the workgroup quantises its 32 evaluations for the next product.
#import dequant_*

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;
override TEAMS: u32 = 1;
// The smallest subgroup.
override SUB: u32 = 4;
// Columns, for kernels that need them, and unrolled turns over them: a divisor of the number of
// turns; for trits any number.
override K: u32 = 1024;
override UNROLL: u32 = 1;

const OUTPUTS: u32 = ROWS * M;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = TEAMS * ROWS;
const TEAM: u32 = WG / TEAMS;
// Loads of a unit's codes of x, and groups that one load serves.
const READS: u32 = PARTS / CODE_LEN;
const GROUPS_OF_READ: u32 = CODE_LEN / RUN;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    // Where the factors of row 0 begin.
    x_factors: u32,
    y_offset: u32,
    y_stride: u32,
    eps: f32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read> x: array<CodeWords>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

#import prequant_scale

// Product r of row i of x, from any team.
fn product(r: u32, i: u32, place: Place) -> f32 {
    let o = r / ROWS * SUMS + r % ROWS * M + i;
    return total(o, place) * scale(i, place);
}

#import fusion_rows
#import matvec_sum
#import fusion_fetch
#ifdef quant_epilogue
const QUANT_VALUES: u32 = 32u * M;
const_assert TASK_ROWS == 32u * ANCHORS && QUANT_VALUES <= WG;
#import quant_epilogue
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let task = task_of(wid.y * grid.x + wid.x);
    let first_i = wid.z * M;
    if (!exists(task) || first_i >= params.m) {
        return;
    }
    // Unrolled: a dynamically indexed array may be placed in slow memory. Rows past the end repeat
    // the last one and are not stored.
    let first_r = place.lid / TEAM * ROWS;
#repeat r ROWS
    let start$r = row_start(row_of(task, first_r + $ru), params.k);
#end
#import prequant_begin
    // Epilogue operands of a thread's first products are loaded early.
    let each = evaluations(task);
    var fetched = Fetched();
    if (place.lid < each * M) {
        fetched = fetch(task, place.lid % each, first_i + place.lid / each);
    }
#ifdef quant_epilogue
    let quant_column = task.first + place.lid % 32u;
    let quant_row = first_i + place.lid / 32u;
    let gain = quant_gain(quant_column);
    var value = 0.0;
#endif
#repeat r ROWS
#repeat i M
    var sum$r_$i = 0.0;
#end
#end
#repeat i M
    let row$i = min(first_i + $iu, params.m - 1u) * params.x_stride;
    let codes$i = (params.x_offset + row$i) / CODE_LEN;
    let factors$i = (params.x_factors + row$i) / CODE_LEN;
    let sums$i = factors$i + (params.k + 127u) / 128u * (4u / CODE_LEN);
#end
#ifdef scaled
#repeat i M
    let squares$i = squares(factors$i, place.lid % TEAM);
#end
#endif
#import prequant_sum
#ifdef scaled
#repeat i M
    put(OUTPUTS + $iu, squares$i, place);
#end
#endif
    workgroupBarrier();
    reduce_sums(place);
    for (var o = place.lid; o < each * M; o += WG) {
        let e = o % each;
        let i = o / each;
        if (o >= WG) {
            fetched = fetch(task, e, first_i + i);
        }
        var second = 0.0;
        if (ANCHORS == 2u) {
            second = product(min(e + each, TASK_ROWS - 1u), i, place);
        }
#ifdef quant_epilogue
        value = finish(task, e, first_i + i, product(e, i, place), second, fetched);
#else
        finish(task, e, first_i + i, product(e, i, place), second, fetched);
#endif
    }
#ifdef quant_epilogue
    let exists = place.lid < QUANT_VALUES && quant_row < params.m;
    quant_epilogue(place.lid, QuantValue(quant_row, quant_column, value, gain, exists));
#endif
}
