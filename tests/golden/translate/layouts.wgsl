// Layouts with gaps, halves, packed bytes, a runtime-sized tail, a constant table.
enable f16;

struct Item {
    place: vec3<f32>,
    kind: u32,
    turn: mat3x3<f32>,
    weights: vec4<f16>,
}

struct List {
    count: u32,
    items: array<Item>,
}

const LIMITS = array<vec3<f32>, 2>(vec3(1.0, 2.0, 3.0), vec3(4.0, 5.0, 6.0));

@group(0) @binding(0) var<storage, read> list: List;
@group(0) @binding(1) var<storage, read_write> y: array<vec3<f32>>;

@compute @workgroup_size(8, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let item = list.items[id.x];
    let bytes = unpack4xI8(item.kind);
    let weight = f32(item.weights[id.y & 3u] * 2.0h) + f32(dot4I8Packed(item.kind, 0x01010101u));
    let place = item.turn * item.place.zyx * weight;
    y[id.y] = clamp(place, -LIMITS[id.x % 2u], LIMITS[id.x % 2u]) + f32(bytes.x);
}
