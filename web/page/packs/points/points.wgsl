struct Body {
    position: vec2<f32>,
    velocity: vec2<f32>,
}

struct Params {
    width: u32,
    height: u32,
    even: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> bodies: array<Body>;
@group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&bodies)) {
        return;
    }
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let scale = select(size, vec2<f32>(min(size.x, size.y)), params.even == 1u);
    let place = bodies[id.x].position * scale * 0.5 + size * 0.5 - 0.5;
    // Far points would not fit into an integer.
    let corner = vec2<i32>(clamp(floor(place), vec2<f32>(-4.0), size + 4.0));
    let part = place - floor(place);
    for (var i = 0; i < 4; i++) {
        let step = vec2<i32>(i & 1, i >> 1);
        let at = corner + step;
        let weight = select(1.0 - part, part, step == vec2<i32>(1));
        if (all(at >= vec2<i32>(0)) && all(at < vec2<i32>(size))) {
            atomicAdd(&counts[u32(at.y) * params.width + u32(at.x)], u32(16.0 * weight.x * weight.y + 0.5));
        }
    }
}
