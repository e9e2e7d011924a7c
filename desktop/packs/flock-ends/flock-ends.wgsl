@group(0) @binding(0) var<storage, read> counts: array<u32>;
@group(0) @binding(1) var<storage, read_write> ends: array<u32>;

const THREADS: u32 = 256u;

var<workgroup> sums: array<u32, THREADS>;

// Each thread adds neighbouring cells, the workgroup the sums of its threads.
@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) i: u32) {
    let cells = arrayLength(&counts);
    let each = (cells + THREADS - 1u) / THREADS;
    let first = min(i * each, cells);
    let end = min(first + each, cells);
    var own = 0u;
    for (var c = first; c < end; c++) {
        own += counts[c];
    }
    sums[i] = own;
    for (var step = 1u; step < THREADS; step *= 2u) {
        workgroupBarrier();
        var more = 0u;
        if (i >= step) {
            more = sums[i - step];
        }
        workgroupBarrier();
        sums[i] += more;
    }
    var sum = sums[i] - own;
    for (var c = first; c < end; c++) {
        sum += counts[c];
        ends[c] = sum;
    }
}
