// Integer quotient and remainder: a / 0 = a and a % 0 = 0, and the same for the one quotient that
// overflows i32; a % b has the sign of a.
// Why: compiled without checks, division by zero is undefined, as is a negative remainder on some
// targets.
fn div_u32(a: u32, b: u32) -> u32 {
    return a / select(b, 1u, b == 0u);
}

fn rem_u32(a: u32, b: u32) -> u32 {
    return a - div_u32(a, b) * select(b, 1u, b == 0u);
}

fn safe_divisor(a: i32, b: i32) -> i32 {
    return select(b, 1, b == 0 || (b == -1 && bitcast<u32>(a) == 0x80000000u));
}

fn div_i32(a: i32, b: i32) -> i32 {
    return a / safe_divisor(a, b);
}

fn rem_i32(a: i32, b: i32) -> i32 {
    let d = safe_divisor(a, b);
    return a - (a / d) * d;
}
