// reduce_mean: y = sum of x / len; NaN for len 0. One of the operations of reduce.wgsl.
fn identity() -> f32 {
    return 0.0;
}

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

fn finish(value: f32, len: u32) -> f32 {
    return value / f32(len);
}

#ifdef subgroup
fn subgroup_combine(value: f32) -> f32 {
    return subgroupAdd(value);
}
#endif
