// reduce_*: y[o, i] = reduction over j of x[o, j, i]. x [outer, len, inner], y [outer, inner].
// Work split: one workgroup per (o, i), folded over grid x and y; threads over j with four loads in
// flight.
// Why: one skeleton for all reductions; the operation (identity, combine, finish, subgroup form) is
// imported.
#import reduce_*

override WG: u32 = 128;

const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

struct Params {
    outer: u32,
    len: u32,
    inner: u32,
    x_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> scratch: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
#ifdef subgroup
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
#endif
) {
    let e = wid.y * grid.x + wid.x;
    if (e >= params.outer * params.inner) {
        return;
    }
    let start = params.x_offset + (e / params.inner) * params.len * params.inner + e % params.inner;
    var value = identity();
    for (var j = lid; j < params.len; j += 4u * WG) {
#repeat u 4
        let j$u = j + $uu * WG;
        let x$u = x[start + min(j$u, params.len - 1u) * params.inner];
#end
#repeat u 4
        value = combine(value, select(identity(), x$u, j$u < params.len));
#end
    }
#ifdef subgroup
    let mine = subgroup_combine(value);
    if (lane == 0u) {
        scratch[subgroup] = mine;
    }
    workgroupBarrier();
    value = scratch[0];
    for (var i = 1u; i < min(subgroups, WG); i++) {
        value = combine(value, scratch[i]);
    }
#else
    scratch[lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (lid < half) {
            scratch[lid] = combine(scratch[lid], scratch[lid + half]);
        }
        workgroupBarrier();
    }
    value = scratch[0];
#endif
    if (lid == 0u) {
        y[params.y_offset + e] = finish(value, params.len);
    }
}
