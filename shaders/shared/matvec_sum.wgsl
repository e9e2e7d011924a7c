// The end of a matvec: total(o) = sum over the threads of a team of the value that each put for o, for SUMS of
// them; those of team t are o = t * SUMS and up. Needs WG, TEAMS, which share the threads of the workgroup evenly,
// SUMS and SUB; a barrier stands between put and settle, which all threads call before total.
// Work split: a subgroup adds first where there are subgroups, then whoever wants a total adds what the
// subgroups left; without them a tree over workgroup memory.
// Why: one barrier with subgroups of any size from SUB; the tree handles all sums in each of its steps.
const_assert WG >= 4u && WG <= 1024u && (WG & (WG - 1u)) == 0u;
const_assert TEAMS >= 1u && (TEAMS & (TEAMS - 1u)) == 0u && WG / TEAMS >= 4u;

#ifdef subgroup
struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups have at least 4 lanes, and no more than a team has threads where there are several.
const MAX_SUBGROUPS: u32 = WG / SUB;
var<workgroup> partial: array<f32, MAX_SUBGROUPS * SUMS>;

fn put(o: u32, value: f32, place: Place) {
    let sum = subgroupAdd(value);
    if (place.lane == 0u) {
        partial[place.subgroup * SUMS + o] = sum;
    }
}

fn settle(place: Place) {
}

fn total(o: u32, place: Place) -> f32 {
    let each = min(place.subgroups, MAX_SUBGROUPS) / TEAMS;
    let first = o / SUMS * each;
    var sum = 0.0;
    for (var s = 0u; s < each; s++) {
        sum += partial[(first + s) * SUMS + o % SUMS];
    }
    return sum;
}
#else
struct Place {
    @builtin(local_invocation_index) lid: u32,
}

// 16 KiB are sure to exist.
const_assert WG * SUMS <= 4096u;
var<workgroup> partial: array<f32, WG * SUMS>;

fn put(o: u32, value: f32, place: Place) {
    partial[o * WG + place.lid] = value;
}

fn settle(place: Place) {
    for (var half = WG / TEAMS / 2u; half > 0u; half /= 2u) {
        if (place.lid % (WG / TEAMS) < half) {
            for (var o = 0u; o < SUMS; o++) {
                partial[o * WG + place.lid] += partial[o * WG + place.lid + half];
            }
        }
        workgroupBarrier();
    }
}

fn total(o: u32, place: Place) -> f32 {
    return partial[o % SUMS * WG + o / SUMS * (WG / TEAMS)];
}
#endif
