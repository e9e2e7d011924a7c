//! WGSL source text before compilation: replaces `override`s with constants, reports errors in
//! WGSL's terms, and finds features that some devices lack.
//!
//! Every consumer of a user's WGSL goes through [`settled`]: the interpreter, the translation to
//! CUDA C and OpenCL C, and wgpu. It turns each `override` into a `const`, so that all of them see
//! the same sizes of arrays and workgroups.
//!
//! Lines of a settled text have the same numbers as in the file. Columns differ only after an
//! `override` on the same line; `Settled::original` maps them back.

mod errors;
mod invalid;
mod names;
mod overrides;
mod portable;
mod scan;

pub use errors::{Words, parse, parse_only};
pub use overrides::{Override, overrides, settled};
pub use portable::{needs_extension, not_portable};
pub use scan::{Scan, is_word, without_comments};
