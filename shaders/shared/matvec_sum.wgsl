// Reduction of a GEMV: total(o) = sum over a team's threads of the values that they put for o. A team
// has SUMS sums: team t has o = t * SUMS and up. Needs WG, TEAMS (equal shares of the threads), SUMS and
// SUB. Between put and reduce_sums callers place a barrier; all threads call reduce_sums before total.
// Work split: with subgroups, each adds its values first, and total adds the subgroups' sums; else
// a tree in workgroup memory.
// Why: one barrier with subgroups of any size from SUB; the tree reduces all sums in each step.
const_assert WG >= 4u && WG <= 1024u && (WG & (WG - 1u)) == 0u;
const_assert TEAMS >= 1u && (TEAMS & (TEAMS - 1u)) == 0u && WG / TEAMS >= 4u;

#ifdef subgroup
struct Place {
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups have at least 4 lanes and, if there are several teams, do not span two of them.
const MAX_SUBGROUPS: u32 = WG / SUB;
var<workgroup> partial: array<f32, MAX_SUBGROUPS * SUMS>;

fn put(o: u32, value: f32, place: Place) {
    let sum = subgroupAdd(value);
    if (place.lane == 0u) {
        partial[place.subgroup * SUMS + o] = sum;
    }
}

fn reduce_sums(place: Place) {
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

// Fits in 16 KiB, which every device has.
const_assert WG * SUMS <= 4096u;
var<workgroup> partial: array<f32, WG * SUMS>;

fn put(o: u32, value: f32, place: Place) {
    partial[o * WG + place.lid] = value;
}

fn reduce_sums(place: Place) {
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
