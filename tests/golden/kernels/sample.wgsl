// sample
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
// Integer arithmetic of src/sampling: keys, weights, random words, 64-bit sums as [low, high].
const ONE: u32 = 0x80000000u;
// The key of minus infinity; all others are larger.
const FORBIDDEN: u32 = 0x007fffffu;
const NATURAL: f32 = 1.4426950408889634;
const LARGEST: f32 = 4611686018427387904.0;

// 1 for NaN and plus infinity.
fn has_no_key(bits: u32) -> u32 {
    return select(0u, 1u, (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u);
}

// Maps the bits of a float to an integer of the same order; subnormals count as 0.
fn ordered(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x00800000u) {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits != magnitude);
}

// The logit of a key, bounded.
fn logit(key: u32) -> f32 {
    return clamp(bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u)), -LARGEST, LARGEST);
}

fn bounded_scale(bits: u32) -> f32 {
    if (bits < 0x00800000u || bits > 0x7f800000u) {
        return 0.0;
    }
    // As integers, which order positive floats: WGSL has no infinity.
    return bitcast<f32>(min(bits, 0x5e800000u));
}

fn weight(best: u32, key: u32, scale: f32) -> u32 {
    if (key <= FORBIDDEN) {
        return 0u;
    }
    let below = logit(best) - logit(key);
    let halvings = select(below, 0.0, below < 0x1p-126) * scale;
    if (halvings >= 32.0) {
        return 0u;
    }
    let fixed = u32(halvings * 16777216.0);
    let whole = fixed >> 24u;
    let z = (fixed & 0xffffffu) << 8u;
    var sum = 0x00073280u;
    sum = 0x0053b2c6u - multiply(z, sum).y;
    sum = 0x0273f4a7u - multiply(z, sum).y;
    sum = 0x0e34bb28u - multiply(z, sum).y;
    sum = 0x3d7f5d31u - multiply(z, sum).y;
    sum = 0xb1721664u - multiply(z, sum).y;
    let fraction = ONE - (multiply(z, sum).y >> 1u);
    if (whole == 0u) {
        return fraction;
    }
    // Rounds to nearest.
    return (fraction >> whole) + ((fraction >> (whole - 1u)) & 1u);
}

// a * b.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let one = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (one & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (one >> 16u) + (other >> 16u));
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// a * b / 2^64.
fn high64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let middle = add64(multiply(a.x, b.y), vec2<u32>(multiply(a.x, b.x).y, 0u));
    let other = add64(multiply(a.y, b.x), vec2<u32>(middle.x, 0u));
    return add64(add64(multiply(a.y, b.y), vec2<u32>(middle.y, 0u)), vec2<u32>(other.y, 0u));
}

// The goal of top-p for a total: at least 1.
fn top_p_goal(total: vec2<u32>, share: u32) -> vec2<u32> {
    let goal = add64(multiply(total.y, share), vec2<u32>(multiply(total.x, share).y, 0u));
    return select(goal, vec2<u32>(1u, 0u), all(goal == vec2<u32>(0u)));
}

// Two words of Philox4x32-10 (Salmon et al. 2011) of the counter [position, 0, 0, 0].
fn philox(position: u32, seed: vec2<u32>) -> vec2<u32> {
    var c = vec4<u32>(position, 0u, 0u, 0u);
    var k = seed;
    for (var round = 0u; round < 10u; round++) {
        let a = multiply(0xd2511f53u, c.x);
        let b = multiply(0xcd9e8d57u, c.z);
        c = vec4<u32>(b.y ^ c.y ^ k.x, b.x, a.y ^ c.w ^ k.y, a.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c.xy;
}
// Sampling from an entire row by radix select: the position, best first, at which sums reach a
// goal, found digit by digit of the key, then of the index. One search each for top-k, top-p and
// the draw.
const DIGITS: u32 = 256u;

const COUNT: u32 = 0u;
const PLAIN: u32 = 1u;
const DRAWN: u32 = 2u;

// Sums by digit: low words, then high words.
var<workgroup> by_digit: array<atomic<u32>, 512>;
// Search result: the digit, and the rest of the goal after the digits before it.
var<workgroup> found: vec4<u32>;

// The last element that is kept, as key and inverted index: larger ones come before it.
struct Cut {
    key: u32,
    index: u32,
}

// The weight of an element in a search.
fn measure(row: Row, kind: u32, key: u32) -> u32 {
    if (kind == COUNT) {
        return 1u;
    }
    let plain = weight(row.best, key, NATURAL);
    if (kind == PLAIN) {
        return plain;
    }
    if (plain < row.min_p) {
        return 0u;
    }
    return weight(row.best, key, row.scale);
}

// The goal of a search, from the sum over the elements kept so far: 1 to that sum.
fn goal_of(row: Row, kind: u32, total: vec2<u32>) -> vec2<u32> {
    if (kind == COUNT) {
        return vec2<u32>(min(row.top_k, total.x), 0u);
    }
    if (kind == PLAIN) {
        return top_p_goal(total, row.top_p);
    }
    return add64(high64(row.random, total), vec2<u32>(1u, 0u));
}

fn digit_of(place: Cut, digit: u32) -> u32 {
    let word = select(place.index, place.key, digit < 4u);
    return (word >> (24u - 8u * (digit % 4u))) & 0xffu;
}

// Whether all digits before this one equal those of `place`.
fn begins_like(place: Cut, key: u32, index: u32, digit: u32) -> bool {
    if (digit < 4u) {
        // A shift by 32 bits is undefined.
        return digit == 0u || (key >> (32u - 8u * digit)) == (place.key >> (32u - 8u * digit));
    }
    let low = digit - 4u;
    return key == place.key && (low == 0u || (index >> (32u - 8u * low)) == (place.index >> (32u - 8u * low)));
}

fn search(row: Row, kind: u32, cut: Cut, lid: u32) -> Cut {
    // Skips digits that no index uses: in the inverted index all bits are set there.
    let without = countLeadingZeros(params.cols - 1u) / 8u;
    var place = Cut(0u, select(0u, 0xffffffffu << (32u - 8u * without), without != 0u));
    var goal = vec2<u32>(0u);
    for (var turn = 0u; turn < 8u - without; turn++) {
        let digit = select(turn + without, turn, turn < 4u);
        let shift = 24u - 8u * (digit % 4u);
        atomicStore(&by_digit[lid], 0u);
        atomicStore(&by_digit[lid + DIGITS], 0u);
        workgroupBarrier();
        for (var c = lid; c < params.cols; c += WG) {
            let key = ordered(x[row.start + c]);
            let kept = key > cut.key || (key == cut.key && ~c >= cut.index);
            if (kept && key > FORBIDDEN && begins_like(place, key, ~c, digit)) {
                let counted = measure(row, kind, key);
                let bin = digit_of(Cut(key, ~c), digit);
                let old = atomicAdd(&by_digit[bin], counted);
                if (old + counted < old) {
                    atomicAdd(&by_digit[bin + DIGITS], 1u);
                }
            }
        }
        workgroupBarrier();
        // Larger digits come first.
        let mine = DIGITS - 1u - lid;
        let sum = vec2<u32>(atomicLoad(&by_digit[mine]), atomicLoad(&by_digit[mine + DIGITS]));
        let with_mine = scan(sum, lid);
        if (digit == 0u) {
            goal = goal_of(row, kind, sums[WG - 1u]);
        }
        let before = sub64(with_mine, sum);
        if (less64(before, goal) && !less64(with_mine, goal)) {
            found = vec4<u32>(mine, sub64(goal, before), 0u);
        }
        workgroupBarrier();
        goal = found.yz;
        if (digit < 4u) {
            place.key |= found.x << shift;
        } else {
            place.index |= found.x << shift;
        }
        workgroupBarrier();
    }
    return place;
}

fn draw_from_all(row: Row, out: u32, lid: u32) {
    var cut = Cut(FORBIDDEN + 1u, 0u);
    if (row.top_k != 0u) {
        cut = search(row, COUNT, cut, lid);
    }
    if (row.top_p != 0xffffffffu) {
        cut = search(row, PLAIN, cut, lid);
    }
    let drawn = search(row, DRAWN, cut, lid);
    if (lid == 0u) {
        y[out] = ~drawn.index;
    }
}

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
        let c0 = min(c + 0u * WG, params.cols - 1u);
        let key0 = ordered(x[row.start + c0]);
        let c1 = min(c + 1u * WG, params.cols - 1u);
        let key1 = ordered(x[row.start + c1]);
        let c2 = min(c + 2u * WG, params.cols - 1u);
        let key2 = ordered(x[row.start + c2]);
        let c3 = min(c + 3u * WG, params.cols - 1u);
        let key3 = ordered(x[row.start + c3]);
        let c4 = min(c + 4u * WG, params.cols - 1u);
        let key4 = ordered(x[row.start + c4]);
        let c5 = min(c + 5u * WG, params.cols - 1u);
        let key5 = ordered(x[row.start + c5]);
        let c6 = min(c + 6u * WG, params.cols - 1u);
        let key6 = ordered(x[row.start + c6]);
        let c7 = min(c + 7u * WG, params.cols - 1u);
        let key7 = ordered(x[row.start + c7]);
        if (key0 >= bound && c + 0u * WG < params.cols) {
            let place0 = atomicAdd(&candidates, 1u);
            if (place0 < ROOM) {
                keys[place0] = key0;
                ids[place0] = c0;
            }
        }
        if (key1 >= bound && c + 1u * WG < params.cols) {
            let place1 = atomicAdd(&candidates, 1u);
            if (place1 < ROOM) {
                keys[place1] = key1;
                ids[place1] = c1;
            }
        }
        if (key2 >= bound && c + 2u * WG < params.cols) {
            let place2 = atomicAdd(&candidates, 1u);
            if (place2 < ROOM) {
                keys[place2] = key2;
                ids[place2] = c2;
            }
        }
        if (key3 >= bound && c + 3u * WG < params.cols) {
            let place3 = atomicAdd(&candidates, 1u);
            if (place3 < ROOM) {
                keys[place3] = key3;
                ids[place3] = c3;
            }
        }
        if (key4 >= bound && c + 4u * WG < params.cols) {
            let place4 = atomicAdd(&candidates, 1u);
            if (place4 < ROOM) {
                keys[place4] = key4;
                ids[place4] = c4;
            }
        }
        if (key5 >= bound && c + 5u * WG < params.cols) {
            let place5 = atomicAdd(&candidates, 1u);
            if (place5 < ROOM) {
                keys[place5] = key5;
                ids[place5] = c5;
            }
        }
        if (key6 >= bound && c + 6u * WG < params.cols) {
            let place6 = atomicAdd(&candidates, 1u);
            if (place6 < ROOM) {
                keys[place6] = key6;
                ids[place6] = c6;
            }
        }
        if (key7 >= bound && c + 7u * WG < params.cols) {
            let place7 = atomicAdd(&candidates, 1u);
            if (place7 < ROOM) {
                keys[place7] = key7;
                ids[place7] = c7;
            }
        }
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
        let x0 = x[row.start + min(c + 0u * WG, params.cols - 1u)];
        let x1 = x[row.start + min(c + 1u * WG, params.cols - 1u)];
        let x2 = x[row.start + min(c + 2u * WG, params.cols - 1u)];
        let x3 = x[row.start + min(c + 3u * WG, params.cols - 1u)];
        let x4 = x[row.start + min(c + 4u * WG, params.cols - 1u)];
        let x5 = x[row.start + min(c + 5u * WG, params.cols - 1u)];
        let x6 = x[row.start + min(c + 6u * WG, params.cols - 1u)];
        let x7 = x[row.start + min(c + 7u * WG, params.cols - 1u)];
        // Clamping may read the last column several times, but it is the largest of one thread
        // only.
        bad |= has_no_key(x0);
        largest = max(largest, select(0u, ordered(x0), c + 0u * WG < params.cols));
        bad |= has_no_key(x1);
        largest = max(largest, select(0u, ordered(x1), c + 1u * WG < params.cols));
        bad |= has_no_key(x2);
        largest = max(largest, select(0u, ordered(x2), c + 2u * WG < params.cols));
        bad |= has_no_key(x3);
        largest = max(largest, select(0u, ordered(x3), c + 3u * WG < params.cols));
        bad |= has_no_key(x4);
        largest = max(largest, select(0u, ordered(x4), c + 4u * WG < params.cols));
        bad |= has_no_key(x5);
        largest = max(largest, select(0u, ordered(x5), c + 5u * WG < params.cols));
        bad |= has_no_key(x6);
        largest = max(largest, select(0u, ordered(x6), c + 6u * WG < params.cols));
        bad |= has_no_key(x7);
        largest = max(largest, select(0u, ordered(x7), c + 7u * WG < params.cols));
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
