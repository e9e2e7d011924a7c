// What stands in the place of x[row, column] of the kernel's first operand: itself. Generated text takes the
// place of this file where there is a prologue.
fn prologue(row: u32, column: u32, x: f32) -> f32 {
    return x;
}

// The same for four neighbouring columns.
fn prologue4(row: u32, column: u32, x: vec4<f32>) -> vec4<f32> {
    return x;
}
