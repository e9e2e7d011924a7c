// y[i] = gelu_tanh(x[i]) for n contiguous elements, one thread each.
struct Params {
    n: u32,
    x_offset: u32,
    y_offset: u32,
    unused: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn gelu(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    // Workgroups that exceed one axis of the grid are laid out in rows.
    let i = (group.y * groups.x + group.x) * 64u + thread;
    if (i >= params.n) {
        return;
    }
    let v = x[params.x_offset + i];
    // Beyond 10, tanh is 1 or -1, and that of some drivers overflows.
    let t = clamp(0.7978845608 * (v + 0.044715 * v * v * v), -10.0, 10.0);
    y[params.y_offset + i] = 0.5 * v * (1.0 + tanh(t));
}
