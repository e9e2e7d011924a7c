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
