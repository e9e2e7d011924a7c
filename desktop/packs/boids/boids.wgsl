struct Params {
    side: u32,
    dt: f32,
}

@group(0) @binding(0) var<storage, read> sorted: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> ends: array<u32>;
@group(0) @binding(2) var<storage, read_write> after: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> params: Params;

const SLOW: f32 = 0.15;
const FAST: f32 = 0.45;
// Birds of a cell that others look at: a dense flock costs no more than this.
const MOST: u32 = 64u;

// The shortest way on the torus.
fn way(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let d = b - a;
    return d - 2.0 * round(d * 0.5);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let count = arrayLength(&sorted);
    if (id.x >= count) {
        return;
    }
    let me = sorted[id.x];
    let side = params.side;
    let far = 2.0 / f32(side);
    let near = 0.32 * far;
    let scaled = clamp((me.xy + 1.0) * 0.5, vec2(0.0), vec2(1.0)) * f32(side);
    let home = min(vec2<u32>(scaled), vec2(side - 1u));
    var apart = vec2(0.0);
    var flown = vec2(0.0);
    var middle = vec2(0.0);
    var seen = 0.0;
    for (var n = 0u; n < 9u; n++) {
        let at = (home + vec2(n % 3u, n / 3u) + vec2(side - 1u)) % vec2(side);
        let cell = at.y * side + at.x;
        var start = 0u;
        if (cell > 0u) {
            start = ends[cell - 1u];
        }
        let end = min(min(ends[cell], start + MOST), count);
        for (var i = start; i < end; i++) {
            let other = sorted[i];
            let d = way(me.xy, other.xy);
            let distance = dot(d, d);
            if (i == id.x || distance > far * far) {
                continue;
            }
            seen += 1.0;
            flown += other.zw;
            middle += d;
            if (distance < near * near) {
                apart -= d * near / (distance + 1e-4 * near * near);
            }
        }
    }
    var velocity = me.zw;
    if (seen > 0.0) {
        velocity += (flown / seen - velocity) * (2.5 * params.dt);
        velocity += middle / (seen * far) * (0.8 * params.dt);
    }
    velocity += apart * (0.57 * params.dt);
    let speed = max(length(velocity), 1e-6);
    velocity *= clamp(speed, SLOW, FAST) / speed;
    var position = me.xy + velocity * params.dt;
    position -= 2.0 * round(position * 0.5);
    after[id.x] = vec4(position, velocity);
}
