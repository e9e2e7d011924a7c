//! Reads everything in an open GGUF file, and checks the invariants of every file that opens.

use warploom::Error;
use warploom_core::base::Format;
use warploom_core::quant;
use warploom_models::gguf::{Gguf, TensorInfo, Value};

/// Opens `bytes`, or returns the refusal after checking its text.
pub(crate) fn open(bytes: Vec<u8>) -> Result<Gguf, Error> {
    Gguf::from_bytes(bytes, "fuzz.gguf").inspect_err(|error| {
        let text = error.to_string();
        assert!(error.is_bad_file(), "not a bad file: {error:?}");
        assert!(text.starts_with("fuzz.gguf: ") && text.contains(" at byte "), "{text}");
    })
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
