// Workgroup reductions: s = sum over threads of v, m = max over threads of v. Needs WG, a power of
// two of 4 to 256. All threads must call, and all get the result.
// Work split: with subgroups, one value per subgroup passes through workgroup memory; else a tree.
// Why: two barriers for any subgroup size from 4; the baseline needs no feature.
const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

#ifdef subgroup
struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups have at least 4 lanes.
const BLOCK_SUBGROUPS: u32 = WG / 4u;
var<workgroup> block_scratch: array<f32, BLOCK_SUBGROUPS>;

fn block_sum(value: f32, place: Place) -> f32 {
    let mine = subgroupAdd(value);
    if (place.lane == 0u) {
        block_scratch[place.subgroup] = mine;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < min(place.subgroups, BLOCK_SUBGROUPS); i++) {
        total += block_scratch[i];
    }
    workgroupBarrier();
    return total;
}

fn block_max(value: f32, place: Place) -> f32 {
    let mine = subgroupMax(value);
    if (place.lane == 0u) {
        block_scratch[place.subgroup] = mine;
    }
    workgroupBarrier();
    var largest = block_scratch[0];
    for (var i = 1u; i < min(place.subgroups, BLOCK_SUBGROUPS); i++) {
        largest = max(largest, block_scratch[i]);
    }
    workgroupBarrier();
    return largest;
}
#else
struct Place {
    @builtin(local_invocation_index) lid: u32,
}

var<workgroup> block_scratch: array<f32, WG>;

fn block_sum(value: f32, place: Place) -> f32 {
    block_scratch[place.lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (place.lid < half) {
            block_scratch[place.lid] += block_scratch[place.lid + half];
        }
        workgroupBarrier();
    }
    let total = block_scratch[0];
    workgroupBarrier();
    return total;
}

fn block_max(value: f32, place: Place) -> f32 {
    block_scratch[place.lid] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (place.lid < half) {
            block_scratch[place.lid] = max(block_scratch[place.lid], block_scratch[place.lid + half]);
        }
        workgroupBarrier();
    }
    let largest = block_scratch[0];
    workgroupBarrier();
    return largest;
}
#endif
