// Where the results of a kernel of the index space (i, s0, s1) go: y, without gaps. Needs OWN_READS and
// sizes(), those of s0 and s1. Generated text takes the place of this file where there is a segment.
override ATTACHED: u32 = 0;

@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<f32>;

fn store(i: u32, s0: u32, s1: u32, value: f32) {
    y[params.y_offset + (i * sizes().x + s0) * sizes().y + s1] = value;
}
