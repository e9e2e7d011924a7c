struct Params {
    width: u32,
    height: u32,
    keep: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> field: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> stir: array<f32>;
@group(0) @binding(3) var<storage, read_write> moved: array<vec4<f32>>;

fn cell(x: i32, y: i32) -> vec4<f32> {
    let last = vec2<i32>(i32(params.width), i32(params.height)) - 1;
    let at = clamp(vec2<i32>(x, y), vec2<i32>(0), last);
    return field[u32(at.y) * params.width + u32(at.x)];
}

// The field between cells.
fn between(place: vec2<f32>) -> vec4<f32> {
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let p = clamp(place, vec2<f32>(0.0), size - 1.0);
    let corner = floor(p);
    let part = p - corner;
    let x = i32(corner.x);
    let y = i32(corner.y);
    let above = mix(cell(x, y), cell(x + 1, y), part.x);
    let below = mix(cell(x, y + 1), cell(x + 1, y + 1), part.x);
    return mix(above, below, part.y);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let at = id.y * params.width + id.x;
    let here = vec2<f32>(id.xy);
    var value = between(here - field[at].xy) * params.keep;
    let away = here - vec2<f32>(stir[0], stir[1]);
    let push = exp(-dot(away, away) / max(stir[4] * stir[4], 1e-3));
    value = vec4<f32>(
        value.x + stir[2] * push,
        value.y + stir[3] * push,
        min(value.z + max(stir[5], 0.0) * push, 1.5),
        min(value.w + max(-stir[5], 0.0) * push, 1.5),
    );
    // Nothing flows through the border.
    if (id.x == 0u || id.y == 0u || id.x + 1u == params.width || id.y + 1u == params.height) {
        value.x = 0.0;
        value.y = 0.0;
    }
    moved[at] = value;
}
