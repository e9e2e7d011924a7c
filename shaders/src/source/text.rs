//! The texts of the files, embedded.

/// The text of a file; in a browser without its comments.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! text {
    ($path:literal) => {
        include_str!(concat!("../../", $path))
    };
}

/// The text of a file; in a browser without its comments.
#[cfg(target_arch = "wasm32")]
macro_rules! text {
    ($path:literal) => {{
        const WHOLE: &str = include_str!(concat!("../../", $path));
        const LEFT: &[u8] = &stripped::bytes::<{ stripped::length(WHOLE) }>(WHOLE);
        match str::from_utf8(LEFT) {
            Ok(text) => text,
            Err(_) => panic!("a part of a character was removed"),
        }
    }};
}
