struct Params {
    width: u32,
    height: u32,
    steps: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> orbit: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> view: array<f32>;
@group(0) @binding(3) var<storage, read_write> escape: array<f32>;

// Far beyond 2, so that the fraction is smooth.
const ESCAPED: f32 = 1.0e4;

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let away = (vec2<f32>(id.xy) + 0.5 - 0.5 * size) / size.y * view[0];
    let limit = u32(clamp(view[1], 1.0, 1.0e6));
    var d = vec2<f32>(0.0);
    var at = 0u;
    var found = f32(limit);
    for (var i = 0u; i < limit; i++) {
        d = times(2.0 * orbit[at] + d, d) + away;
        at++;
        let z = orbit[at] + d;
        let square = dot(z, z);
        if (square > ESCAPED) {
            found = f32(i) + 1.0 - log2(log2(square) * 0.5);
            break;
        }
        // A difference that is larger than the value loses digits: it goes on from the beginning of
        // the orbit, which is 0. So does one at the end of an orbit that escapes.
        if (square < dot(d, d) || at + 1u >= params.steps) {
            d = z;
            at = 0u;
        }
    }
    escape[id.y * params.width + id.x] = found;
}
