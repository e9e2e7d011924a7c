//! Tests of files that are read on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::gguf::{Value, Writer};
use warploom_core::base::Format;

/// A file in memory that counts the bytes read of it, and fails from an offset on.
struct Counted {
    bytes: Vec<u8>,
    read: Arc<AtomicU64>,
    fails_from: u64,
}

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        if offset + into.len() as u64 > self.fails_from {
            return Err(Error::io("the disk is gone", std::io::Error::other("unplugged")));
        }
        into.copy_from_slice(slice(&self.bytes, offset, into.len() as u64).unwrap());
        Ok(())
    }
}

fn opened(bytes: Vec<u8>, fails_from: u64) -> (Result<Gguf>, Arc<AtomicU64>) {
    let read = Arc::new(AtomicU64::new(0));
    let file = Counted { bytes, read: read.clone(), fails_from };
    (Gguf::from_reader(file, "on demand.gguf"), read)
}

/// Returns a file with `words` strings in its head, and two tensors of `rows` rows.
fn file(words: usize, rows: u64) -> Vec<u8> {
    let mut head = Writer::new();
    head.key("general.architecture", Value::String("test")).unwrap();
    let words: Vec<String> = (0..words).map(|i| format!("word {i}")).collect();
    head.strings("words", words.iter().map(String::as_str)).unwrap();
    head.tensor("w", &[rows, 256], Format::F32).unwrap();
    head.tensor("v", &[rows, 32], Format::Q8_0).unwrap();
    let mut out = head.begin(Vec::new()).unwrap();
    let bytes: Vec<u8> = (0..rows * 1024 + rows * 34).map(|i| (i % 251) as u8).collect();
    let (w, v) = bytes.split_at(rows as usize * 1024);
    out.write(w).unwrap();
    out.write(v).unwrap();
    out.finish().unwrap()
}

#[test]
fn opening_reads_the_head_and_a_tensor_is_read_when_it_is_requested() {
    for words in [3, 20_000, 100_000] {
        let bytes = file(words, 8_000);
        let size = bytes.len() as u64;
        let whole = Gguf::from_bytes(bytes.clone(), "whole.gguf").unwrap();
        let (file, read) = opened(bytes, u64::MAX);
        let file = file.unwrap();
        let taken = read.swap(0, Ordering::Relaxed);
        // The head, up to twice as much for the last read, and the search for an appended file.
        let most = 2 * whole.head.len() as u64 + FIRST_READ + (65 << 10);
        assert!(taken <= most && taken < size / 2, "{words}: {taken} of {size}");
        assert_eq!((file.file_bytes(), &file.head), (size, &whole.head));
        assert!(file.metadata().eq(whole.metadata()));
        for (info, other) in file.tensors().zip(whole.tensors()) {
            let len = info.byte_len().unwrap();
            assert_eq!(file.weights(&info).unwrap(), whole.weights(&other).unwrap());
            assert_eq!(read.swap(0, Ordering::Relaxed), len);
            let part = file.part(&info, 100..300).unwrap();
            assert_eq!(*part, whole.bytes(&other).unwrap()[100..300]);
            assert_eq!(read.swap(0, Ordering::Relaxed), 200);
            assert!(file.part(&info, 0..len + 1).unwrap_err().is_invalid());
            assert!(file.bytes(&info).unwrap_err().is_unsupported());
        }
    }
}

#[test]
fn a_failed_read_names_the_file_and_the_offset() {
    let bytes = file(100_000, 10);
    let (file, _) = opened(bytes.clone(), 0);
    let error = file.unwrap_err();
    assert!(error.is_io(), "{error:?}");
    assert!(
        error.to_string().contains("on demand.gguf: reading 262144 bytes at byte 0"),
        "{error}"
    );
    let (file, _) = opened(bytes.clone(), FIRST_READ);
    let error = file.unwrap_err().to_string();
    assert!(error.contains("at byte 262144: the disk is gone"), "{error}");
    let size = bytes.len() as u64;
    // The last bytes are those of the second tensor; opening looks at them for an appended file.
    let padded = [bytes, vec![0; 4096]].concat();
    let (file, _) = opened(padded.clone(), u64::MAX);
    let at = file.unwrap().tensor("v").unwrap().file_offset();
    assert!(at < size);
    let (file, read) = opened(padded, size);
    let error = file.unwrap_err();
    let text = error.to_string();
    assert!(error.is_io() && text.contains("on demand.gguf: reading"), "{error}");
    assert!(text.contains("the disk is gone"), "{error}");
    assert!(read.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_file_cut_anywhere_is_treated_as_one_in_memory_is() {
    let bytes = file(2, 2);
    for end in 0..bytes.len() {
        let cut = bytes[..end].to_vec();
        let refusal = |opened: Result<Gguf>| opened.err().map(|error| error.to_string());
        let want = refusal(Gguf::from_bytes(cut.clone(), "on demand.gguf"));
        // Only the padding after the last tensor may be missing.
        assert!(want.is_some() || end + 32 > bytes.len(), "{end} bytes");
        assert_eq!(refusal(opened(cut, u64::MAX).0), want, "{end} bytes");
    }
}

#[test]
fn a_count_that_only_a_large_file_could_hold_allocates_no_more_than_was_read() {
    /// A file of a petabyte of zeros after its first bytes.
    struct Huge(Vec<u8>);
    impl ReadAt for Huge {
        fn size(&self) -> u64 {
            1 << 50
        }
        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
            let at = |i: usize| self.0.get(offset as usize + i).copied().unwrap_or(0);
            into.iter_mut().enumerate().for_each(|(i, byte)| *byte = at(i));
            Ok(())
        }
    }
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend(0u64.to_le_bytes());
    head.extend((1u64 << 40).to_le_bytes());
    let error = Gguf::from_reader(Huge(head), "huge.gguf").unwrap_err();
    assert!(error.is_bad_file(), "{error:?}");
    // A key of as many bytes as the machine has not.
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend(0u64.to_le_bytes());
    head.extend(1u64.to_le_bytes());
    head.extend((1u64 << 48).to_le_bytes());
    let error = Gguf::from_reader(Huge(head), "huge.gguf").unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("huge.gguf"), "{error:?}");
}

#[test]
fn a_second_file_after_the_first_is_refused() {
    let bytes = file(2, 2);
    let error = opened([bytes.clone(), bytes].concat(), u64::MAX).0.unwrap_err();
    assert!(error.is_bad_file() && error.to_string().contains("another GGUF file"), "{error}");
}
