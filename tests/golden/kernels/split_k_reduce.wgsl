// split_k_reduce
// split_k_reduce: split-K reduction with epilogue (kin to CUTLASS's parallel split-K): y[i, r] =
// factors[i] * sum over s of sums[s, i, r].
// sums [SPLITS, m, n] f32 with row stride sums_stride and split stride part_stride, factors [m], y
// [m, n]. With a quant epilogue to f16: row_quant_epilogue.
// Work split: one workgroup per TASK_ROWS columns (grid x) and ROWS rows (grid y = ceil(m / ROWS));
// neighbouring threads take neighbouring columns.
// Why: tensor cores apply no row factor, and a GEMM with few workgroups would stall on epilogue
// operands: 50 us for a residual on an H200, against 17 here.
const WG: u32 = 256;
const ROWS: u32 = 4;
const SPLITS: u32 = 1;
// Columns per row of the quant epilogue.
const K: u32 = 1024;
// Threads of every subgroup, or 0 if sizes vary.
const SUB: u32 = 0;

const TASK_ROWS: u32 = WG * 2u;
const OWN_READS: u32 = 2u;

struct Params {
    m: u32,
    n: u32,
    y_offset: u32,
    y_stride: u32,
    sums_stride: u32,
    part_stride: u32,
// Parameters of a kernel's fusion: none. With a fusion, generated text (codegen) replaces this
// file.
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;

// Insertion point of epilogue fusion in products with weights.
// The rows of w of a workgroup, and where its products go: TASK_ROWS rows in turn, stored as
// y[i, row]. Needs TASK_ROWS and OWN_READS.
// With a fused epilogue, generated text replaces this file. An evaluation then uses up to ANCHORS
// products, and the workgroup's product r belongs to evaluation r % evaluations(task).
const ATTACHED: u32 = 0;

const ANCHORS: u32 = 1u;

@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<f32>;

struct Task {
    first: u32,
}

fn task_of(group: u32) -> Task {
    return Task(group * TASK_ROWS);
}

fn exists(task: Task) -> bool {
    return task.first < params.n;
}

fn evaluations(task: Task) -> u32 {
    return TASK_ROWS;
}

// The row of w of product r. Products past the end repeat the last row and are not stored.
fn row_of(task: Task, r: u32) -> u32 {
    return min(task.first + r, params.n - 1u);
}

// Stores evaluation e of the workgroup for row i of x, if they exist.
fn store(task: Task, e: u32, i: u32, product: f32, second: f32) {
    let row = task.first + e;
    if (row < params.n && i < params.m) {
        y[params.y_offset + i * params.y_stride + row] = product;
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let task = task_of(wid.x);
    if (!exists(task)) {
        return;
    }
    // A product is of evaluation e or, if two products form one evaluation, of e and the second
    // row.
    let each = evaluations(task);
    for (var e = lid; e < each; e += WG) {
        let first = row_of(task, e);
        let second = row_of(task, min(e + each, TASK_ROWS - 1u));
        let i = wid.y * ROWS;
        let at0 = min(i + 0u, params.m - 1u);
        var low0 = sums[at0 * params.sums_stride + first];
        var high0 = 0.0;
        if (ANCHORS > 1u) {
            high0 = sums[at0 * params.sums_stride + second];
        }
        let factor0 = factors[at0];
        let at1 = min(i + 1u, params.m - 1u);
        var low1 = sums[at1 * params.sums_stride + first];
        var high1 = 0.0;
        if (ANCHORS > 1u) {
            high1 = sums[at1 * params.sums_stride + second];
        }
        let factor1 = factors[at1];
        let at2 = min(i + 2u, params.m - 1u);
        var low2 = sums[at2 * params.sums_stride + first];
        var high2 = 0.0;
        if (ANCHORS > 1u) {
            high2 = sums[at2 * params.sums_stride + second];
        }
        let factor2 = factors[at2];
        let at3 = min(i + 3u, params.m - 1u);
        var low3 = sums[at3 * params.sums_stride + first];
        var high3 = 0.0;
        if (ANCHORS > 1u) {
            high3 = sums[at3 * params.sums_stride + second];
        }
        let factor3 = factors[at3];
        for (var s = 1u; s < SPLITS; s++) {
            let part = s * params.part_stride;
            low0 += sums[part + at0 * params.sums_stride + first];
            if (ANCHORS > 1u) {
                high0 += sums[part + at0 * params.sums_stride + second];
            }
            low1 += sums[part + at1 * params.sums_stride + first];
            if (ANCHORS > 1u) {
                high1 += sums[part + at1 * params.sums_stride + second];
            }
            low2 += sums[part + at2 * params.sums_stride + first];
            if (ANCHORS > 1u) {
                high2 += sums[part + at2 * params.sums_stride + second];
            }
            low3 += sums[part + at3 * params.sums_stride + first];
            if (ANCHORS > 1u) {
                high3 += sums[part + at3 * params.sums_stride + second];
            }
        }
        store(task, e, i + 0u, low0 * factor0, high0 * factor0);
        store(task, e, i + 1u, low1 * factor1, high1 * factor1);
        store(task, e, i + 2u, low2 * factor2, high2 * factor2);
        store(task, e, i + 3u, low3 * factor3, high3 * factor3);
    }
}
