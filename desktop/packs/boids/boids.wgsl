struct Bird {
    position: vec2<f32>,
    velocity: vec2<f32>,
}

struct Params {
    dt: f32,
    near: f32,
    far: f32,
}

@group(0) @binding(0) var<storage, read> before: array<Bird>;
@group(0) @binding(1) var<storage, read_write> after: array<Bird>;
@group(0) @binding(2) var<uniform> params: Params;

const SLOW: f32 = 0.15;
const FAST: f32 = 0.45;

// The shortest way on the torus.
fn way(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let d = b - a;
    return d - 2.0 * round(d * 0.5);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let count = arrayLength(&before);
    if (id.x >= count) {
        return;
    }
    var me = before[id.x];
    var apart = vec2<f32>(0.0);
    var velocity = vec2<f32>(0.0);
    var middle = vec2<f32>(0.0);
    var seen = 0.0;
    for (var i = 0u; i < count; i++) {
        let d = way(me.position, before[i].position);
        let distance = dot(d, d);
        if (i == id.x || distance > params.far * params.far) {
            continue;
        }
        seen += 1.0;
        velocity += before[i].velocity;
        middle += d;
        if (distance < params.near * params.near) {
            apart -= d / (distance + 1e-5);
        }
    }
    if (seen > 0.0) {
        me.velocity += (velocity / seen - me.velocity) * (2.5 * params.dt);
        me.velocity += middle / seen * (3.0 * params.dt);
    }
    me.velocity += apart * (0.02 * params.dt);
    let speed = max(length(me.velocity), 1e-6);
    me.velocity *= clamp(speed, SLOW, FAST) / speed;
    me.position += me.velocity * params.dt;
    me.position -= 2.0 * round(me.position * 0.5);
    after[id.x] = me;
}
