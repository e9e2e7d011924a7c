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
