//! Detects concatenated files, for example parts of a model joined with `cat`.

use super::Gguf;
use warploom_core::error::{Error, Result};

/// Number of bytes searched after the last tensor: the largest alignment.
const WITHIN: u64 = 64 << 10;

/// Finds a second GGUF file after the tensors of the first, and returns its offset.
///
/// # Errors
/// Io if the file cannot be read.
fn second_file(file: &Gguf) -> Result<Option<u64>> {
    let ends = file.index.tensors.in_order.iter().filter_map(|at| {
        let info = file.tensor_at(*at);
        info.file_offset().checked_add(info.byte_len()?)
    });
    let end = ends.max().unwrap_or(0).max(file.index.head_len as u64);
    let len = file.data.len().saturating_sub(end).min(WITHIN + 8);
    let Some(rest) = file.data.part(&file.name, end, len)? else { return Ok(None) };
    let begins = |w: &[u8]| w.starts_with(b"GGUF") && matches!(w[4..], [2 | 3, 0, 0, 0]);
    Ok(rest.windows(8).position(begins).map(|at| end + at as u64))
}

/// Refuses a file to which another GGUF file is appended.
///
/// # Errors
/// Bad file, naming the byte at which the appended file begins; io if the file cannot be read.
pub(super) fn refuse_joined(file: &Gguf) -> Result<()> {
    let Some(at) = second_file(file)? else { return Ok(()) };
    let (name, total) = (file.name(), file.file_bytes());
    let parts = file.split_count().unwrap_or(1);
    Err(Error::bad_file(match parts {
        1 => format!(
            "{name}: another GGUF file begins at byte {at} of {total}: files of one model each were \
             joined, and only the first would be read; keep them apart"
        ),
        _ => format!(
            "{name}: split.count: one of {parts} parts, and another GGUF file begins at byte {at} of \
             {total}: parts of a split model were joined as by cat. Keep the parts as they were \
             (name-00001-of-{parts:05}.gguf ..) and name the first, or merge them with \
             llama-gguf-split --merge"
        ),
    }))
}
