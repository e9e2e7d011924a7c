// matvec_tiles_*: the product of matvec_* for 8 rows of x at a time; x codes as round_codes writes them for tiles or as
// a product before hands them on, x_stride words for each row of those that lie together, w [n, k] packed, y [m, n],
// k = K columns. What x has of rows behind the last one does not matter: each row of x makes its own products.
// Work split: a team of subgroups, of 32 lanes, makes 16 rows of w for 8 of x, a workgroup so many for each of its
// TEAMS; subgroups of a team take blocks of the k columns in turn, and meet at the end. A lane has parts of rows g and
// g + 8 of w, of row g of x, and makes both rows of w for rows 2 t and 2 t + 1 of x, g = lane / 4 and t = lane % 4.
// Why: for 8 rows of x, sums of products of four take most of the time; matrix hardware multiplies tiles of them at
// once, each of the columns that share their scales. What a turn needs of w is asked for one turn before.
// scaled: behind what codes stand for lie sums of squares of 32 columns each, whose root over k scales the products.
// hands_on (of an attachment): teams make 32 evaluations of 8 rows together, and round them for the next product.
#import dequant_*
#import multiply_codes

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
// Of a team.
const SUBGROUPS: u32 = TEAM / 32u;
// Of places in a buffer, which hold fewer words: compilers see that nothing is carried over when a number is added, and
// add it where they load.
const NEAR: u32 = 0x0fffffffu;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    // Of the first eight rows: what their codes stand for.
    x_factors: u32,
    y_offset: u32,
    y_stride: u32,
    eps: f32,
#import attached_params
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

#import tiles_scale

// Product r of row i of x, of whichever team made it.
fn product(r: u32, i: u32, place: Place) -> f32 {
    return total(r / ROWS * SUMS + r % ROWS * M + i, place) * scale(i, place);
}

#import attached_rows
#import matvec_sum
#import attached_fetch
#ifdef hands_on
// Those of a turn: few threads take several.
const HANDED: u32 = min(32u * M, WG);
const_assert TASK_ROWS == 32u * ANCHORS && HANDED % 32u == 0u;
#import hand_on
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
    // Whole numbers begin at the bits of 1.5 * 2^23, so that none is converted.
    let begin = vec4<i32>(0x4b400000);
    var sums = vec4<f32>();
#import tiles_begin_*
    let each = evaluations(task);
    var fetched = Fetched();
    if (place.lid < each * M) {
        fetched = fetch(task, place.lid % each, first_i + place.lid / each);
    }
#ifdef hands_on
    let own_column = task.first + place.lid % 32u;
    let gain = hand_gain(own_column);
#endif
    let rows_at = first_i * params.x_stride;
    let codes = (params.x_offset + rows_at) / 4u + place.lane;
    let factors = (params.x_factors + rows_at) / 4u + t;
    let sums_at = (params.k + 127u) / 128u * 8u;
#ifdef scaled
    put_squares(factors - t + 2u * sums_at, place);
#endif
#import tiles_*
    let at = place.subgroup * SUMS + g * M + 2u * t;
    partial[at] = sums.x;
    partial[at + 1u] = sums.y;
    partial[at + 8u * M] = sums.z;
    partial[at + 8u * M + 1u] = sums.w;
    workgroupBarrier();
    settle(place);
    for (var first_o = 0u; first_o < each * M; first_o += WG) {
        let o = first_o + place.lid;
        let e = o % each;
        let i = o / each;
        if (first_o > 0u) {
            fetched = fetch(task, e, first_i + i);
        }
#ifdef hands_on
        var value = 0.0;
#endif
        if (o < each * M) {
            var second = 0.0;
            if (ANCHORS == 2u) {
                second = product(min(e + each, TASK_ROWS - 1u), i, place);
            }
            let made = product(e, i, place);
#ifdef hands_on
            value = finish(task, e, first_i + i, made, second, fetched);
#else
            finish(task, e, first_i + i, made, second, fetched);
#endif
        }
#ifdef hands_on
        let exists = place.lid < HANDED && first_i + i < params.m;
        hand_on(place.lid, Handed(first_i + i, own_column, value, gain, exists));
        // hand_on may hold what it shares in memory of the workgroup.
        workgroupBarrier();
#endif
    }
}
