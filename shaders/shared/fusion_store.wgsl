// Insertion point of epilogue fusion in kernels other than products with weights.
// Stores results of a kernel with index space (i, s0, s1) to y, densely. Needs OWN_READS and
// sizes(), the sizes of s0 and s1. With a fused epilogue, generated text replaces this file.
override ATTACHED: u32 = 0;

@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<f32>;

fn store(i: u32, s0: u32, s1: u32, value: f32) {
    y[params.y_offset + (i * sizes().x + s0) * sizes().y + s1] = value;
}
