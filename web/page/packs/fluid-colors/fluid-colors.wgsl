struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> field: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let first = vec3<f32>(0.56, 0.55, 1.0) * max(field[at].z, 0.0);
    let second = vec3<f32>(1.0, 0.55, 0.25) * max(field[at].w, 0.0);
    let light = vec3<f32>(0.05, 0.05, 0.08) + first + second;
    pixels[at] = pack4x8unorm(vec4<f32>(1.0 - exp(-light * 1.5), 1.0));
}
