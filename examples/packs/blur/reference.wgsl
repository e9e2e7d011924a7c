struct Params {
    width: u32,
    height: u32,
    radius: i32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> blurred: array<f32>;

// One thread computes the pixels one after another.
@compute @workgroup_size(1)
fn main() {
    for (var y = 0; y < i32(params.height); y++) {
        for (var x = 0; x < i32(params.width); x++) {
            var sum = 0.0;
            var count = 0;
            for (var v = max(y - params.radius, 0); v <= min(y + params.radius, i32(params.height) - 1); v++) {
                for (var u = max(x - params.radius, 0); u <= min(x + params.radius, i32(params.width) - 1); u++) {
                    sum += source[v * i32(params.width) + u];
                    count++;
                }
            }
            blurred[y * i32(params.width) + x] = sum / f32(count);
        }
    }
}
