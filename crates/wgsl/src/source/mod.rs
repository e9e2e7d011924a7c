//! WGSL as text, before it is anybody's kernel: values in the place of `override` constants, errors in the
//! language's own words, and what a shader may not use where it has to run on every device.
//!
//! All that runs a user's WGSL goes through [`settled`]: the interpreter, the translation to CUDA C and OpenCL C, and
//! wgpu. An `override` is a `const` from there on, so sizes of arrays and of workgroups are known to all of them, and
//! are the same.
//!
//! Lines of a settled text are those of the file. Columns are where no `override` stands before them on the line;
//! [`Settled::original`] knows the others.

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
