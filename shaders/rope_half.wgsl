// rope_half: pairs (j, j + rot_dim / 2). One of the pairings of rope.wgsl.
fn pair(j: u32, rot_dim: u32) -> vec2<u32> {
    return vec2(j, j + rot_dim / 2u);
}
