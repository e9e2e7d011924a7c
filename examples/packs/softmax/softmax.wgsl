// y[r, i] = exp(x[r, i] - max) / sum of the row; a row of only -inf yields zeros. One workgroup
// per row: its threads stride by 64 and reduce the maximum and the sum in workgroup memory.

struct Params {
    rows: u32,
    n: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const THREADS = 64u;
// The lowest finite value: a row of -inf then yields no NaN.
const LOWEST = -3.4028234e38;

var<workgroup> parts: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let begin = row * params.n;
    var largest = LOWEST;
    for (var i = thread; i < params.n; i += THREADS) {
        largest = max(largest, x[begin + i]);
    }
    parts[thread] = largest;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            parts[thread] = max(parts[thread], parts[thread + half]);
        }
    }
    workgroupBarrier();
    largest = parts[0];
    workgroupBarrier();

    var sum = 0.0;
    for (var i = thread; i < params.n; i += THREADS) {
        sum += exp(x[begin + i] - largest);
    }
    parts[thread] = sum;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            parts[thread] += parts[thread + half];
        }
    }
    workgroupBarrier();
    sum = parts[0];

    for (var i = thread; i < params.n; i += THREADS) {
        y[begin + i] = select(exp(x[begin + i] - largest) / sum, 0.0, sum == 0.0);
    }
}
