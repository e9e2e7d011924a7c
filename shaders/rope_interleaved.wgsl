// rope_interleaved: pairs (2 j, 2 j + 1). One of the pairings of rope.wgsl.
fn pair(j: u32, rot_dim: u32) -> vec2<u32> {
    return vec2(2u * j, 2u * j + 1u);
}
