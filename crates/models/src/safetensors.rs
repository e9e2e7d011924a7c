//! Reads safetensors files: a JSON header, then the bytes of the tensors.
//!
//! Files are untrusted, as in `gguf`: lengths are checked against the file before use, every
//! tensor's range against its type and shape, the end, and the other tensors. Only tensors of
//! weight types can be read; of others only the name is known. (The `safetensors` crate adds
//! offsets from the header unchecked, and its errors name no byte offset.)

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use warploom_core::base::{DType, Format};
use warploom_core::error::{Error, Result};

/// Bytes of the length field before the header.
const LENGTH: usize = 8;
/// Largest header in bytes, as in the format's own library.
const MAX_HEADER: u64 = 100_000_000;
/// Largest rank of a tensor.
const MAX_DIMS: usize = 8;

/// An open file.
pub struct Safetensors {
    name: String,
    data: Box<dyn AsRef<[u8]> + Send + Sync>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor: shape, type, and location of its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    shape: SmallVec<[u64; MAX_DIMS]>,
    dtype: String,
    /// File offset in bytes.
    start: usize,
    end: usize,
}

/// An entry of the header.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Sizes,
    data_offsets: [u64; 2],
}

/// Sizes of a tensor; excess dimensions are rejected before they are stored.
struct Sizes(SmallVec<[u64; MAX_DIMS]>);

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Sizes, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Sizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_DIMS} sizes")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sizes, A::Error> {
                let mut sizes = SmallVec::new();
                while let Some(size) = items.next_element()? {
                    if sizes.len() == MAX_DIMS {
                        return Err(A::Error::custom(format!("shape: more than {MAX_DIMS} sizes")));
                    }
                    sizes.push(size);
                }
                Ok(Sizes(sizes))
            }
        }
        from.deserialize_seq(Reader)
    }
}

/// The header: entries by name, without the `__metadata__`.
struct Header(BTreeMap<String, Entry>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Header, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Header, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = items.next_key::<String>()? {
                    if name == "__metadata__" {
                        items.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    match entries.entry(name) {
                        Slot::Vacant(slot) => drop(slot.insert(items.next_value()?)),
                        Slot::Occupied(slot) => {
                            let name = slot.key();
                            return Err(A::Error::custom(format!("tensor `{name}` twice")));
                        }
                    }
                }
                Ok(Header(entries))
            }
        }
        from.deserialize_map(Reader)
    }
}

impl TensorInfo {
    /// Its shape, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The type's name in the file: `F16`, `BF16`, `I64`.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// The weight format of its numbers, if they can be weights.
    pub fn format(&self) -> Option<Format> {
        match self.dtype.as_str() {
            "F32" => Some(Format::F32),
            "F16" => Some(Format::Plain(DType::F16)),
            "BF16" => Some(Format::Plain(DType::BF16)),
            _ => None,
        }
    }
}

/// Bytes of one element.
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" => 1,
        "I16" | "U16" | "F16" | "BF16" => 2,
        "I32" | "U32" | "F32" => 4,
        "I64" | "U64" | "F64" => 8,
        _ => return None,
    })
}

impl Safetensors {
    /// Reads a file from memory or a mapping. `name` is the file name in errors.
    ///
    /// # Errors
    /// Bad file, naming field and byte offset, if it is not valid.
    pub fn from_bytes(
        data: impl AsRef<[u8]> + Send + Sync + 'static,
        name: &str,
    ) -> Result<Safetensors> {
        let tensors = parse(data.as_ref()).map_err(|e| e.context(name))?;
        Ok(Safetensors { name: name.to_owned(), data: Box::new(data), tensors })
    }

    /// Maps a file, which must not change while open (see `gguf::Access::Mmap`).
    ///
    /// # Errors
    /// Io if it cannot be opened, and those of [`Safetensors::from_bytes`].
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

    /// The file name used in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every tensor, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The bytes of a tensor, little endian, row by row.
    ///
    /// # Errors
    /// Bad file if no tensor has this name, or if the file was truncated.
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
    let Some(header) = header.and_then(|n| rest.get(..n)) else {
        let have = rest.len();
        return Err(bad(format!(
            "header length at byte 0: {length}, at most {MAX_HEADER}, the file has {have} left"
        )));
    };
    let text = std::str::from_utf8(header)
        .map_err(|e| bad(format!("header at byte {}: not UTF-8", LENGTH + e.valid_up_to())))?;
    // The message contains line and column.
    let Header(entries) =
        serde_json::from_str(text).map_err(|e| bad(format!("header at byte {LENGTH}: {e}")))?;
    let data = LENGTH + header.len();
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        let info = entry_of(&name, entry, data, bytes.len())?;
        tensors.insert(name, info);
    }
    let mut ranges: Vec<_> = tensors.iter().map(|(name, t)| (t.start, t.end, name)).collect();
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(bad(format!(
            "tensor `{}`: data_offsets: byte {} of the file is tensor `{}`'s too",
            pair[1].2, pair[1].0, pair[0].2
        ))),
        None => Ok(tensors),
    }
}

/// Checks an entry against the type's size and the file's end; offsets are relative to `data`.
fn entry_of(name: &str, entry: Entry, data: usize, file_bytes: usize) -> Result<TensorInfo> {
    let bad = |what: String| Error::bad_file(format!("header at byte {LENGTH}: `{name}`: {what}"));
    let Entry { dtype, shape: Sizes(shape), data_offsets: [start, end] } = entry;
    let place = |offset: u64| usize::try_from(offset).ok()?.checked_add(data);
    let (Some(first), Some(last)) = (place(start), place(end)) else {
        return Err(bad(format!("data_offsets: {start} to {end} from byte {data} overflow")));
    };
    if first > last || last > file_bytes {
        return Err(bad(format!(
            "data_offsets: {start} to {end} from byte {data} are not in a file of {file_bytes} bytes"
        )));
    }
    // For an unknown type only the range can be checked.
    if let Some(each) = element_bytes(&dtype) {
        let need = shape.iter().try_fold(each, |n, size| n.checked_mul(*size));
        if need != Some(end - start) {
            let have = end - start;
            return Err(bad(format!("data_offsets: {have} bytes for {dtype} {shape:?}")));
        }
    }
    Ok(TensorInfo { shape, dtype, start: first, end: last })
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
        assert_eq!((file.tensors()["b"].format(), file.tensors()["b"].dtype()), (None, "I64"));
        assert!(file.bytes("c").unwrap_err().is_bad_file());
    }

    #[test]
    fn bad_files_are_refused_by_field_and_offset() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        let max = u64::MAX;
        let rows = [
            (one("F32", "[4]", "[0,12]"), "`t`: data_offsets: 12 bytes for F32 [4]"),
            (one("F32", "[4]", "[0,20]"), "not in a file"),
            (one("F32", "[4]", "[16,0]"), "not in a file"),
            (one("F32", "[4]", &format!("[0,{max}]")), "overflow"),
            (one("F32", &format!("[{max}]"), "[0,16]"), "16 bytes for F32"),
            // 2^62 times 4 wraps to 0.
            (one("F32", "[4611686018427387904]", "[0,0]"), "0 bytes for F32"),
            (one("F32", "[-1]", "[0,16]"), "line 1"),
            (one("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "more than 8 sizes"),
            (one("F32", "[4]", "[0]"), "line 1"),
            (one("F32", "4", "[0,16]"), "line 1"),
            (one("X9", "[4]", "[0,17]"), "not in a file"),
            (r#"{"t":7}"#.into(), "line 1"),
            (r#"{"t":"#.into(), "line 1"),
            ("[]".into(), "line 1"),
            (
                format!(
                    r#"{{"t":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}},{}"#,
                    &one("U8", "[1]", "[1,2]")[1..]
                ),
                "`t` twice",
            ),
            (
                r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},
                    "b":{"dtype":"U8","shape":[9],"data_offsets":[7,16]}}"#
                    .into(),
                "tensor `b`: data_offsets",
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
        // The JSON reader limits the nesting.
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
