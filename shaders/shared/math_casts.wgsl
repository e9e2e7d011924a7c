// f32 to i32 and u32: towards zero, saturating, NaN to 0.
// Why: conversions outside the range of the integers differ between targets.
fn cast_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn cast_i32(x: f32) -> i32 {
    let inside = i32(clamp(x, -2147483648.0, 2147483520.0));
    return select(select(inside, 0x7fffffff, x >= 2147483648.0), 0, cast_is_nan(x));
}

fn cast_u32(x: f32) -> u32 {
    let inside = u32(clamp(x, 0.0, 4294967040.0));
    return select(select(inside, 0xffffffffu, x >= 4294967296.0), 0u, cast_is_nan(x));
}
