// The unit in which a head is read: a Num is one float, or a vec4. Needs HEAD_DIM.
// Why: loads of four words take fewer instructions for the same bytes.
#ifdef vec4
alias Num = vec4<f32>;
const STEP: u32 = 4u;
const_assert HEAD_DIM % 4u == 0u;

fn fold(value: Num) -> f32 {
    return (value.x + value.y) + (value.z + value.w);
}

fn element(value: Num, i: u32) -> f32 {
    return value[i];
}
#else
alias Num = f32;
const STEP: u32 = 1u;

fn fold(value: Num) -> f32 {
    return value;
}

fn element(value: Num, i: u32) -> f32 {
    return value;
}
#endif
