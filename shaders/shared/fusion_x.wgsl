// Prologue applied to x[row, column] of the kernel's first operand: the identity. With a fused
// prologue, generated text replaces this file.
fn prologue(row: u32, column: u32, x: f32) -> f32 {
    return x;
}

// The same for four neighbouring columns.
fn prologue4(row: u32, column: u32, x: vec4<f32>) -> vec4<f32> {
    return x;
}
