struct Params {
    side: u32,
}

@group(0) @binding(0) var<storage, read> birds: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> ranks: array<u32>;
@group(0) @binding(2) var<storage, read> ends: array<u32>;
@group(0) @binding(3) var<storage, read_write> sorted: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> params: Params;

fn cell_of(position: vec2<f32>) -> u32 {
    let at = clamp((position + 1.0) * 0.5, vec2(0.0), vec2(1.0)) * f32(params.side);
    let cell = min(vec2<u32>(at), vec2(params.side - 1u));
    return cell.y * params.side + cell.x;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let count = arrayLength(&birds);
    if (id.x >= count) {
        return;
    }
    let bird = birds[id.x];
    let cell = cell_of(bird.xy);
    var start = 0u;
    if (cell > 0u) {
        start = ends[cell - 1u];
    }
    sorted[min(start + ranks[id.x], count - 1u)] = bird;
}
