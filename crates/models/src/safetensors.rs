//! Reads safetensors files: a JSON header, then the bytes of the tensors.
//!
//! The `safetensors` crate reads and validates the header: types, shapes, and ranges that follow
//! one another without gaps. Files are untrusted, so the length of the header and the end of the
//! ranges are checked here with exact arithmetic (the crate's own entry point adds them unchecked),
//! and errors name byte offsets.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::{Dtype, tensor::Metadata};

use warploom_core::base::{DType, Format};
use warploom_core::error::{Error, Result};

/// Bytes of the length field before the header.
const LENGTH: usize = 8;
/// Maximum bytes of the header, as in the format's own library.
const MAX_HEADER: u64 = 100_000_000;
/// Maximum rank of a tensor.
const MAX_DIMS: usize = 8;

/// An open safetensors file.
pub struct Safetensors {
    name: String,
    data: Box<dyn AsRef<[u8]> + Send + Sync>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor: shape, type, and location of its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    shape: Vec<u64>,
    dtype: Dtype,
    /// File offset of the first byte.
    start: usize,
    end: usize,
}

impl TensorInfo {
    /// Returns the shape, outermost dimension first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the name of the type in the file, such as `F16`, `BF16` or `I64`.
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// Returns the storage format, or `None` if tensors of this type are not supported as weights.
    pub fn format(&self) -> Option<Format> {
        match self.dtype {
            Dtype::F32 => Some(Format::F32),
            Dtype::F16 => Some(Format::Plain(DType::F16)),
            Dtype::BF16 => Some(Format::Plain(DType::BF16)),
            _ => None,
        }
    }
}

impl Safetensors {
    /// Reads a file from memory or from a mapping. `name` is the file name in errors.
    ///
    /// # Errors
    /// Bad file, naming field and byte offset, if the file is not valid.
    pub fn from_bytes(
        data: impl AsRef<[u8]> + Send + Sync + 'static,
        name: &str,
    ) -> Result<Safetensors> {
        let tensors = parse(data.as_ref()).map_err(|e| e.context(name))?;
        Ok(Safetensors { name: name.to_owned(), data: Box::new(data), tensors })
    }

    /// Maps a file, which must not change while it is open (see
    /// [`Access::Mmap`](crate::gguf::Access::Mmap)).
    ///
    /// # Errors
    /// Io if the file cannot be opened; bad file if it is not a regular file. Also the errors of
    /// [`Safetensors::from_bytes`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(path: &std::path::Path) -> Result<Safetensors> {
        let name = path.display().to_string();
        let io = |action: &str, e| Error::io(format!("{name}: cannot {action} it"), e);
        // Checked before opening, because opening a pipe would block.
        if !std::fs::metadata(path).map_err(|e| io("find", e))?.is_file() {
            return Err(Error::bad_file(format!("{name}: not a regular file")));
        }
        let file = std::fs::File::open(path).map_err(|e| io("open", e))?;
        // SAFETY: the mapping is private to this value and only read; that the file does not
        // change under it is this function's stated condition, and offsets are copied out.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io("map", e))?;
        Safetensors::from_bytes(map, &name)
    }

    /// Returns the file name used in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Returns the bytes of a tensor, little-endian and in row-major order.
    ///
    /// # Errors
    /// Bad file if there is no tensor with this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let info = self.tensors.get(name);
        let bytes = info.and_then(|t| (*self.data).as_ref().get(t.start..t.end));
        bytes.ok_or_else(|| Error::bad_file(format!("{}: no tensor `{name}`", self.name)))
    }
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Safetensors({:?}, {} tensors)", self.name, self.tensors.len())
    }
}

fn parse(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>> {
    let bad = |what: String| Error::bad_file(what);
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else {
        return Err(bad(format!("header length at byte 0: the file has {} bytes", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length).ok().filter(|_| length <= MAX_HEADER);
    let Some((header, data)) = header.and_then(|n| rest.split_at_checked(n)) else {
        let have = rest.len();
        return Err(bad(format!(
            "header length at byte 0: {length}, at most {MAX_HEADER}, the file has {have} left"
        )));
    };
    // The message of the parser contains line and column.
    let metadata: Metadata =
        serde_json::from_slice(header).map_err(|e| bad(format!("header at byte {LENGTH}: {e}")))?;
    let begin = LENGTH + header.len();
    // Ranges follow one another, so the last end is the length of the data.
    if metadata.data_len() != data.len() {
        return Err(bad(format!(
            "header at byte {LENGTH}: tensors have {} bytes from byte {begin}, the file has {} left",
            metadata.data_len(),
            data.len()
        )));
    }
    let mut tensors = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        if info.shape.len() > MAX_DIMS {
            let dims = info.shape.len();
            return Err(bad(format!(
                "header at byte {LENGTH}: `{name}`: shape: {dims} sizes, more than {MAX_DIMS}"
            )));
        }
        let shape = info.shape.iter().map(|size| *size as u64).collect();
        let (start, end) = (begin + info.data_offsets.0, begin + info.data_offsets.1);
        tensors.insert(name, TensorInfo { shape, dtype: info.dtype, start, end });
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 1);
        bytes
    }

    fn open(header: &str, data: usize) -> Result<Safetensors> {
        Safetensors::from_bytes(file(header, data), "test.safetensors")
    }

    #[test]
    fn tensors_are_found() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"I64","shape":[],"data_offsets":[12,20]},
            "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
            "z":{"dtype":"F32","shape":[0,7],"data_offsets":[20,20]}}"#;
        let file = open(header, 20).unwrap();
        assert_eq!(file.tensors().keys().collect::<Vec<_>>(), ["a", "b", "z"]);
        let a = &file.tensors()["a"];
        assert_eq!((a.shape(), a.format()), (&[2, 3][..], Some(Format::Plain(DType::BF16))));
        assert_eq!(file.bytes("a").unwrap(), [1; 12]);
        let b = &file.tensors()["b"];
        assert_eq!((b.format(), b.dtype().as_str()), (None, "I64"));
        assert!(file.bytes("c").unwrap_err().is_bad_file());
    }

    /// Returns a header of seventeen tensors whose last range ends at the largest `u64`, so that
    /// sums with it overflow.
    fn ends_at_the_end_of_memory() -> String {
        let mut rows = String::new();
        let mut start = 0u64;
        for i in 0..17 {
            let end = start.saturating_add(1 << 60);
            let row = format!(
                r#""t{i}":{{"dtype":"U8","shape":[{}],"data_offsets":[{start},{end}]}},"#,
                end - start
            );
            rows += &row;
            start = end;
        }
        format!("{{{}}}", rows.trim_end_matches(','))
    }

    #[test]
    fn bad_files_are_refused_by_field_and_offset() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        let max = u64::MAX;
        let rows = [
            (one("F32", "[4]", "[0,12]"), "invalid shape, data type, or offset"),
            (one("F32", "[5]", "[0,20]"), "tensors have 20 bytes from byte"),
            (one("F32", "[3]", "[0,12]"), "the file has 16 left"),
            (one("F32", "[4]", "[16,0]"), "invalid offset for tensor `t`"),
            (one("F32", "[4]", &format!("[0,{max}]")), "invalid shape, data type, or offset"),
            (one("F32", &format!("[{max}]"), "[0,16]"), "overflow"),
            // 2^62 times 4 wraps to 0.
            (one("F32", "[4611686018427387904]", "[0,0]"), "overflow"),
            (ends_at_the_end_of_memory(), "the file has 16 left"),
            (one("F32", "[-1]", "[0,16]"), "line 1"),
            (one("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "9 sizes, more than 8"),
            (one("F32", "[4]", "[0]"), "line 1"),
            (one("F32", "4", "[0,16]"), "line 1"),
            (one("X9", "[4]", "[0,16]"), "unknown variant `X9`"),
            (r#"{"t":7}"#.into(), "line 1"),
            (r#"{"t":"#.into(), "line 1"),
            ("[]".into(), "line 1"),
            (
                r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},
                    "b":{"dtype":"U8","shape":[9],"data_offsets":[7,16]}}"#
                    .into(),
                "invalid offset for tensor `b`",
            ),
        ];
        for (header, words) in rows {
            let error = open(&header, 16).unwrap_err();
            assert!(error.is_bad_file(), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("test.safetensors: ") && text.contains(words), "{text}");
        }
        let whole = file(&one("F32", "[4]", "[0,16]"), 16);
        for cut in 0..whole.len() {
            let error = Safetensors::from_bytes(whole[..cut].to_vec(), "cut").unwrap_err();
            assert!(error.is_bad_file() && error.to_string().contains("byte"), "{error}");
        }
        for length in [max, 1 << 63, 1 << 32, MAX_HEADER + 1] {
            let mut bytes = whole.clone();
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            let error = Safetensors::from_bytes(bytes, "long").unwrap_err();
            assert!(error.to_string().contains("header length at byte 0"), "{error}");
        }
        // The JSON parser limits the nesting.
        let deep = format!(r#"{{"t":{}}}"#, "[".repeat(100_000));
        assert!(open(&deep, 0).unwrap_err().is_bad_file());
    }

    #[test]
    fn mutated_files_are_read_or_refused() {
        let header = r#"{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
            "b":{"dtype":"F32","shape":[4],"data_offsets":[12,28]}}"#;
        let base = file(header, 28);
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % end
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = base.clone();
            for _ in 0..1 + below(3) {
                let (at, digit) = (below(bytes.len()), b"0123456789[]{}\",:e-"[below(19)]);
                match below(4) {
                    0 => bytes[at] = digit,
                    1 => bytes[at] ^= 1 << below(8),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, digit),
                }
            }
            match Safetensors::from_bytes(bytes, "fuzz") {
                Ok(file) => {
                    read += 1;
                    for name in file.tensors().keys() {
                        assert!(file.bytes(name).is_ok());
                    }
                }
                Err(error) => assert!(error.is_bad_file(), "{error:?}"),
            }
        }
        assert!(read > 100, "only {read} were read");
    }
}
