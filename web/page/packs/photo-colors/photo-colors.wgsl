struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> picture: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let color = picture[at];
    pixels[at] = pack4x8unorm(vec4<f32>(color.rgb * color.a, 1.0));
}
