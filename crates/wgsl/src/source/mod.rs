//! WGSL source text before compilation: replaces `override` constants by values, reports errors in
//! WGSL's terms, and finds features that are not portable to every device.
//!
//! Every consumer of a user's WGSL goes through [`settled`]: the interpreter, the translation to
//! CUDA C and OpenCL C, and wgpu. An `override` is then a `const`, so sizes of arrays and
//! workgroups are known to all of them, and equal.
//!
//! Line numbers of a settled text are those of the file. Columns differ only after an `override` on
//! the same line; `Settled::original` maps them back.

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
