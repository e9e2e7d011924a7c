struct Params {
    width: u32,
    height: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> cells: array<u32>;
@group(0) @binding(2) var<storage, read> brush: array<f32>;
@group(0) @binding(3) var<storage, read_write> next: array<u32>;

fn lives(x: u32, y: u32) -> u32 {
    return u32(cells[(y % params.height) * params.width + x % params.width] == 255u);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    // One less, without a negative index.
    let left = id.x + params.width - 1u;
    let above = id.y + params.height - 1u;
    let neighbours = lives(left, above) + lives(id.x, above) + lives(id.x + 1u, above)
        + lives(left, id.y) + lives(id.x + 1u, id.y)
        + lives(left, id.y + 1u) + lives(id.x, id.y + 1u) + lives(id.x + 1u, id.y + 1u);
    let at = id.y * params.width + id.x;
    let now = cells[at];
    let away = vec2<f32>(id.xy) - vec2<f32>(brush[0], brush[1]);
    let drawn = brush[3] > 0.0 && dot(away, away) <= brush[2] * brush[2];
    if (drawn || neighbours == 3u || (neighbours == 2u && now == 255u)) {
        next[at] = 255u;
    } else {
        next[at] = min(max(now, 4u) - 4u, 254u);
    }
}
