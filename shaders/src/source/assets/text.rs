//! The embedded texts of the shader files.

/// The text of a file; in browser builds, without comments and indentation.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! text {
    ($($part:ident)? $path:literal) => {
        include_str!(concat!("../../", $path))
    };
}

/// The text of a file; in browser builds, without comments and indentation, and empty if it is for
/// native kernels, or for tensors in a build without the feature `packs`.
#[cfg(target_arch = "wasm32")]
macro_rules! text {
    (native $path:literal) => {
        ""
    };
    (tensors $path:literal) => {
        if cfg!(feature = "packs") { text!($path) } else { "" }
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
