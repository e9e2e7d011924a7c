//! Reads everything in an open GGUF file, and checks the invariants of every file that opens.

use warploom::Error;
use warploom_core::base::Format;
use warploom_core::quant;
use warploom_models::gguf::{Gguf, ReadAt, TensorInfo, Value};

/// Opens `bytes`, or returns the refusal after checking its text. A reader must give the same.
pub(crate) fn open(bytes: Vec<u8>) -> Result<Gguf, Error> {
    let read = Gguf::from_reader(Bytes(bytes.clone()), "fuzz.gguf");
    let opened = Gguf::from_bytes(bytes, "fuzz.gguf").inspect_err(|error| {
        let text = error.to_string();
        assert!(error.is_bad_file(), "not a bad file: {error:?}");
        assert!(text.starts_with("fuzz.gguf: ") && text.contains(" at byte "), "{text}");
    });
    match (&opened, read) {
        (Ok(file), Ok(read)) => same(file, &read),
        (Err(error), Err(read)) => assert_eq!(error.to_string(), read.to_string()),
        // Only readers look for a second file after the first.
        (Ok(_), Err(read)) => assert!(read.to_string().contains("another GGUF file"), "{read}"),
        (Err(error), Ok(_)) => panic!("opens through a reader only: {error}"),
    }
    opened
}

/// A file that is read on demand.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl ReadAt for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// Checks that two files have the same metadata, the same tensors, and the same bytes.
pub(crate) fn same(file: &Gguf, read: &Gguf) {
    assert_eq!(file.file_bytes(), read.file_bytes());
    assert_eq!(file.metadata().count(), read.metadata().count());
    for ((key, value), (other, read)) in file.metadata().zip(read.metadata()) {
        assert_eq!((key, format!("{value:?}")), (other, format!("{read:?}")));
    }
    assert_eq!(file.tensor_count(), read.tensor_count());
    for (info, other) in file.tensors().zip(read.tensors()) {
        assert_eq!(format!("{info:?}"), format!("{other:?}"));
        let Some(len) = info.byte_len() else { continue };
        let bytes = file.bytes(&info).expect("bytes in memory");
        assert_eq!(bytes, &*read.part(&other, 0..len).expect("bytes that are read"));
        let half = len / 2;
        assert_eq!(bytes[half as usize..], *read.part(&other, half..len).expect("a part"));
        match (file.weights(&info), read.weights(&other)) {
            (Ok(weights), Ok(read)) => assert_eq!(weights, read),
            (Err(error), Err(read)) => assert_eq!(error.to_string(), read.to_string()),
            (weights, read) => panic!("{:?} and {:?}", weights.err(), read.err()),
        }
    }
}

/// Touches every value and every byte; returns the number of decoded tensors.
pub(crate) fn read_all(gguf: &Gguf) -> usize {
    for (key, value) in gguf.metadata() {
        assert_eq!(gguf.value(key).map(|v| v.kind()), Some(value.kind()), "{key}");
        read_value(value);
        // Each getter answers or refuses; none may panic.
        let refusals = [
            gguf.get_u32(key).err(),
            gguf.get_u64(key).err(),
            gguf.get_f32(key).err(),
            gguf.get_bool(key).err(),
            gguf.get_str(key).err(),
            gguf.strings(key).map(Iterator::count).err(),
            gguf.integers(key).map(Iterator::count).err(),
            gguf.floats(key).map(Iterator::count).err(),
        ];
        assert!(refusals.iter().flatten().all(Error::is_bad_file));
    }

    let mut decoded = 0;
    for info in gguf.tensors() {
        let found = gguf.find_tensor(info.name()).expect("a tensor is found by its name");
        assert_eq!(found.file_offset(), info.file_offset());
        assert_eq!(info.shape().iter().product::<u64>(), info.elements());
        match gguf.bytes(&info) {
            Ok(bytes) => {
                assert_eq!(Some(bytes.len() as u64), info.byte_len());
                assert!(info.file_offset() + bytes.len() as u64 <= gguf.file_bytes());
                decoded += usize::from(decode(gguf, &info));
            }
            Err(error) => assert!(error.is_unsupported() && info.byte_len().is_none(), "{error}"),
        }
    }
    assert!(gguf.tensor_bytes() <= gguf.file_bytes());
    decoded
}

fn read_value(value: Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.items().count(), array.len());
        array.items().for_each(read_value);
    }
}

fn decode(gguf: &Gguf, info: &TensorInfo) -> bool {
    let format = match info.format() {
        Ok(format) => format,
        Err(error) => {
            assert!(error.is_unsupported(), "{error}");
            return false;
        }
    };
    match gguf.weights(info) {
        Ok(bytes) => {
            assert_eq!(format.bytes(info.elements()), Some(bytes.len() as u64));
            let mut out = vec![0.0; info.elements() as usize];
            // Plain integers are a format, but no weights.
            quant::decode(format, &bytes, &mut out).is_ok()
        }
        // Only BitNet's blocks can be wrong in themselves.
        Err(error) => {
            assert!(error.is_bad_file() && format == Format::I2S, "{error}");
            assert!(error.to_string().contains(" at byte "), "{error}");
            false
        }
    }
}
