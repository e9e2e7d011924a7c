struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> before: array<f32>;
@group(0) @binding(2) var<storage, read> divergence: array<f32>;
@group(0) @binding(3) var<storage, read_write> pressure: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let row = id.y * params.width;
    let left = before[row + max(id.x, 1u) - 1u];
    let right = before[row + min(id.x + 1u, params.width - 1u)];
    let above = before[(max(id.y, 1u) - 1u) * params.width + id.x];
    let below = before[min(id.y + 1u, params.height - 1u) * params.width + id.x];
    pressure[row + id.x] = 0.25 * (left + right + above + below - divergence[row + id.x]);
}
