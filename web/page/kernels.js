// The examples of the playground.
const HEAD = `struct Params { width: u32, height: u32, time: f32, frame: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> pixels: array<u32>;
`;

export const EXAMPLES = [
  ["Waves", `${HEAD}
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let at = (vec2<f32>(id.xy) / size - 0.5) * 6.0;
    var height = 0.0;
    for (var i = 0u; i < 4u; i += 1u) {
        let angle = f32(i) * 0.9 + params.time * 0.1;
        let way = vec2<f32>(cos(angle), sin(angle));
        height += sin(dot(at, way) * (1.5 + f32(i)) + params.time * 1.3) / (1.0 + f32(i));
    }
    let light = 0.5 + 0.25 * height;
    let colour = mix(vec3<f32>(0.07, 0.1, 0.35), vec3<f32>(0.55, 0.85, 1.0), light);
    pixels[id.y * params.width + id.x] = pack4x8unorm(vec4<f32>(colour, 1.0));
}
`],
  ["Mandelbrot", `${HEAD}
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let zoom = 1.4 * pow(0.5, 3.0 - 3.0 * cos(params.time * 0.25));
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let c = vec2<f32>(-0.7436, 0.1318) + (vec2<f32>(id.xy) / size - 0.5) * 2.0 * zoom;
    var z = vec2<f32>(0.0);
    var steps = 0u;
    while (steps < 160u && dot(z, z) < 16.0) {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        steps += 1u;
    }
    var colour = vec3<f32>(0.0);
    if (steps < 160u) {
        let shade = f32(steps) / 24.0;
        colour = 0.5 + 0.5 * cos(6.2832 * (shade + vec3<f32>(0.0, 0.1, 0.2)));
    }
    pixels[id.y * params.width + id.x] = pack4x8unorm(vec4<f32>(colour, 1.0));
}
`],
  ["Game of life", `struct Params { width: u32, height: u32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

fn alive(x: u32, y: u32) -> u32 {
    return (before[(y % params.height) * params.width + x % params.width] >> 8u) & 1u;
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    var neighbours = 0u;
    for (var dy = 0u; dy < 3u; dy += 1u) {
        for (var dx = 0u; dx < 3u; dx += 1u) {
            if (dx != 1u || dy != 1u) {
                neighbours += alive(id.x + params.width + dx - 1u, id.y + params.height + dy - 1u);
            }
        }
    }
    let lives = neighbours == 3u || (neighbours == 2u && alive(id.x, id.y) == 1u);
    pixels[id.y * params.width + id.x] = select(0xff1a1210u, 0xff8fffb4u, lives);
}
`],
];
