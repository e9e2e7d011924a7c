// Insertion point of epilogue fusion in products with weights.
// The rows of w of a workgroup, and where its products go: TASK_ROWS rows in turn, stored as
// y[i, row]. Needs TASK_ROWS and OWN_READS.
// With a fused epilogue, generated text replaces this file. An evaluation then uses up to ANCHORS
// products, and the workgroup's product r belongs to evaluation r % evaluations(task).
override ATTACHED: u32 = 0;

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
