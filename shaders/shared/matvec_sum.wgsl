// The end of a matvec: y[o] = sum over threads of the value that each put for o, for OUTPUTS outputs.
// Needs WG, OUTPUTS and store(o, ..); a barrier stands between put and finish.
// Work split: a subgroup adds first where there are subgroups, then thread o adds what the subgroups left;
// without them a tree over workgroup memory.
// Why: one barrier with subgroups of any size from 4; the tree handles all outputs in each of its steps.
const_assert WG >= 4u && WG <= 256u && (WG & (WG - 1u)) == 0u;

#ifdef subgroup
struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups have at least 4 lanes.
const MAX_SUBGROUPS: u32 = WG / 4u;
var<workgroup> partial: array<f32, MAX_SUBGROUPS * OUTPUTS>;

fn put(o: u32, value: f32, place: Place) {
    let total = subgroupAdd(value);
    if (place.lane == 0u) {
        partial[place.subgroup * OUTPUTS + o] = total;
    }
}

fn finish(first_row: u32, first_i: u32, place: Place) {
    for (var o = place.lid; o < OUTPUTS; o += WG) {
        var total = 0.0;
        for (var s = 0u; s < min(place.subgroups, MAX_SUBGROUPS); s++) {
            total += partial[s * OUTPUTS + o];
        }
        store(o, first_row, first_i, total);
    }
}
#else
struct Place {
    @builtin(local_invocation_index) lid: u32,
}

// 16 KiB are sure to exist.
const_assert WG * OUTPUTS <= 4096u;
var<workgroup> partial: array<f32, WG * OUTPUTS>;

fn put(o: u32, value: f32, place: Place) {
    partial[o * WG + place.lid] = value;
}

fn finish(first_row: u32, first_i: u32, place: Place) {
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (place.lid < half) {
            for (var o = 0u; o < OUTPUTS; o++) {
                partial[o * WG + place.lid] += partial[o * WG + place.lid + half];
            }
        }
        workgroupBarrier();
    }
    for (var o = place.lid; o < OUTPUTS; o += WG) {
        store(o, first_row, first_i, partial[o * WG]);
    }
}
#endif
