// Epilogue operands of evaluations that are stored many at a time: none to fetch. Needs
// fusion_rows.
// With a fused epilogue, the generated text of fusion_rows holds these functions.
struct Fetched {
    nothing: u32,
}

fn fetch(task: Task, e: u32, i: u32) -> Fetched {
    return Fetched();
}

fn finish(task: Task, e: u32, i: u32, product: f32, second: f32, fetched: Fetched) {
    store(task, e, i, product, second);
}
