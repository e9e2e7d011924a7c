@group(0) @binding(0) var<storage, read_write> data: array<f32>;

var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) i: u32) {
    let count = arrayLength(&data);
    sums[i] = 0.0;
    if (i < count) {
        sums[i] = data[i];
    }
    for (var step = 1u; step < 256u; step *= 2u) {
        workgroupBarrier();
        var more = 0.0;
        if (i >= step) {
            more = sums[i - step];
        }
        workgroupBarrier();
        sums[i] += more;
    }
    if (i < count) {
        data[i] = sums[i];
    }
}
