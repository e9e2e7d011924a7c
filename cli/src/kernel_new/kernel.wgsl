// The tensors of pack.toml, by their names.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Numbers: sizes are filled in by their names, others are given by each call.
struct Params {
    n: u32,
    a: f32,
}
@group(0) @binding(3) var<uniform> params: Params;

// One thread for each element of the first output.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.n) {
        return;
    }
    out[id.x] = params.a * x[id.x] + y[id.x];
}
