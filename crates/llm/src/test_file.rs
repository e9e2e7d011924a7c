//! Builds small GGUF files in memory for the tests of this crate.

use warploom_models::gguf::Gguf;

/// A metadata value.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Text(&'static str),
    Integer(u64),
    Float(f32),
    Bool(bool),
    Texts(Vec<String>),
    Integers(Vec<i32>),
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Builds a file named `test.gguf` with these keys, and with f32 tensors of these shapes (outermost
/// size first) that are filled with zeros.
pub(super) fn gguf(keys: &[(&str, Entry)], tensors: &[(&str, &[u64])]) -> Gguf {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut out, key);
        match value {
            Entry::Text(value) => {
                out.extend(8u32.to_le_bytes());
                text(&mut out, value);
            }
            Entry::Integer(value) => {
                out.extend(10u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Entry::Float(value) => {
                out.extend(6u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Entry::Bool(value) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*value));
            }
            Entry::Texts(values) => {
                out.extend(9u32.to_le_bytes());
                out.extend(8u32.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| text(&mut out, value));
            }
            Entry::Integers(values) => {
                out.extend(9u32.to_le_bytes());
                out.extend(5u32.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
        }
    }
    let mut offset = 0u64;
    for (name, shape) in tensors {
        text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += (shape.iter().product::<u64>() * 4).next_multiple_of(32);
    }
    out.resize(out.len().next_multiple_of(32) + offset as usize, 0);
    Gguf::from_bytes(out, "test.gguf").unwrap()
}
