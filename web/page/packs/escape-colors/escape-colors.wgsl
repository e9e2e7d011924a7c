struct Params {
    width: u32,
    height: u32,
    limit: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> escape: array<f32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let value = escape[at];
    var color = vec3<f32>(0.05, 0.05, 0.08);
    if (value < params.limit) {
        let slow = sqrt(max(value, 0.0));
        let bright = clamp(0.25 + slow * 0.18, 0.0, 1.0);
        let phase = vec3<f32>(0.62, 0.45, 0.12);
        color = (0.5 + 0.5 * cos(6.28318 * (slow * 0.11 + phase))) * bright;
    }
    pixels[at] = pack4x8unorm(vec4<f32>(color, 1.0));
}
