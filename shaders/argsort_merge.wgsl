// argsort_merge: merges pairs of neighbouring runs of `run` columns that argsort, or the merge before,
// has sorted. ids and y [rows, cols]; x and `order` are those of argsort. run is a multiple of TILE.
// Work split: one workgroup per TILE results. A binary search finds where the first and the last
// result cut the two runs; what lies between is merged in workgroup memory, each thread counting
// for its elements how many of the other run come before.
// Why: reads and writes of ids are contiguous, and all workgroups have the same work however the
// runs are mixed.
override WG: u32 = 256;

const TILE: u32 = 1024u;
const_assert WG >= 32u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    rows: u32,
    cols: u32,
    run: u32,
    order: u32,
    x_offset: u32,
    x_stride: u32,
    ids_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

#import sort_key

var<workgroup> keys: array<u32, TILE>;
var<workgroup> columns: array<u32, TILE>;
// How many of the first results are of the first run, before the tile and with it.
var<workgroup> cuts: array<u32, 2>;

fn key_at(x_row: u32, ids_row: u32, place: u32) -> u32 {
    return sort_key(x[x_row + ids[ids_row + place]], params.order);
}

// The number of elements of the first run among the first `results` of both. The runs begin at
// `a` and `b` and have `a_count` and `b_count` elements.
fn cut(x_row: u32, a: u32, a_count: u32, b: u32, b_count: u32, results: u32) -> u32 {
    var low = results - min(results, b_count);
    var high = min(results, a_count);
    while (low < high) {
        let middle = (low + high) / 2u;
        // Of equals those of the first run come first.
        if (key_at(x_row, a, middle) <= key_at(x_row, b, results - 1u - middle)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let tiles = (params.cols + TILE - 1u) / TILE;
    let task = wid.y * grid.x + wid.x;
    if (task >= params.rows * tiles) {
        return;
    }
    let row = task / tiles;
    let first = task % tiles * TILE;
    let x_row = params.x_offset + row * params.x_stride;
    let ids_row = params.ids_offset + row * params.cols;
    // The pair of runs to which the tile belongs. Both ends are counted from its begin.
    let begin = first - first % (2u * params.run);
    let length = min(2u * params.run, params.cols - begin);
    let a_count = min(params.run, length);
    let b_count = length - a_count;
    let start = first - begin;
    let end = min(start + TILE, length);
    if (lid < 2u) {
        let results = select(start, end, lid == 1u);
        cuts[lid] = cut(x_row, ids_row + begin, a_count, ids_row + begin + a_count, b_count, results);
    }
    workgroupBarrier();
    let a_first = cuts[0];
    let a_here = cuts[1] - a_first;
    let b_first = start - a_first;
    let here = end - start;
    for (var i = lid; i < here; i += WG) {
        let place = select(a_count + b_first + i - a_here, a_first + i, i < a_here);
        let column = ids[ids_row + begin + place];
        columns[i] = column;
        keys[i] = sort_key(x[x_row + column], params.order);
    }
    workgroupBarrier();
    for (var i = lid; i < here; i += WG) {
        let of_a = i < a_here;
        let key = keys[i];
        // The other run's elements that come before: smaller ones, and equal ones of the first run.
        var low = select(0u, a_here, of_a);
        var high = select(a_here, here, of_a);
        while (low < high) {
            let middle = (low + high) / 2u;
            let other = keys[middle];
            if (other < key || (other == key && !of_a)) {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
        let before = select(low, low - a_here, of_a);
        let own = select(i - a_here, i, of_a);
        y[params.y_offset + row * params.cols + first + own + before] = columns[i];
    }
}
