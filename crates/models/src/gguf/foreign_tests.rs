//! Tests the diagnoses of small files of other formats.

use super::*;

fn said(bytes: &[u8], name: &str) -> String {
    recognise(bytes, name).map(|found| found.to_string()).unwrap_or_default()
}

/// Returns a file of `len` bytes with `magic` at byte `at` and filler around it.
fn file(at: usize, magic: &[u8], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i * 37 + 129) as u8).collect();
    bytes[at..at + magic.len()].copy_from_slice(magic);
    bytes
}

/// Returns the first entry of a zip archive, with this name.
fn zipped(name: &str) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04\x14\0\0\0\x08\0".to_vec();
    bytes.resize(26, 0);
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(name.as_bytes());
    bytes.extend([0x80, 2, 0, 0xff, 0xfe]);
    bytes
}

#[test]
fn archives_and_other_formats_are_named() {
    let rows: [(Vec<u8>, &str); 31] = [
        (vec![], "an empty file: it has 0 bytes"),
        (vec![0; 4096], "a file without content: its first 4096 bytes are 0"),
        (file(0, b"\x1f\x8b\x08", 99), "a gzip archive: unpack it"),
        (file(0, b"\xfd7zXZ\0", 99), "an xz archive"),
        (file(0, b"7z\xbc\xaf\x27\x1c", 99), "a 7z archive"),
        (file(0, b"\x28\xb5\x2f\xfd", 99), "a zstd archive"),
        (file(0, b"BZh9", 99), "a bzip2 archive"),
        (file(0, b"Rar!\x1a\x07\x01\0", 99), "a RAR archive"),
        (file(0, b"\x04\x22\x4d\x18", 99), "an lz4 archive"),
        (file(257, b"ustar\x0000", 1024), "a tar archive"),
        (
            zipped("model.gguf"),
            "a zip archive: unpack it, and name the model in it (it begins with \"model.gguf\")",
        ),
        (b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "a zip archive: unpack it"),
        (
            zipped("archive/data.pkl"),
            "a PyTorch checkpoint (a pickle): it is not read, only GGUF and safetensors",
        ),
        (zipped("model/data.pkl"), "a PyTorch checkpoint"),
        (zipped("weight.npy"), "an archive of NumPy arrays"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), "a PyTorch checkpoint"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0}".to_vec(), "a PyTorch checkpoint"),
        (b"\x80\x02}q\0(X".to_vec(), "a PyTorch checkpoint"),
        (file(0, b"lmgg", 99), "an old ggml file, from before GGUF: take"),
        (file(0, b"fmgg\x01\0\0\0", 99), "an old ggml file, from before GGUF"),
        (file(0, b"tjgg\x03\0\0\0", 99), "an old ggml file, from before GGUF"),
        (file(0, b"ggjt\0\0\0\x03", 99), "an old ggml file, from before GGUF"),
        (file(0, b"algg\x01\0\0\0", 99), "a LoRA adapter in an old ggml format: an adapter"),
        (file(0, b"FUGG\0\0\0\x03", 99), "a GGUF file of the other byte order: only little-endian"),
        (
            file(0, b"\x89HDF\r\n\x1a\n", 99),
            "an HDF5 file, as of Keras: the format of another engine",
        ),
        (file(4, b"TFL3", 99), "a TensorFlow Lite model"),
        (file(0, b"MZqFpD='\n", 99), "a llamafile: it is a program around a GGUF file"),
        (file(0, b"\x7fELF\x02\x01\x01", 99), "a program, not a model"),
        (
            b"\x08\x08\x12\x07pytorch\x1a\x051.0.0:\xff\xff".to_vec(),
            "an ONNX model: the format of another",
        ),
        (b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02".to_vec(), "a SentencePiece vocabulary"),
        (
            [&40u64.to_le_bytes()[..], b"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]..\xff"].concat(),
            "a safetensors file, not a GGUF file: it holds weights without numbers",
        ),
    ];
    for (bytes, words) in rows {
        let got = said(&bytes, "m.gguf");
        assert!(got.starts_with(words), "{words:?}: {got:?}");
    }
    assert!(said(b"\x01\x02\x03\x04\x05\xff", "m.onnx").starts_with("an ONNX model"));
}

#[test]
fn pages_pointers_and_texts_are_named() {
    let page = "a web page, not a model: the link was to a page about the file";
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4806080\n";
    let rows: [(&str, &str); 21] = [
        ("<!doctype html><html><head><title>m.gguf at main</title>", page),
        ("<!DOCTYPE HTML>\n<HTML LANG=en>", page),
        ("\u{feff}\r\n  <html>", page),
        ("<!-- saved page -->\n<html><body>", page),
        ("<?xml version=\"1.0\"?><!DOCTYPE html PUBLIC \"\"><html xmlns=\"\">", page),
        ("<script>location='/login'</script>", page),
        (pointer, "a Git LFS pointer: fetch the file with git lfs pull"),
        (&pointer.replace("git-lfs", "hawser"), "a Git LFS pointer"),
        (
            &pointer.replace('\n', "\r\n"),
            "a Git LFS pointer: fetch the file with git lfs pull; this text stands for it, of 4806080 bytes,",
        ),
        (
            "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
            "an XML document, not a model: it says \"Request has expired\"",
        ),
        (
            "<Error><Code>NoSuchKey</Code></Error>",
            "an XML document, not a model: it says \"NoSuchKey\"",
        ),
        ("<svg viewBox=\"\"/>", "an XML document, not a model: it begins with"),
        ("{\"error\":\"Repository not found\"}", "JSON, not a model: it begins with \"{\\\"error"),
        ("[1, 2, 3]", "JSON, not a model"),
        ("[\n  null]", "JSON, not a model"),
        ("[2024-01-01 10:00] downloaded", "plain text, not a model"),
        ("<3 you all", "plain text, not a model"),
        ("[info] cannot fetch m.gguf", "plain text, not a model: it begins with \"[info]"),
        ("Entry not found", "plain text, not a model: it begins with \"Entry not found\""),
        ("Access to model org/name is restricted.\n", "plain text, not a model"),
        ("# h\u{e9}llo\n", "plain text, not a model: it begins with \"# h\u{e9}llo\""),
    ];
    for (text, words) in rows {
        let got = said(text.as_bytes(), "m.gguf");
        assert!(got.starts_with(words), "{text:?}: {got:?}");
    }
    assert!(said(rows[0].0.as_bytes(), "").contains("(\"m.gguf at main\")"));
    // A text that is longer than the inspected part, which ends within a character.
    let long = "\u{20ac}".repeat(LOOKED_AT);
    let got = said(long.as_bytes(), "m.gguf");
    assert!(got.starts_with("plain text") && got.len() < 500, "{got}");
    // Some programs save texts in UTF-16.
    let wide = |order: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(order).collect()
    };
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        for (text, words) in [rows[1], rows[6], rows[12], rows[20], ("h\u{1f600} there", "plain")] {
            let bytes = wide(order, text);
            assert!(said(&bytes, "m.gguf").starts_with(words), "{text:?}");
            (0..bytes.len()).for_each(|end| drop(recognise(&bytes[..end], "m.gguf")));
        }
    }
    // Other texts are not recognised.
    assert_eq!(stand_in(b"{\"a\": \"<html>\"}"), None);
    assert_eq!(stand_in(b"{{ '<html>' }}"), None);
    assert_eq!(stand_in(b"<|im_start|>{{ x }}"), None);
}

#[test]
fn what_is_not_known_is_not_named() {
    let noise: Vec<u8> =
        (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let rows: [&[u8]; 8] = [
        &noise,
        b"GGU",
        b"gguf\x03\0\0\0",
        b"\x80",
        b"\x80\x02",
        b"\x08\x01\x12\xff\x01\x0a\x03",
        b"PK",
        b"\0\0\0\0",
    ];
    for bytes in rows {
        assert_eq!(recognise(bytes, "m.gguf"), None, "{bytes:?}");
    }
    // No prefix causes a panic.
    let all =
        [zipped("archive/data.pkl"), file(257, b"ustar", 300), b"<!doctype html><title>".to_vec()];
    for bytes in all {
        for end in 0..bytes.len() {
            recognise(&bytes[..end], "m");
            stand_in(&bytes[..end]);
        }
    }
}

#[test]
fn names_tell_pieces_and_unfinished_downloads() {
    let (piece, unfinished) = ("a piece of a file", "has not ended");
    for (name, words) in [
        ("/a/m.gguf.part", unfinished),
        ("m.gguf.crdownload", unfinished),
        ("C:\\m.gguf.INCOMPLETE", unfinished),
        ("m.gguf.part1of2", piece),
        ("m.gguf.part10of12", piece),
        ("m.gguf-split-a", piece),
        ("m.gguf.001", piece),
    ] {
        assert!(hint(name).is_some_and(|hint| hint.contains(words)), "{name}: {:?}", hint(name));
    }
    for name in ["m.gguf", "part", "m.q4", "m.partof", "m.party", "x.gguf-split-abc", ""] {
        assert_eq!(hint(name).is_some(), name == "part", "{name}");
    }
}
