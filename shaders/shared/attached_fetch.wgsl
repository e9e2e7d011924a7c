// What is done with evaluations that leave many at a time: nothing is fetched for them. Needs attached_rows.
// Where there are segments, the generated text of attached_rows holds these functions.
struct Fetched {
    nothing: u32,
}

fn fetch(task: Task, e: u32, i: u32) -> Fetched {
    return Fetched();
}

fn finish(task: Task, e: u32, i: u32, product: f32, second: f32, fetched: Fetched) {
    store(task, e, i, product, second);
}
