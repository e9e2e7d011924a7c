// Draws a picture straight from the memory in which a pack computed it.

struct View {
    // Cells of the data.
    width: u32,
    height: u32,
    // Number of iterations of the Mandelbrot set, or the size of a point in pixels.
    limit: f32,
    // Height of the picture over its width, of points.
    aspect: f32,
    // The background.
    ground: vec4<f32>,
    // The colour of what is drawn.
    ink: vec4<f32>,
}

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read> numbers: array<f32>;
@group(0) @binding(1) var<storage, read> fields: array<vec4<f32>>;

struct Corner {
    @builtin(position) position: vec4<f32>,
    // From 0 at the left and at the top to 1.
    @location(0) place: vec2<f32>,
    // Of points.
    @location(1) velocity: vec2<f32>,
}

// One triangle that covers the picture.
@vertex
fn whole(@builtin(vertex_index) index: u32) -> Corner {
    let place = vec2<f32>(f32((index << 1u) & 2u), f32(index & 2u));
    return Corner(vec4<f32>(place.x * 2.0 - 1.0, 1.0 - place.y * 2.0, 0.0, 1.0), place, vec2<f32>(0.0));
}

fn cell(place: vec2<f32>) -> vec2<u32> {
    let size = vec2<f32>(f32(view.width), f32(view.height));
    let at = clamp(place * size, vec2<f32>(0.0), size - 1.0);
    return vec2<u32>(at);
}

@fragment
fn life(corner: Corner) -> @location(0) vec4<f32> {
    let at = cell(corner.place);
    let value = words[at.y * view.width + at.x];
    if (value == 255u) {
        return view.ink;
    }
    return mix(view.ground, view.ink, f32(value) / 254.0 * 0.3);
}

fn palette(t: f32) -> vec3<f32> {
    // From the accent colour over warm tones and back.
    let phase = vec3<f32>(0.62, 0.45, 0.12);
    return 0.5 + 0.5 * cos(6.28318 * (t + phase));
}

@fragment
fn escape(corner: Corner) -> @location(0) vec4<f32> {
    let at = cell(corner.place);
    let value = numbers[at.y * view.width + at.x];
    if (value >= view.limit) {
        return vec4<f32>(0.05, 0.05, 0.08, 1.0);
    }
    let slow = sqrt(max(value, 0.0));
    let bright = clamp(0.25 + slow * 0.18, 0.0, 1.0);
    return vec4<f32>(palette(slow * 0.11) * bright, 1.0);
}

// The value between cells.
fn between(corner: Corner) -> vec4<f32> {
    let size = vec2<f32>(f32(view.width), f32(view.height));
    let place = clamp(corner.place * size - 0.5, vec2<f32>(0.0), size - 1.001);
    let at = vec2<u32>(place);
    let part = fract(place);
    let row = at.y * view.width + at.x;
    let x = min(at.x + 1u, view.width - 1u) - at.x;
    let y = (min(at.y + 1u, view.height - 1u) - at.y) * view.width;
    let above = mix(fields[row], fields[row + x], part.x);
    let below = mix(fields[row + y], fields[row + y + x], part.x);
    return mix(above, below, part.y);
}

// The window has no linear colours, and neither has the picture.
@fragment
fn photo(corner: Corner) -> @location(0) vec4<f32> {
    let value = between(corner);
    return vec4<f32>(mix(view.ground.rgb, value.rgb, value.a), 1.0);
}

@fragment
fn fluid(corner: Corner) -> @location(0) vec4<f32> {
    let value = between(corner);
    let first = vec3<f32>(0.56, 0.55, 1.0);
    let second = vec3<f32>(1.0, 0.55, 0.25);
    let dark = vec3<f32>(0.05, 0.05, 0.08);
    let light = dark + first * max(value.z, 0.0) + second * max(value.w, 0.0);
    return vec4<f32>(1.0 - exp(-light * 1.5), 1.0);
}

// A square for each body: position and velocity.
@vertex
fn point(@builtin(vertex_index) index: u32, @builtin(instance_index) body: u32) -> Corner {
    let value = fields[body];
    let side = vec2<f32>(f32(index & 1u), f32(index >> 1u)) * 2.0 - 1.0;
    let size = view.limit / vec2<f32>(f32(view.width), f32(view.height));
    let stretch = select(vec2<f32>(view.aspect, 1.0), vec2<f32>(1.0, 1.0 / view.aspect), view.aspect > 1.0);
    let position = value.xy * stretch + side * size;
    return Corner(vec4<f32>(position.x, -position.y, 0.0, 1.0), side, value.zw);
}

fn point_light(corner: Corner) -> f32 {
    return clamp((1.0 - dot(corner.place, corner.place)) * 1.6, 0.0, 1.0) * view.ink.a;
}

@fragment
fn body(corner: Corner) -> @location(0) vec4<f32> {
    let light = point_light(corner);
    let warm = clamp(length(corner.velocity) * 1.2, 0.0, 1.0);
    let color = mix(view.ink.rgb, vec3<f32>(1.0, 0.62, 0.3), warm);
    return vec4<f32>(color * light, light);
}

// The colour is the direction, so that flocks are seen.
@fragment
fn bird(corner: Corner) -> @location(0) vec4<f32> {
    let light = point_light(corner);
    let turn = atan2(corner.velocity.y, corner.velocity.x) / 6.28318;
    let color = 0.55 + 0.45 * cos(6.28318 * (turn + vec3<f32>(0.0, 0.33, 0.67)));
    return vec4<f32>(color * light, light);
}
