// sample: on-device sampling: y[r] = an index sampled from the logits x[r, ..] with parameters
// draws[r, 0..7] (src/sampling): the top_k largest (ties by lower index) are reduced to those in top_p,
// these to those of at least min_p, and one is drawn by weight 2^(-scale * (best - x)). x [rows, cols]
// with a row stride, draws [rows, 7], y [rows]. If a logit is NaN or plus infinity: the index of the
// first such logit, with the highest bit set; if all are minus infinity: 0xffffffff (sampling::NoToken).
// Work split: one workgroup per row. The top_k-th of the threads' largest logits bounds the
// candidates; a second pass collects them in workgroup memory, ranks each and scans sums in order.
// If top_k is above 256 (or all), or too many logits are equal, sample_radix searches the entire
// row.
// The random number is a function of seed and position: Philox 4x32 (Salmon et al., 2011).
// Why: two coalesced passes in the usual case, eight loads in flight. Weights are integers with
// exact sums (64 bits, [low, high]), so the result does not depend on thread order.
#import sample_weight
#import sample_radix

const WG: u32 = 256u;
// Candidates that fit in workgroup memory.
const ROOM: u32 = 1024u;
// Words per row of draws.
const WORDS: u32 = 7u;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    draws_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> draws: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

// Keys of candidates; before that, of each thread's largest logit.
var<workgroup> keys: array<u32, ROOM>;
var<workgroup> ids: array<u32, ROOM>;
// The best candidates, in order.
var<workgroup> sorted_keys: array<u32, WG>;
var<workgroup> sorted_ids: array<u32, WG>;
var<workgroup> sums: array<vec2<u32>, WG>;
var<workgroup> candidates: atomic<u32>;
var<workgroup> without_key: atomic<u32>;
var<workgroup> lowest: u32;

struct Row {
    // Index of the first logit.
    start: u32,
    // Key of the largest logit.
    best: u32,
    scale: f32,
    top_k: u32,
    top_p: u32,
    min_p: u32,
    // 64 random bits.
    random: vec2<u32>,
}

// Inclusive prefix sum over the threads.
fn scan(value: vec2<u32>, lid: u32) -> vec2<u32> {
    var sum = value;
    sums[lid] = sum;
    workgroupBarrier();
    for (var step = 1u; step < WG; step *= 2u) {
        var before = vec2<u32>(0u);
        if (lid >= step) {
            before = sums[lid - step];
        }
        workgroupBarrier();
        sum = add64(sum, before);
        sums[lid] = sum;
        workgroupBarrier();
    }
    return sum;
}

// The number of threads whose largest key comes before this one's.
fn rank_of_largest(key: u32, lid: u32) -> u32 {
    var rank = 0u;
    for (var i = 0u; i < WG; i++) {
        rank += select(0u, 1u, keys[i] > key || (keys[i] == key && i < lid));
    }
    return rank;
}

// Collects the elements that reach the lowest key that may be kept. Returns their count, of which
// at most ROOM are stored.
fn collect(row: Row, lid: u32) {
    let bound = lowest;
    for (var c = lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = min(c + $ju * WG, params.cols - 1u);
        let key$j = ordered(x[row.start + c$j]);
#end
#repeat j 8
        if (key$j >= bound && c + $ju * WG < params.cols) {
            let place$j = atomicAdd(&candidates, 1u);
            if (place$j < ROOM) {
                keys[place$j] = key$j;
                ids[place$j] = c$j;
            }
        }
#end
    }
}

// Sorts `count` candidates, of which the first `WG` are kept.
fn sort(count: u32, lid: u32) {
    for (var i = lid; i < count; i += WG) {
        let key = keys[i];
        let id = ids[i];
        var rank = 0u;
        for (var j = 0u; j < count; j++) {
            rank += select(0u, 1u, keys[j] > key || (keys[j] == key && ids[j] < id));
        }
        if (rank < WG) {
            sorted_keys[rank] = key;
            sorted_ids[rank] = id;
        }
    }
    workgroupBarrier();
}

// Draws among the sorted candidates, one per thread.
fn draw(row: Row, count: u32, out: u32, lid: u32) {
    let mine = lid < min(count, row.top_k);
    let key = select(0u, sorted_keys[lid], mine);
    let plain = weight(row.best, key, NATURAL);
    let with_plain = scan(vec2<u32>(plain, 0u), lid);
    let goal = top_p_goal(sums[WG - 1u], row.top_p);
    workgroupBarrier();
    let reached = row.top_p != 0xffffffffu && !less64(sub64(with_plain, vec2<u32>(plain, 0u)), goal);
    var drawn = 0u;
    if (mine && !reached && plain >= row.min_p) {
        drawn = weight(row.best, key, row.scale);
    }
    let with_drawn = scan(vec2<u32>(drawn, 0u), lid);
    let left = high64(row.random, sums[WG - 1u]);
    if (less64(left, with_drawn) && !less64(left, sub64(with_drawn, vec2<u32>(drawn, 0u)))) {
        y[out] = sorted_ids[lid];
    }
}

// Reports why there is no token. Reads the row again, so that the usual case only counts.
fn no_token(start: u32, out: u32, lid: u32) {
    if (lid == 0u) {
        atomicStore(&candidates, 0xffffffffu);
    }
    workgroupBarrier();
    for (var c = lid; c < params.cols; c += WG) {
        if (has_no_key(x[start + c]) != 0u) {
            atomicMin(&candidates, c);
        }
    }
    workgroupBarrier();
    if (lid == 0u) {
        // No index has all bits set.
        y[out] = 0x80000000u | atomicLoad(&candidates);
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let r = wid.y * grid.x + wid.x;
    if (r >= params.rows) {
        return;
    }
    let out = params.y_offset + r;
    let at = params.draws_offset + r * WORDS;
    var row: Row;
    row.start = params.x_offset + r * params.x_stride;
    row.scale = bounded_scale(draws[at]);
    row.top_k = draws[at + 1u];
    row.top_p = draws[at + 2u];
    row.min_p = min(draws[at + 3u], ONE);
    row.random = philox(draws[at + 6u], vec2<u32>(draws[at + 4u], draws[at + 5u]));

    var largest = 0u;
    var bad = 0u;
    for (var c = lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let x$j = x[row.start + min(c + $ju * WG, params.cols - 1u)];
#end
        // Clamping may read the last column several times, but it is the largest of one thread
        // only.
#repeat j 8
        bad |= has_no_key(x$j);
        largest = max(largest, select(0u, ordered(x$j), c + $ju * WG < params.cols));
#end
    }
    keys[lid] = largest;
    if (lid == 0u) {
        atomicStore(&candidates, 0u);
        atomicStore(&without_key, 0u);
        lowest = 0u;
    }
    workgroupBarrier();
    if (bad != 0u) {
        atomicStore(&without_key, 1u);
    }
    let rank = rank_of_largest(largest, lid);
    sorted_keys[lid] = 0u;
    workgroupBarrier();
    if (rank == 0u) {
        sorted_keys[0] = largest;
        if (atomicLoad(&without_key) != 0u || largest <= FORBIDDEN) {
            sorted_keys[0] = 0u;
        }
    }
    if (rank + 1u == row.top_k) {
        lowest = max(largest, FORBIDDEN + 1u);
    }
    row.best = workgroupUniformLoad(&sorted_keys[0]);
    if (row.best == 0u) {
        no_token(row.start, out, lid);
        return;
    }
    var count = 0xffffffffu;
    if (row.top_k >= 1u && row.top_k <= WG) {
        collect(row, lid);
        workgroupBarrier();
        if (lid == 0u) {
            lowest = atomicLoad(&candidates);
        }
        count = workgroupUniformLoad(&lowest);
    }
    if (count <= ROOM) {
        sort(count, lid);
        draw(row, count, out, lid);
    } else {
        draw_from_all(row, out, lid);
    }
}
