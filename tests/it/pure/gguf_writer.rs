//! Writes GGUF files for tests: valid ones, and ones with any field broken.
#![allow(dead_code, reason = "shared by test binaries of which none uses all")]

use warploom_core::base::Format;

/// A metadata value to write.
#[derive(Clone, Debug)]
pub(crate) enum Meta {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    /// Items of one type; the type number is stored for empty arrays.
    Array(u32, Vec<Meta>),
    U64(u64),
    I64(i64),
    F64(f64),
    /// A type's number and any bytes.
    Raw(u32, Vec<u8>),
}

impl Meta {
    pub(crate) fn strings<S: Into<String>>(items: impl IntoIterator<Item = S>) -> Meta {
        Meta::Array(8, items.into_iter().map(|s| Meta::Str(s.into())).collect())
    }

    pub(crate) fn i32s(items: impl IntoIterator<Item = i32>) -> Meta {
        Meta::Array(5, items.into_iter().map(Meta::I32).collect())
    }

    pub(crate) fn f32s(items: impl IntoIterator<Item = f32>) -> Meta {
        Meta::Array(6, items.into_iter().map(Meta::F32).collect())
    }

    fn kind(&self) -> u32 {
        match self {
            Meta::U8(_) => 0,
            Meta::I8(_) => 1,
            Meta::U16(_) => 2,
            Meta::I16(_) => 3,
            Meta::U32(_) => 4,
            Meta::I32(_) => 5,
            Meta::F32(_) => 6,
            Meta::Bool(_) => 7,
            Meta::Str(_) => 8,
            Meta::Array(..) => 9,
            Meta::U64(_) => 10,
            Meta::I64(_) => 11,
            Meta::F64(_) => 12,
            Meta::Raw(kind, _) => *kind,
        }
    }
}

/// A tensor to write.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    /// Outermost first.
    shape: Vec<u64>,
    type_number: u32,
    data: Vec<u8>,
}

/// Positions of fields in a written file.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// Such as `version`, `key 0 length`, `key 1 item 2 length`, `tensor 0 dimension 1`.
    pub(crate) what: String,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// A written file with a map of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spots: Vec<Spot>,
    /// Bytes before the padding that the tensors' data begins after.
    pub(crate) head_len: usize,
}

impl Written {
    pub(crate) fn spot(&self, what: &str) -> &Spot {
        self.spots.iter().find(|s| s.what == what).unwrap_or_else(|| panic!("no field {what}"))
    }

    /// Overwrites a field, from its start.
    pub(crate) fn patch(mut self, what: &str, value: &[u8]) -> Written {
        let at = self.spot(what).at;
        self.bytes[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn put(&mut self, what: String, value: &[u8]) {
        self.spots.push(Spot { what, at: self.bytes.len(), len: value.len() });
        self.bytes.extend_from_slice(value);
    }

    fn pad(&mut self, alignment: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
    }

    fn put_string(&mut self, what: &str, text: &[u8]) {
        self.put(format!("{what} length"), &(text.len() as u64).to_le_bytes());
        self.put(what.to_owned(), text);
    }

    fn put_value(&mut self, what: &str, value: &Meta) {
        let bytes = match value {
            Meta::U8(v) => v.to_le_bytes().to_vec(),
            Meta::I8(v) => v.to_le_bytes().to_vec(),
            Meta::U16(v) => v.to_le_bytes().to_vec(),
            Meta::I16(v) => v.to_le_bytes().to_vec(),
            Meta::U32(v) => v.to_le_bytes().to_vec(),
            Meta::I32(v) => v.to_le_bytes().to_vec(),
            Meta::F32(v) => v.to_le_bytes().to_vec(),
            Meta::Bool(v) => vec![u8::from(*v)],
            Meta::U64(v) => v.to_le_bytes().to_vec(),
            Meta::I64(v) => v.to_le_bytes().to_vec(),
            Meta::F64(v) => v.to_le_bytes().to_vec(),
            Meta::Raw(_, bytes) => bytes.clone(),
            Meta::Str(text) => return self.put_string(what, text.as_bytes()),
            Meta::Array(kind, items) => {
                self.put(format!("{what} item type"), &kind.to_le_bytes());
                self.put(format!("{what} item count"), &(items.len() as u64).to_le_bytes());
                for (i, item) in items.iter().enumerate() {
                    self.put_value(&format!("{what} item {i}"), item);
                }
                return;
            }
        };
        self.put(what.to_owned(), &bytes);
    }
}

/// Gathers metadata and tensors, then writes a file.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    version: u32,
    alignment: usize,
    keys: Vec<(Vec<u8>, Meta)>,
    tensors: Vec<Tensor>,
}

/// ggml's number of a format's type.
pub(crate) fn type_number(format: Format) -> u32 {
    match format.name() {
        "f32" => 0,
        "f16" => 1,
        "q4_0" => 2,
        "q4_1" => 3,
        "q5_0" => 6,
        "q5_1" => 7,
        "q8_0" => 8,
        "q2_k" => 10,
        "q3_k" => 11,
        "q4_k" => 12,
        "q5_k" => 13,
        "q6_k" => 14,
        "iq4_nl" => 20,
        "iq4_xs" => 23,
        "i32" => 26,
        "bf16" => 30,
        "tq1_0" => 34,
        "tq2_0" => 35,
        "mxfp4" => 39,
        other => panic!("the writer has no number for {other}"),
    }
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { version: 3, alignment: 32, keys: vec![], tensors: vec![] }
    }

    pub(crate) fn version(mut self, version: u32) -> Writer {
        self.version = version;
        self
    }

    /// Sets the alignment of tensors, also in the metadata.
    pub(crate) fn alignment(mut self, alignment: u32) -> Writer {
        self.alignment = alignment as usize;
        self.key("general.alignment", Meta::U32(alignment))
    }

    pub(crate) fn key(self, key: &str, value: Meta) -> Writer {
        self.raw_key(key.as_bytes(), value)
    }

    pub(crate) fn raw_key(mut self, key: &[u8], value: Meta) -> Writer {
        self.keys.push((key.to_vec(), value));
        self
    }

    /// Adds a tensor of these values; `shape` is outermost first.
    pub(crate) fn tensor(
        self,
        name: &str,
        shape: &[u64],
        format: Format,
        values: &[f32],
    ) -> Writer {
        assert_eq!(shape.iter().product::<u64>(), values.len() as u64, "values of {name}");
        let data = warploom_core::quant::encode(format, values).expect("values of a tensor encode");
        self.raw_tensor(name, shape, type_number(format), data)
    }

    /// Adds a tensor of these bytes, whatever its shape and type say.
    pub(crate) fn raw_tensor(
        mut self,
        name: &str,
        shape: &[u64],
        type_number: u32,
        data: Vec<u8>,
    ) -> Writer {
        self.tensors.push(Tensor { name: name.into(), shape: shape.to_vec(), type_number, data });
        self
    }

    /// The file. Nothing follows the last tensor's last byte.
    pub(crate) fn write(&self) -> Written {
        let mut out = Written { bytes: vec![], spots: vec![], head_len: 0 };
        out.put("magic".into(), b"GGUF");
        out.put("version".into(), &self.version.to_le_bytes());
        out.put("tensor count".into(), &(self.tensors.len() as u64).to_le_bytes());
        out.put("metadata count".into(), &(self.keys.len() as u64).to_le_bytes());
        for (i, (key, value)) in self.keys.iter().enumerate() {
            out.put_string(&format!("key {i} name"), key);
            out.put(format!("key {i} type"), &value.kind().to_le_bytes());
            out.put_value(&format!("key {i} value"), value);
        }
        let mut offset = 0usize;
        for (i, tensor) in self.tensors.iter().enumerate() {
            out.put_string(&format!("tensor {i} name"), tensor.name.as_bytes());
            let rank = tensor.shape.len() as u32;
            out.put(format!("tensor {i} dimension count"), &rank.to_le_bytes());
            for (d, dim) in tensor.shape.iter().rev().enumerate() {
                out.put(format!("tensor {i} dimension {d}"), &dim.to_le_bytes());
            }
            out.put(format!("tensor {i} type"), &tensor.type_number.to_le_bytes());
            out.put(format!("tensor {i} offset"), &(offset as u64).to_le_bytes());
            offset = (offset + tensor.data.len()).next_multiple_of(self.alignment);
        }
        out.head_len = out.bytes.len();
        for (i, tensor) in self.tensors.iter().enumerate() {
            out.pad(self.alignment);
            out.put(format!("tensor {i} data"), &tensor.data);
        }
        out
    }
}

/// Arbitrary values: 0, 1/64, 2/64, ..
pub(crate) fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| i as f32 / 64.0).collect()
}

/// A valid file of a little of everything: the base of bad files and of mutations.
///
/// Keys: 0 `general.architecture`, 1 `test.count` u32, 2 `test.tokens` strings, 3 `test.scores`
/// f32s, 4 `test.flag` bool, 5 `test.flags` bools, 6 `test.deep` arrays of arrays. Tensors: 0
/// `a.weight` q8_0 [2, 32], 1 `b.weight` f32 [5, 4], and no byte after it.
pub(crate) fn small() -> Writer {
    let pair = |a, b| Meta::Array(0, vec![Meta::U8(a), Meta::U8(b)]);
    let flags = [true, false, true].map(Meta::Bool).to_vec();
    Writer::new()
        .key("general.architecture", Meta::Str("test".into()))
        .key("test.count", Meta::U32(7))
        .key("test.tokens", Meta::strings(["<s>", "", "é", "hello"]))
        .key("test.scores", Meta::f32s([0.5, -1.0, 2.0]))
        .key("test.flag", Meta::Bool(true))
        .key("test.flags", Meta::Array(7, flags))
        .key("test.deep", Meta::Array(9, vec![pair(1, 2), pair(3, 4)]))
        .tensor("a.weight", &[2, 32], Format::Q8_0, &ramp(64))
        .tensor("b.weight", &[5, 4], Format::F32, &ramp(20))
}
