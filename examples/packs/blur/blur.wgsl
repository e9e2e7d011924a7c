struct Params {
    width: u32,
    height: u32,
    radius: i32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> blurred: array<f32>;

override TILE: u32 = 8;

@compute @workgroup_size(TILE, TILE)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let last = vec2<i32>(i32(params.width), i32(params.height)) - 1;
    var sum = 0.0;
    var count = 0.0;
    for (var dy = -params.radius; dy <= params.radius; dy++) {
        for (var dx = -params.radius; dx <= params.radius; dx++) {
            let at = vec2<i32>(id.xy) + vec2<i32>(dx, dy);
            if (all(at >= vec2<i32>(0)) && all(at <= last)) {
                sum += source[u32(at.y) * params.width + u32(at.x)];
                count += 1.0;
            }
        }
    }
    blurred[id.y * params.width + id.x] = sum / count;
}
