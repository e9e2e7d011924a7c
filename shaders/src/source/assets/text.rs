//! The embedded texts of the shader files.

/// The text of a file; in browser builds, without comments and indentation.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! text {
    ($(native)? $path:literal) => {
        include_str!(concat!("../../", $path))
    };
}

/// The text of a file; in browser builds, without comments and indentation, and empty if it is for
/// native kernels.
#[cfg(target_arch = "wasm32")]
macro_rules! text {
    (native $path:literal) => {
        ""
    };
    ($path:literal) => {{
        const WHOLE: &str = include_str!(concat!("../../", $path));
        const LEFT: &[u8] = &stripped::bytes::<{ stripped::length(WHOLE) }>(WHOLE);
        match str::from_utf8(LEFT) {
            Ok(text) => text,
            Err(_) => panic!("a part of a character was removed"),
        }
    }};
}
