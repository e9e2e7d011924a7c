struct Params {
    side: u32,
}

@group(0) @binding(0) var<storage, read> birds: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

fn cell_of(position: vec2<f32>) -> u32 {
    let at = clamp((position + 1.0) * 0.5, vec2(0.0), vec2(1.0)) * f32(params.side);
    let cell = min(vec2<u32>(at), vec2(params.side - 1u));
    return cell.y * params.side + cell.x;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&birds)) {
        return;
    }
    ranks[id.x] = atomicAdd(&counts[cell_of(birds[id.x].xy)], 1u);
}
