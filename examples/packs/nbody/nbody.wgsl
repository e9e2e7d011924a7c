struct Body {
    position: vec2<f32>,
    velocity: vec2<f32>,
}

struct Params {
    dt: f32,
    softening: f32,
}

@group(0) @binding(0) var<storage, read> before: array<Body>;
@group(0) @binding(1) var<storage, read_write> after: array<Body>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let count = arrayLength(&before);
    if (id.x >= count) {
        return;
    }
    var me = before[id.x];
    var pull = vec2<f32>(0.0);
    for (var i = 0u; i < count; i++) {
        let away = before[i].position - me.position;
        let near = inverseSqrt(dot(away, away) + params.softening * params.softening);
        pull += away * (near * near * near);
    }
    me.velocity += pull * params.dt / f32(count);
    me.position += me.velocity * params.dt;
    after[id.x] = me;
}
