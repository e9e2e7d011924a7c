// y = a x + y, with what the kernel must know of its sizes in a uniform block.
override WG: u32 = 64;

struct Params {
    n: u32,
    a: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = id.x; i < params.n; i += WG) {
        y[i] = fma(params.a, x[i], y[i]);
    }
}
