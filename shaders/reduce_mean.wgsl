// reduce_mean: y = sum of x / len; NaN for len 0. One of the operations of reduce.wgsl.
fn identity() -> f32 {
    return 0.0;
}

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

// NaN has no literal.
var<private> nan_bits: u32 = 0x7fc00000u;

fn finish(value: f32, len: u32) -> f32 {
    // Compilers take 0 / x for 0.
    return select(value / f32(len), bitcast<f32>(nan_bits), len == 0u);
}

#ifdef subgroup
fn subgroup_combine(value: f32) -> f32 {
    return subgroupAdd(value);
}
#endif
