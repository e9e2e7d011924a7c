struct Params {
    width: u32,
    height: u32,
    gain: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    // One more pixel of each side, so that a point is a disc and not a dot.
    var sum = 0.0;
    for (var dy = 0u; dy < 3u; dy++) {
        for (var dx = 0u; dx < 3u; dx++) {
            let x = min(max(id.x + dx, 1u) - 1u, params.width - 1u);
            let y = min(max(id.y + dy, 1u) - 1u, params.height - 1u);
            let far = f32(u32(dx != 1u) + u32(dy != 1u));
            sum += f32(counts[y * params.width + x]) * exp2(-2.0 * far);
        }
    }
    let light = sum / 16.0 * params.gain;
    let color = vec3<f32>(0.56, 0.55, 1.0) * light + vec3<f32>(0.5, 0.35, 0.1) * light * light * 0.2;
    let shown = vec3<f32>(0.05, 0.05, 0.08) + 1.0 - exp(-color);
    pixels[id.y * params.width + id.x] = pack4x8unorm(vec4<f32>(min(shown, vec3<f32>(1.0)), 1.0));
}
