// integer_reduce: y[o, i] = reduction over j of x[o, j, i] in words of 32 bits, which wrap. x [outer, len,
// inner], y [outer, inner]. kind: 0 sum, 1 product, 2 and 3 maximum and minimum of i32, 4 and 5 those
// of u32. Without elements the result is 0, 1, or the least or the largest number of the type.
// Work split: one workgroup per (o, i), folded over grid x and y; threads over j, then a tree.
// Why: sums and products are the same bits for signed and unsigned numbers, and the order of the
// others is one of unsigned numbers once the sign is flipped. Every order gives the same result.
override WG: u32 = 128;

const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    outer: u32,
    len: u32,
    inner: u32,
    kind: u32,
    x_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

var<workgroup> scratch: array<u32, WG>;

fn combine(a: u32, b: u32) -> u32 {
    switch params.kind {
        case 0u: {
            return a + b;
        }
        case 1u: {
            return a * b;
        }
        case 2u, 4u: {
            return max(a, b);
        }
        default: {
            return min(a, b);
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let e = wid.y * grid.x + wid.x;
    if (e >= params.outer * params.inner) {
        return;
    }
    let start = params.x_offset + (e / params.inner) * params.len * params.inner + e % params.inner;
    let flip = select(0u, 0x80000000u, params.kind == 2u || params.kind == 3u);
    // The identity of the sum, the product, the maximum and the minimum.
    var value = select(0u, 1u, params.kind == 1u);
    value = select(value, 0xffffffffu, params.kind == 3u || params.kind == 5u);
    for (var j = lid; j < params.len; j += WG) {
        value = combine(value, x[start + j * params.inner] ^ flip);
    }
    scratch[lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (lid < half) {
            scratch[lid] = combine(scratch[lid], scratch[lid + half]);
        }
        workgroupBarrier();
    }
    if (lid == 0u) {
        y[params.y_offset + e] = scratch[0] ^ flip;
    }
}
