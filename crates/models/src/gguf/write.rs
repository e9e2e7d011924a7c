//! Writes GGUF files, version 3: metadata and tensor table first, then the bytes of the tensors as
//! a stream, so that no tensor has to fit in memory.

use std::collections::HashSet;
use std::io::Write;

use super::tensor::number_of;
use super::value::{Kind, Value};
use warploom_core::base::Format;
use warploom_core::error::{Error, Result};

/// Alignment of tensor offsets in written files, in bytes.
const ALIGNMENT: u64 = 32;
/// Maximum rank of a tensor, as in ggml.
const MAX_DIMS: usize = 4;

/// The head of a file under construction: metadata, and descriptions of the tensors. The bytes of
/// the tensors follow later.
#[derive(Debug, Default)]
pub struct Writer {
    keys: Vec<u8>,
    key_names: HashSet<String>,
    entries: Vec<u8>,
    entry_names: HashSet<String>,
    /// Size of each tensor in bytes, without padding.
    sizes: Vec<u64>,
    /// Offset of the next tensor from the start of the data section.
    offset: u64,
}

impl Writer {
    /// Creates the head of an empty file.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Adds a metadata value, which may come from another file.
    ///
    /// # Errors
    /// Invalid if the key is empty, a duplicate, or `general.alignment`, which this writer
    /// controls.
    pub fn key(&mut self, key: &str, value: Value<'_>) -> Result<()> {
        self.begin_key(key, value.kind())?;
        put_value(&mut self.keys, value);
        Ok(())
    }

    /// Adds an array of strings.
    ///
    /// # Errors
    /// Same as [`Writer::key`].
    pub fn strings<'a>(
        &mut self,
        key: &str,
        items: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<()> {
        self.begin_array(key, Kind::String, items.len())?;
        items.for_each(|item| put_string(&mut self.keys, item));
        Ok(())
    }

    /// Adds an array of 32-bit integers.
    ///
    /// # Errors
    /// Same as [`Writer::key`].
    pub fn integers(&mut self, key: &str, items: impl ExactSizeIterator<Item = i32>) -> Result<()> {
        self.begin_array(key, Kind::I32, items.len())?;
        items.for_each(|item| self.keys.extend(item.to_le_bytes()));
        Ok(())
    }

    /// Adds an array of 32-bit floating-point numbers.
    ///
    /// # Errors
    /// Same as [`Writer::key`].
    pub fn floats(&mut self, key: &str, items: impl ExactSizeIterator<Item = f32>) -> Result<()> {
        self.begin_array(key, Kind::F32, items.len())?;
        items.for_each(|item| self.keys.extend(item.to_le_bytes()));
        Ok(())
    }

    /// Adds a tensor; `shape` has the outermost dimension first. The bytes of the tensors must
    /// later be written in the order of these calls.
    ///
    /// # Errors
    /// Invalid if the name is empty or a duplicate, or if the shape has too many dimensions, a size
    /// of 0, or partial blocks; unsupported if files cannot store the format in this layout.
    pub fn tensor(&mut self, name: &str, shape: &[u64], format: Format) -> Result<()> {
        let wrong = |what: String| Error::invalid(format!("tensor `{name}`: {what}"));
        if name.is_empty() || !self.entry_names.insert(name.to_owned()) {
            return Err(wrong("the name is empty or taken".into()));
        }
        if shape.len() > MAX_DIMS || shape.contains(&0) {
            return Err(wrong(format!("{shape:?} is not 1 to {MAX_DIMS} sizes above 0")));
        }
        let row = shape.last().copied().unwrap_or(1);
        let whole = row.is_multiple_of(format.block_len());
        let elements = shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        let size = elements.filter(|_| whole).and_then(|n| format.bytes(n));
        let end = size.and_then(|size| self.offset.checked_add(size)?.checked_add(ALIGNMENT));
        let (Some(size), Some(_)) = (size, end) else {
            let block = format.block_len();
            return Err(wrong(format!(
                "{shape:?} does not have whole rows of {format} blocks of {block}"
            )));
        };
        let number = number_of(format).ok_or_else(|| {
            Error::unsupported(format!("tensor `{name}`: {format} is not written to files"))
        })?;
        put_string(&mut self.entries, name);
        self.entries.extend((shape.len() as u32).to_le_bytes());
        for size in shape.iter().rev() {
            self.entries.extend(size.to_le_bytes());
        }
        self.entries.extend(number.to_le_bytes());
        self.entries.extend(self.offset.to_le_bytes());
        self.sizes.push(size);
        self.offset = (self.offset + size).next_multiple_of(ALIGNMENT);
        Ok(())
    }

    /// Returns the size of the whole file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.head_bytes().next_multiple_of(ALIGNMENT) + self.offset
    }

    fn head_bytes(&self) -> u64 {
        (4 + 4 + 8 + 8 + self.keys.len() + self.entries.len()) as u64
    }

    /// Writes the head, and returns a writer for the tensors' bytes.
    ///
    /// # Errors
    /// Io if `out` fails.
    pub fn begin<W: Write>(self, out: W) -> Result<TensorWriter<W>> {
        let mut head = Vec::with_capacity(self.head_bytes() as usize + ALIGNMENT as usize);
        head.extend(b"GGUF");
        head.extend(3u32.to_le_bytes());
        head.extend((self.sizes.len() as u64).to_le_bytes());
        head.extend((self.key_names.len() as u64).to_le_bytes());
        head.extend(&self.keys);
        head.extend(&self.entries);
        head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
        let mut tensors = TensorWriter { out, sizes: self.sizes.into_iter(), left: 0, padding: 0 };
        tensors.put(&head)?;
        tensors.next();
        Ok(tensors)
    }

    fn begin_key(&mut self, key: &str, kind: Kind) -> Result<()> {
        let ours = key == "general.alignment";
        if key.is_empty() || ours || !self.key_names.insert(key.to_owned()) {
            let what = "is empty, taken, or the alignment";
            return Err(Error::invalid(format!("metadata key `{key}`: {what}")));
        }
        put_string(&mut self.keys, key);
        self.keys.extend(kind.number().to_le_bytes());
        Ok(())
    }

    fn begin_array(&mut self, key: &str, kind: Kind, len: usize) -> Result<()> {
        self.begin_key(key, Kind::Array)?;
        self.keys.extend(kind.number().to_le_bytes());
        self.keys.extend((len as u64).to_le_bytes());
        Ok(())
    }
}

fn put_string(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

fn put_value(to: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::U8(v) => to.extend(v.to_le_bytes()),
        Value::I8(v) => to.extend(v.to_le_bytes()),
        Value::U16(v) => to.extend(v.to_le_bytes()),
        Value::I16(v) => to.extend(v.to_le_bytes()),
        Value::U32(v) => to.extend(v.to_le_bytes()),
        Value::I32(v) => to.extend(v.to_le_bytes()),
        Value::F32(v) => to.extend(v.to_le_bytes()),
        Value::Bool(v) => to.push(v.into()),
        Value::String(text) => put_string(to, text),
        Value::Array(array) => {
            to.extend(array.kind().number().to_le_bytes());
            to.extend((array.len() as u64).to_le_bytes());
            to.extend(array.bytes());
        }
        Value::U64(v) => to.extend(v.to_le_bytes()),
        Value::I64(v) => to.extend(v.to_le_bytes()),
        Value::F64(v) => to.extend(v.to_le_bytes()),
    }
}

/// Writes the tensors' bytes after the head, one tensor after another.
#[derive(Debug)]
pub struct TensorWriter<W> {
    out: W,
    /// Sizes of tensors not yet started.
    sizes: std::vec::IntoIter<u64>,
    /// Bytes missing from the current tensor.
    left: u64,
    /// Bytes of padding after the current tensor.
    padding: usize,
}

impl<W: Write> TensorWriter<W> {
    /// Writes bytes of the current tensor. Once it is complete, the next one becomes current.
    ///
    /// # Errors
    /// Invalid if the bytes exceed the current tensor; io if the underlying writer fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > self.left {
            let (have, want) = (bytes.len(), self.left);
            return Err(Error::invalid(format!("{have} bytes, the tensor lacks only {want}")));
        }
        self.put(bytes)?;
        self.left -= bytes.len() as u64;
        if self.left == 0 {
            self.put(&[0; ALIGNMENT as usize][..self.padding])?;
            self.next();
        }
        Ok(())
    }

    /// Ends the file: flushes the underlying writer and returns it.
    ///
    /// # Errors
    /// Invalid if bytes of tensors are missing; io if the underlying writer fails.
    pub fn finish(mut self) -> Result<W> {
        let missing = self.left + self.sizes.as_slice().iter().sum::<u64>();
        if missing > 0 {
            return Err(Error::invalid(format!("{missing} bytes of tensors were not written")));
        }
        self.out.flush().map_err(|e| Error::io("cannot write the file", e))?;
        Ok(self.out)
    }

    /// Advances to the next tensor. No tensor is empty, since sizes are not 0.
    fn next(&mut self) {
        self.left = self.sizes.next().unwrap_or(0);
        self.padding = (self.left.next_multiple_of(ALIGNMENT) - self.left) as usize;
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| Error::io("cannot write the file", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;

    #[test]
    fn what_is_written_is_read() {
        let mut first = Writer::new();
        first.key("general.architecture", Value::String("test")).unwrap();
        first.key("n", Value::I16(-3)).unwrap();
        first.strings("words", ["a", "", "é"].into_iter()).unwrap();
        first.integers("ids", [-1, 7].into_iter()).unwrap();
        first.tensor("w", &[3, 32], Format::Q8_0).unwrap();
        first.tensor("b", &[5], Format::F32).unwrap();
        let size = first.file_bytes();
        let mut out = first.begin(Vec::new()).unwrap();
        // In several writes: the second tensor begins once the first is complete.
        out.write(&[1; 100]).unwrap();
        out.write(&[2; 2]).unwrap();
        assert!(out.write(&[0; 21]).unwrap_err().is_invalid());
        out.write(&[3; 20]).unwrap();
        let bytes = out.finish().unwrap();
        assert_eq!(bytes.len() as u64, size);

        let read = Gguf::from_bytes(bytes, "written").unwrap();
        assert_eq!(read.strings("words").unwrap().collect::<Vec<_>>(), ["a", "", "é"]);
        assert_eq!(read.integers("ids").unwrap().collect::<Vec<_>>(), [-1, 7]);
        let w = read.tensor("w").unwrap();
        assert_eq!((w.shape(), w.format().unwrap()), (&[3, 32][..], Format::Q8_0));
        assert_eq!(read.bytes(&w).unwrap()[99..], [1, 2, 2]);
        assert_eq!(read.bytes(&read.tensor("b").unwrap()).unwrap(), [3; 20]);

        // Metadata of one file can be copied to another.
        let mut second = Writer::new();
        for (key, value) in read.metadata() {
            second.key(key, value).unwrap();
        }
        let bytes = second.begin(Vec::new()).unwrap().finish().unwrap();
        let again = Gguf::from_bytes(bytes, "again").unwrap();
        assert!(read.metadata().eq(again.metadata()));
    }

    #[test]
    fn what_no_reader_takes_is_refused() {
        let mut file = Writer::new();
        file.key("k", Value::Bool(true)).unwrap();
        for key in ["", "k", "general.alignment"] {
            assert!(file.key(key, Value::U8(0)).unwrap_err().is_invalid(), "{key}");
        }
        file.tensor("t", &[32], Format::Q4_0).unwrap();
        let shapes: [&[u64]; 4] = [&[2, 48], &[0, 32], &[1, 1, 1, 1, 32], &[1 << 40, 1 << 40]];
        for (i, shape) in shapes.into_iter().enumerate() {
            let error = file.tensor(&format!("t{i}"), shape, Format::Q4_0).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains("`t"), "{error}");
        }
        assert!(file.tensor("t", &[32], Format::Q4_0).unwrap_err().is_invalid());
        assert!(file.tensor("b", &[128], Format::I2S).unwrap_err().is_unsupported());
        let lacking = file.begin(Vec::new()).unwrap().finish().unwrap_err();
        assert!(lacking.to_string().contains("18 bytes"), "{lacking}");
    }
}
