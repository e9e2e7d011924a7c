struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> cells: array<u32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

const GROUND = vec3<f32>(0.05, 0.05, 0.08);
const INK = vec3<f32>(0.56, 0.55, 1.0);

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let value = cells[at];
    let part = select(f32(value) / 254.0 * 0.3, 1.0, value == 255u);
    pixels[at] = pack4x8unorm(vec4<f32>(mix(GROUND, INK, part), 1.0));
}
