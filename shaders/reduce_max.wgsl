// reduce_max: y = largest x, NaN if one is NaN; -inf for len 0. One of the operations of reduce.wgsl.
// The bits are in a variable: WGSL has no infinity literal, and no constant may be infinite.
#import math_extrema

var<private> infinity: u32 = 0xff800000u;

fn identity() -> f32 {
    return bitcast<f32>(infinity);
}

fn combine(a: f32, b: f32) -> f32 {
    return max_f32(a, b);
}

fn finish(value: f32, len: u32) -> f32 {
    return value;
}

#ifdef subgroup
fn subgroup_combine(value: f32) -> f32 {
    // WGSL leaves open what subgroupMax returns if one is NaN.
    return nan_if(subgroupAny(!(value == value)), subgroupMax(value));
}
#endif
