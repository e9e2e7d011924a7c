struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> share: array<f32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let part = clamp(share[at] * 2.6, 0.0, 1.0);
    let low = mix(vec3<f32>(0.05, 0.05, 0.08), vec3<f32>(0.36, 0.34, 0.95), min(part * 1.6, 1.0));
    let color = mix(low, vec3<f32>(1.0, 0.72, 0.42), smoothstep(0.45, 1.0, part));
    pixels[at] = pack4x8unorm(vec4<f32>(color, 1.0));
}
