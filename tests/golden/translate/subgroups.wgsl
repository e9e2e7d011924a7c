// Subgroup operations, and sizes that come as immediates.
struct Sizes {
    n: u32,
    scale: f32,
}

var<immediate> sizes: Sizes;
@group(0) @binding(0) var<storage, read_write> y: array<vec2<f32>>;

@compute @workgroup_size(48)
fn main(
    @builtin(local_invocation_index) i: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    var sum = subgroupAdd(y[i]) * sizes.scale;
    sum += subgroupShuffleXor(sum, 1u);
    let before = subgroupExclusiveAdd(i);
    let odd = subgroupBallot((i & 1u) == 1u);
    if (subgroupAny(lane >= sizes.n)) {
        sum.x += f32(before + odd.x + size);
    }
    y[i] = sum;
}
