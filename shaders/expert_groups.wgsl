// expert_groups: sorts pairs of a token and an expert by expert, and cuts the pairs of each expert
// into tiles: order [pairs], tiles [tiles] of (expert, first, end, 0), where order[first .. end] are
// up to ROWS pairs of the expert. Ids from EXPERTS - 1 on are that expert. Tiles past the last one
// have no pairs.
// Work split: one workgroup, which counts, sums and places in workgroup memory.
// Why: a launch for a few thousand pairs; the order within an expert may differ from run to run,
// which changes no result, since rows of a product are independent.
override WG: u32 = 256;
override EXPERTS: u32 = 128;
override ROWS: u32 = 32;

// Experts per thread.
const EACH: u32 = (EXPERTS + WG - 1u) / WG;

struct Params {
    pairs: u32,
    tiles: u32,
    ids_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> tiles: array<vec4<u32>>;

// Pairs of each expert; later where its next pair goes.
var<workgroup> counts: array<atomic<u32>, EXPERTS>;
// Pairs and tiles of the experts up to those of a thread.
var<workgroup> sums: array<vec2<u32>, WG>;

fn expert_of(pair: u32) -> u32 {
    return min(ids[params.ids_offset + pair], EXPERTS - 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    for (var e = lid; e < EXPERTS; e += WG) {
        atomicStore(&counts[e], 0u);
    }
    workgroupBarrier();
    for (var p = lid; p < params.pairs; p += WG) {
        atomicAdd(&counts[expert_of(p)], 1u);
    }
    workgroupBarrier();
    var own = vec2<u32>();
    for (var e = lid * EACH; e < min(lid * EACH + EACH, EXPERTS); e++) {
        let count = atomicLoad(&counts[e]);
        own += vec2(count, (count + ROWS - 1u) / ROWS);
    }
    sums[lid] = own;
    workgroupBarrier();
    for (var step = 1u; step < WG; step *= 2u) {
        var before = vec2<u32>();
        if (lid >= step) {
            before = sums[lid - step];
        }
        workgroupBarrier();
        sums[lid] += before;
        workgroupBarrier();
    }
    var at = sums[lid] - own;
    for (var e = lid * EACH; e < min(lid * EACH + EACH, EXPERTS); e++) {
        let end = at.x + atomicLoad(&counts[e]);
        atomicStore(&counts[e], at.x);
        for (var first = at.x; first < end; first += ROWS) {
            tiles[at.y] = vec4(e, first, min(first + ROWS, end), 0u);
            at.y += 1u;
        }
        at.x = end;
    }
    for (var t = sums[WG - 1u].y + lid; t < params.tiles; t += WG) {
        tiles[t] = vec4(EXPERTS, 0u, 0u, 0u);
    }
    workgroupBarrier();
    for (var p = lid; p < params.pairs; p += WG) {
        order[atomicAdd(&counts[expert_of(p)], 1u)] = p;
    }
}
