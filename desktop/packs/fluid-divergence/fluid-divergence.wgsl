struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> field: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> divergence: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let row = id.y * params.width;
    let left = field[row + max(id.x, 1u) - 1u].x;
    let right = field[row + min(id.x + 1u, params.width - 1u)].x;
    let above = field[(max(id.y, 1u) - 1u) * params.width + id.x].y;
    let below = field[min(id.y + 1u, params.height - 1u) * params.width + id.x].y;
    divergence[row + id.x] = 0.5 * (right - left + below - above);
}
