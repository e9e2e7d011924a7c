// matvec_mma_*: int8 tensor-core GEMV: the product of matvec_* for 8 rows of x at a time. x as
// quantize_activations (tiles) or a fused quant epilogue writes it, x_stride words per row; w [n, k] packed,
// y [m, n], k = K columns. Rows of x past the last may hold anything: rows are independent.
// Work split: a team of 32-lane subgroups computes 16 rows of w for 8 of x; a workgroup has TEAMS
// teams. A team's subgroups take blocks of k in turn and reduce at the end. Lane = 4 g + t holds
// parts of rows g and g + 8 of w and row g of x, and gets both rows of w for rows 2 t and 2 t + 1
// of x.
// Kin to Marlin (Frantar et al., 2024): quantised weights go from memory to the registers of the
// tensor-core fragment, one turn ahead.
// Why: for 8 rows, packed dot products are compute-bound; tensor cores multiply a tile at once, per
// columns with common scales. Weights are loaded one turn early.
// scaled: fused RMS norm: sums of squares of 32 columns each follow the factors of x, and their
// root mean square scales the products.
// quant_epilogue (of a fusion): the workgroup quantises its 32 evaluations of 8 rows for the next
// product.
#import dequant_*
#import mma_int8

override WG: u32 = 128;
override TEAMS: u32 = 1;
override K: u32 = 2048;

const M: u32 = 8u;
const ROWS: u32 = 16u;
const OUTPUTS: u32 = ROWS * M;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = TEAMS * ROWS;
const TEAM: u32 = WG / TEAMS;
const SUB: u32 = 32u;
// Subgroups per team.
const SUBGROUPS: u32 = TEAM / 32u;
// Masks buffer indices, which are below this: compilers see that an addition cannot carry and fold
// it into the load's address.
const NEAR: u32 = 0x0fffffffu;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    // Where the factors of the first eight rows begin.
    x_factors: u32,
    y_offset: u32,
    y_stride: u32,
    eps: f32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;

var<private> subgroup_lane: u32;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

fn whole(sum: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(sum) - vec4(12582912.0);
}

#import mma_scale

// Product r of row i of x, from any team.
fn product(r: u32, i: u32, place: Place) -> f32 {
    return total(r / ROWS * SUMS + r % ROWS * M + i, place) * scale(i, place);
}

#import fusion_rows
#import matvec_sum
#import fusion_fetch
#ifdef quant_epilogue
// Values handed on per turn: few threads take several.
const QUANT_VALUES: u32 = min(32u * M, WG);
const_assert TASK_ROWS == 32u * ANCHORS && QUANT_VALUES % 32u == 0u;
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
    subgroup_lane = place.lane;
    let g = place.lane / 4u;
    let t = place.lane % 4u;
    let own_subgroup = place.subgroup % SUBGROUPS;
    let first_r = place.subgroup / SUBGROUPS * ROWS;
    let start0 = row_start(row_of(task, first_r + g), params.k);
    let start1 = row_start(row_of(task, first_r + g + 8u), params.k);
    // Integer sums start at the bits of 1.5 * 2^23, so that they become floats without a
    // conversion.
    let begin = vec4<i32>(0x4b400000);
    var sums = vec4<f32>();
#import mma_begin_*
    let each = evaluations(task);
    var fetched = Fetched();
    if (place.lid < each * M) {
        fetched = fetch(task, place.lid % each, first_i + place.lid / each);
    }
#ifdef quant_epilogue
    let own_column = task.first + place.lid % 32u;
    let gain = quant_gain(own_column);
#endif
    let rows_at = first_i * params.x_stride;
    let codes = (params.x_offset + rows_at) / 4u + place.lane;
    let factors = (params.x_factors + rows_at) / 4u + t;
    let sums_at = (params.k + 127u) / 128u * 8u;
#ifdef scaled
    put_squares(factors - t + 2u * sums_at, place);
#endif
#import mma_*
    let at = place.subgroup * SUMS + g * M + 2u * t;
    partial[at] = sums.x;
    partial[at + 1u] = sums.y;
    partial[at + 8u * M] = sums.z;
    partial[at + 8u * M + 1u] = sums.w;
    workgroupBarrier();
    reduce_sums(place);
    for (var first_o = 0u; first_o < each * M; first_o += WG) {
        let o = first_o + place.lid;
        let e = o % each;
        let i = o / each;
        if (first_o > 0u) {
            fetched = fetch(task, e, first_i + i);
        }
#ifdef quant_epilogue
        var value = 0.0;
#endif
        if (o < each * M) {
            var second = 0.0;
            if (ANCHORS == 2u) {
                second = product(min(e + each, TASK_ROWS - 1u), i, place);
            }
            let made = product(e, i, place);
#ifdef quant_epilogue
            value = finish(task, e, first_i + i, made, second, fetched);
#else
            finish(task, e, first_i + i, made, second, fetched);
#endif
        }
#ifdef quant_epilogue
        let exists = place.lid < QUANT_VALUES && first_i + i < params.m;
        quant_epilogue(place.lid, QuantValue(first_i + i, own_column, value, gain, exists));
        // quant_epilogue may reuse workgroup memory that was read above.
        workgroupBarrier();
#endif
    }
}
