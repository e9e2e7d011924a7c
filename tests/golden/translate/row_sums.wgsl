// The sum of each row of 256, through workgroup memory; vectors, a function, a pointer, a switch.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<storage, read_write> seen: atomic<u32>;

var<workgroup> parts: array<vec4<f32>, 64>;

fn halve(sum: ptr<function, f32>, mode: i32) {
    switch mode {
        case 0, 1: { *sum *= 0.5; }
        case 2: { return; }
        default: { *sum = f32(i32(*sum) / mode); }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    parts[lane] = x[row.x * 64u + lane];
    workgroupBarrier();
    for (var s = 32u; s > 0u; s >>= 1u) {
        if (lane < s) {
            parts[lane] += parts[lane + s];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        var sum = dot(parts[0], vec4(1.0));
        halve(&sum, i32(arrayLength(&x) % 4u));
        y[row.x] = sum;
        atomicAdd(&seen, 1u);
    }
}
