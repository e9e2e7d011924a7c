// pool2d_avg: sum of x / (kernel_h * kernel_w if count_pad is 1, else the number of positions
// inside x); 0 if there are none. One of the operations of pool2d.wgsl.
fn identity() -> f32 {
    return 0.0;
}

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

fn finish(value: f32, count: u32) -> f32 {
    let divisor = select(count, params.kernel_h * params.kernel_w, params.count_pad != 0u);
    return value / f32(max(divisor, 1u));
}
